#include "tests/random/random_elementwise.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "tests/random/elementwise_ops.h"
#include "tests/random/reference_interpreter.h"

namespace dc::test {
namespace {

using base::DType;
using ir::NodeId;
using ir::TensorType;
using ir::ValueId;
using Kind = ElementwiseArgument::Kind;
using Takes = ElementwiseOp::Takes;
using Gives = ElementwiseOp::Gives;

constexpr DType kTypes[] = {DType::F32,  DType::F32, DType::F32, DType::BF16,
                            DType::BF16, DType::F16, DType::F64, DType::I64,
                            DType::I32,  DType::I16, DType::U8,  DType::Bool};

class RandomElementwise {
 public:
  explicit RandomElementwise(uint32_t seed) : random_(seed), step_(), graph_("micro_batch") {}

  ir::Step make() {
    step_.name = "random";
    step_.stage = ir::Stage::Normalized;
    step_.mesh.axes = {{"dp", 1}};
    shape_ = one_of<ir::Shape>({{5}, {300}, {3, 7}, {4, 64}, {2, 3, 5}, {9, 40}, {2, 1, 70}, {1}});
    if (below(40) == 0) shape_ = one_of<ir::Shape>({{1500}, {9, 300}, {2, 1, 700}});
    for (size_t i = 1 + below(4); i > 0; --i) add_input();
    add_operators(2 + below(14));
    const ValueId loss = sum_of_unread();
    phase_ = base::Phase::Backward;
    add_operators(2 + below(14));
    const ValueId gradient = sum_of_unread();
    finish(loss, gradient);
    return std::move(step_);
  }

 private:
  size_t below(size_t count) { return random_() % count; }
  template <typename T>
  T one_of(std::initializer_list<T> list) {
    return *(list.begin() + below(list.size()));
  }
  DType any_type() { return kTypes[below(std::size(kTypes))]; }
  const TensorType& type(ValueId id) const { return graph_.value(id).type; }

  ir::Origin origin() {
    ir::Origin made;
    made.phase = phase_;
    made.module = std::to_string(nodes_++);
    return made;
  }

  ValueId add(std::string_view overload, std::vector<ValueId> operands, TensorType result,
              std::vector<ir::Arg> args) {
    ir::Node& node = graph_.insert_aten({}, ir::Overload(overload), std::move(operands),
                                        {{"", std::move(result)}}, std::move(args), origin());
    node.provider = base::Provider::Native;
    return node.results[0];
  }

  // Sizes that are broadcast to the shape, some of the dims exchanged, or longer and cut.
  void add_input() {
    ir::Shape shape = shape_;
    for (int64_t& size : shape)
      if (below(4) == 0) size = 1;
    if (below(6) == 0) shape.erase(shape.begin());
    if (below(8) == 0) shape.clear();
    const bool turned = shape.size() > 1 && below(3) == 0;
    const bool cut = !turned && !shape.empty() && below(4) == 0;
    ir::Shape stored = shape;
    const auto dim = static_cast<int64_t>(shape.empty() ? 0 : below(shape.size()));
    if (turned) std::swap(stored.front(), stored.back());
    if (cut) stored[static_cast<size_t>(dim)] = 2 * stored[static_cast<size_t>(dim)] + 1;
    const std::string name = "x" + std::to_string(step_.inputs.size());
    ir::InputSpec spec;
    spec.name = name;
    spec.type = ir::contiguous(any_type(), stored);
    if (!base::is_floating(spec.type.dtype)) spec.role = ir::InputRole::Mask;
    step_.inputs.push_back(spec);
    ValueId value = graph_
                        .insert({}, ir::OpKind::Input, {}, {{name, spec.type}},
                                {{ir::Attr::Name, name}}, origin())
                        .results[0];
    if (turned) value = exchanged(value, 0, static_cast<int64_t>(shape.size()) - 1);
    if (cut) value = sliced(value, dim, 1, 2 * shape[static_cast<size_t>(dim)] + 1, 2);
    values_.push_back(value);
  }

  ValueId exchanged(ValueId value, int64_t a, int64_t b) {
    TensorType result = type(value);
    std::swap(result.shape[static_cast<size_t>(a)], result.shape[static_cast<size_t>(b)]);
    std::swap(result.strides[static_cast<size_t>(a)], result.strides[static_cast<size_t>(b)]);
    return add("aten.transpose.int", {value}, result,
               {{"self", ir::OperandRef{0}}, {"dim0", a}, {"dim1", b}});
  }
  ValueId sliced(ValueId value, int64_t dim, int64_t start, int64_t end, int64_t step) {
    TensorType result = type(value);
    const auto at = static_cast<size_t>(dim);
    result.offset += start * result.strides[at];
    result.shape[at] = (end - start + step - 1) / step;
    result.strides[at] *= step;
    return add("aten.slice.Tensor", {value}, result,
               {{"self", ir::OperandRef{0}},
                {"dim", dim},
                {"start", start},
                {"end", end},
                {"step", step}});
  }

  // A view of a value that is still broadcast to the shape: one row of it, or all of it with a dim
  // more or less that has one element.
  ValueId view_of(ValueId value) {
    const ir::Shape& shape = type(value).shape;
    if (shape.empty()) return value;
    const auto dim = static_cast<int64_t>(below(shape.size()));
    const auto place =
        static_cast<int64_t>(below(static_cast<size_t>(shape[static_cast<size_t>(dim)])));
    return sliced(value, dim, place, place + 1, 1);
  }

  void add_operators(size_t count) {
    const std::span<const ElementwiseOp> ops = elementwise_ops();
    for (size_t i = 0; i < count; ++i) {
      if (below(8) == 0) values_.push_back(view_of(any_value()));
      if (below(10) == 0) add_flip();
      if (below(5) == 0) add_reduction();
      // Casts and what models have most come more often.
      const bool is_common = below(3) == 0;
      const ElementwiseOp* op = &ops[below(ops.size())];
      if (is_common)
        op = find_elementwise(one_of<const char*>(
            {"aten.add.Tensor", "aten.mul.Tensor", "aten._to_copy.default", "aten.silu.default"}));
      add_operator(*op);
    }
  }

  ValueId any_value() { return values_[below(values_.size())]; }

  ValueId cast(ValueId value, DType dtype) {
    if (type(value).dtype == dtype) return value;
    return add("aten._to_copy.default", {value}, result_type(dtype, type(value).shape),
               {{"self", ir::OperandRef{0}}, {"dtype", dtype, true}});
  }

  // Without gaps; dims in any order in memory.
  TensorType result_type(DType dtype, const ir::Shape& shape) {
    TensorType made = ir::contiguous(dtype, shape);
    if (shape.size() > 1 && below(5) == 0) {
      std::vector<size_t> order(shape.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), random_);
      int64_t step = 1;
      for (const size_t dim : order) {
        made.strides[dim] = step;
        step *= shape[dim];
      }
    }
    return made;
  }

  // What no fused kernel can run.
  void add_flip() {
    const ValueId value = any_value();
    if (type(value).shape.empty()) return;
    const auto dim = static_cast<int64_t>(below(type(value).shape.size()));
    values_.push_back(add("aten.flip.default", {value},
                          ir::contiguous(type(value).dtype, type(value).shape),
                          {{"self", ir::OperandRef{0}}, {"dims", std::vector<int64_t>{dim}}}));
  }

  // Over leading or trailing dims, of the value or of a view of it as a matrix. The result can be
  // broadcast to the shape.
  void add_reduction() {
    ValueId value = any_value();
    const size_t rank = type(value).shape.size();
    if (rank == 0) return;
    const bool trailing = below(2) == 0;
    bool keeps_dims = trailing || below(2) == 0;
    std::vector<int64_t> dims;
    for (size_t i = 0, count = 1 + below(rank); i < count; ++i)
      dims.push_back(static_cast<int64_t>(trailing ? rank - count + i : i));
    if (rank > 2 && !trailing && type(value).is_contiguous() && below(2) == 0) {
      const ir::Shape& shape = type(value).shape;
      const ir::Shape matrix = {type(value).numel() / shape.back(), shape.back()};
      value = add("aten.view.default", {value}, ir::contiguous(type(value).dtype, matrix),
                  {{"self", ir::OperandRef{0}}, {"size", std::vector<int64_t>(matrix)}});
      dims = {0};
      keeps_dims = false;
    }
    ir::Shape result;
    for (size_t dim = 0; dim < type(value).shape.size(); ++dim) {
      const bool folds = std::ranges::count(dims, static_cast<int64_t>(dim)) != 0;
      if (!folds) result.push_back(type(value).shape[dim]);
      if (folds && keeps_dims) result.push_back(1);
    }
    DType dtype = type(value).dtype;
    const bool is_floating = base::is_floating(dtype);
    const char* overload = one_of({"aten.sum.dim_IntList", "aten.amax.default", "aten.amin.default",
                                   is_floating ? "aten.mean.dim" : "aten.sum.dim_IntList"});
    if (!is_floating && std::string_view(overload) == "aten.sum.dim_IntList") dtype = DType::I64;
    values_.push_back(add(overload, {value}, ir::contiguous(dtype, result),
                          {{"self", ir::OperandRef{0}}, {"dim", dims}, {"keepdim", keeps_dims}}));
  }

  // Operands that the operator takes, in its order.
  std::vector<ValueId> operands_for(const ElementwiseOp& op) {
    std::vector<ValueId> operands;
    for (const ElementwiseArgument& argument : op.arguments) {
      if (argument.kind == Kind::Tensor) operands.push_back(any_value());
      if (argument.kind == Kind::Mask) operands.push_back(cast(any_value(), DType::Bool));
    }
    size_t number = 0;
    for (const ElementwiseArgument& argument : op.arguments) {
      if (argument.kind == Kind::Mask) ++number;
      if (argument.kind == Kind::Tensor) fit(operands, number++, op);
    }
    return operands;
  }

  void fit(std::vector<ValueId>& operands, size_t number, const ElementwiseOp& op) {
    ValueId& operand = operands[number];
    const DType dtype = type(operand).dtype;
    const DType floating = one_of({DType::F32, DType::BF16, DType::F16, DType::F64});
    const DType integral = one_of({DType::I64, DType::I32, DType::Bool});
    const bool is_first = operand == operands.front() || op.count(Kind::Mask) > 0;
    if (op.takes == Takes::Integral) {
      // What is combined bit by bit has one type.
      if (base::is_floating(dtype)) operand = cast(operand, integral);
      if (!is_first) operand = cast(operand, type(operands.front()).dtype);
    } else if (op.takes == Takes::Floating && is_first && !base::is_floating(dtype)) {
      operand = cast(operand, floating);
    } else if (op.gives == Gives::Common && dtype == DType::Bool) {
      operand = cast(operand, one_of({DType::F32, DType::I64, DType::BF16}));
    }
    // Without dims it decides nothing; a value that fills in keeps the type of what it is put into.
    const bool fills = op.overload == "aten.masked_fill.Tensor" && number > 0;
    if (fills) operand = cast(operand, type(operands.front()).dtype);
  }

  void add_operator(const ElementwiseOp& op) {
    if (op.overload == "aten.masked_fill.Tensor") return add_fill(op);
    const std::vector<ValueId> operands = operands_for(op);
    put(op, operands);
  }

  // The value has no dims.
  void add_fill(const ElementwiseOp& op) {
    const auto scalar =
        std::ranges::find_if(values_, [this](ValueId value) { return type(value).shape.empty(); });
    if (scalar == values_.end()) return;
    std::vector<ValueId> operands = operands_for(op);
    operands[2] = cast(*scalar, type(operands[0]).dtype);
    put(op, operands);
  }

  void put(const ElementwiseOp& op, const std::vector<ValueId>& operands) {
    const bool integers = std::ranges::none_of(
        operands, [this](ValueId value) { return base::is_floating(type(value).dtype); });
    std::vector<WeightedType> types;
    std::vector<ir::Arg> args;
    ir::Shape shape;
    int number = 0;
    double last = -1;  // numbers of one operator ascend: bounds
    DType dtype = any_type();
    for (const ElementwiseArgument& argument : op.arguments) {
      const std::string name(argument.name);
      switch (argument.kind) {
        case Kind::Tensor:
          types.push_back({type(operands[static_cast<size_t>(number)]).dtype,
                           type(operands[static_cast<size_t>(number)]).shape.empty() ? 1 : 0});
          [[fallthrough]];
        case Kind::Mask:
          broadcast(shape, type(operands[static_cast<size_t>(number)]).shape);
          args.emplace_back(name, ir::OperandRef{number++});
          break;
        case Kind::Scalar:
        case Kind::Number: {
          if (argument.name == "beta") last = 0;  // divides
          const bool whole = integers && op.takes != Takes::Real;
          last = whole ? last + 1 + static_cast<double>(below(3))
                       : last + one_of({0.5, 0.1, 0.75, 1.0, 2.0});
          if (whole) args.emplace_back(name, static_cast<int64_t>(last));
          if (!whole) args.emplace_back(name, last);
          if (argument.kind == Kind::Scalar) types.push_back({whole ? DType::I64 : DType::F32, 2});
          break;
        }
        case Kind::Word:
          args.emplace_back(name, std::string(below(2) == 0 ? first_word(name) : second_word(name)),
                            true);
          break;
        case Kind::Type:
          args.emplace_back(name, dtype, true);
          break;
      }
    }
    if (shape.empty()) return;
    const DType common = common_type(types);
    if (op.gives == Gives::Truth) dtype = DType::Bool;
    if (op.gives == Gives::Common) dtype = common;
    if (op.takes == Takes::Real && !base::is_floating(dtype)) dtype = DType::F32;
    values_.push_back(add(op.overload, operands, result_type(dtype, shape), std::move(args)));
  }

  static void broadcast(ir::Shape& shape, const ir::Shape& other) {
    if (other.size() > shape.size()) shape.insert(shape.begin(), other.size() - shape.size(), 1);
    const size_t before = shape.size() - other.size();
    for (size_t dim = 0; dim < other.size(); ++dim)
      shape[before + dim] = std::max(shape[before + dim], other[dim]);
  }

  // One number of all that is read nowhere, and of some of the rest.
  ValueId sum_of_unread() {
    ValueId total;
    for (const ValueId value : std::vector<ValueId>(values_)) {
      const bool is_made = graph_.node(graph_.value(value).producer).origin.phase == phase_;
      const bool is_unread = graph_.value(value).uses.empty();
      if (!is_unread && (!is_made || below(4) != 0)) continue;
      const DType dtype = type(value).dtype;
      const DType of_sum = base::is_floating(dtype) ? dtype : DType::I64;
      const ValueId sum = add("aten.sum.default", {value}, ir::contiguous(of_sum, {}),
                              {{"self", ir::OperandRef{0}}});
      const ValueId real = cast(sum, DType::F32);
      total = total.valid() ? add("aten.add.Tensor", {total, real}, ir::contiguous(DType::F32, {}),
                                  {{"self", ir::OperandRef{0}}, {"other", ir::OperandRef{1}}})
                            : real;
    }
    if (total.valid()) return total;
    const ValueId sum = add("aten.sum.default", {cast(any_value(), DType::F32)},
                            ir::contiguous(DType::F32, {}), {{"self", ir::OperandRef{0}}});
    return sum;
  }

  void finish(ValueId loss, ValueId gradient) {
    ir::Parameter parameter;
    parameter.fqn = "w";
    step_.parameters.edit().push_back(parameter);
    ir::StateEntry entry;
    entry.name = "w";
    entry.parameter = 0;
    entry.type = ir::contiguous(DType::F32, {});
    step_.state.push_back(entry);
    graph_.outputs = {{ir::OutputKind::Loss, "", loss}, {ir::OutputKind::Gradient, "w", gradient}};
    // Operands that were cast for an operator which was then left out.
    for (NodeId id = graph_.last(), before; id.valid(); id = before) {
      before = graph_.previous(id);
      const ir::Node& node = graph_.node(id);
      const ValueId made = node.results[0];
      if (graph_.value(made).uses.empty() && made != loss && made != gradient &&
          node.kind == ir::OpKind::Aten)
        graph_.erase(id);
    }
    step_.programs.push_back({std::move(graph_), 1});
  }

  std::mt19937 random_;
  ir::Step step_;
  ir::Graph graph_;
  ir::Shape shape_;
  base::Phase phase_ = base::Phase::Forward;
  std::vector<ValueId> values_;
  int nodes_ = 0;
};

}  // namespace

ir::Step random_elementwise_step(uint32_t seed) { return RandomElementwise(seed).make(); }

}  // namespace dc::test
