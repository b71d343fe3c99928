// Types of the project's own ops, as ops.h words their meaning.
#include "src/base/expression_shape.h"
#include "src/base/step_scalars.h"
#include "src/ir/group.h"
#include "src/ir/verifier.h"

namespace dc::ir {
namespace {

using base::Status;

// Checks of one node. Each check returns the offence, or success.
class OpChecker {
 public:
  OpChecker(const Scope& scope, const Node& node) : scope_(scope), node_(node) {}

  Status run() const {
    const OpInfo& wanted = info(node_.kind);
    const bool is_counted = node_.kind != OpKind::Fused;  // its expression says how many
    const size_t most = wanted.operand_count, least = optional_operand(node_.kind).value_or(most);
    if (is_counted && (node_.operands.size() < least || node_.operands.size() > most ||
                       node_.results.size() != wanted.result_count)) {
      return bad("DC2105", "this op takes " + std::to_string(least) +
                               (least < most ? " or " + std::to_string(most) : std::string()) +
                               " operands and gives " + std::to_string(wanted.result_count) +
                               " results");
    }
    for (ValueId result : node_.results) {
      if (!result.valid()) return bad("DC2105", "a result is missing");
    }
    DC_RETURN_IF_ERROR(verify_attributes(scope_, node_));
    return by_kind();
  }

 private:
  // The rule that ops.def names.
  Status by_kind() const {
    using Rule = Status (OpChecker::*)() const;
    constexpr Rule kRules[] = {
#define DC_OP(kind, text, alias, provider, half, trait, rule, results, operands, attributes) \
  &OpChecker::rule,
#include "src/ir/ops.def"
#undef DC_OP
    };
    return (this->*kRules[static_cast<size_t>(node_.kind)])();
  }

  Status bad(std::string_view code, const std::string& what) const {
    return offence(scope_, node_, code, what);
  }
  Status wrong(const std::string& what) const { return bad("DC2203", what); }
  const TensorType& in(size_t i) const { return scope_.operand(node_, i).type; }
  const TensorType& out() const { return scope_.type(node_.results[0]); }
  int64_t world() const { return scope_.step.mesh.world(); }
  int64_t trainable() const { return scope_.trainable; }

  Status dense(size_t operand) const {
    if (in(operand).is_contiguous()) return {};
    return wrong("operand " + std::to_string(operand) + " must be contiguous");
  }

  Status tensor(size_t operand, DType dtype, const Shape& shape, const char* what) const {
    if (in(operand).dtype == dtype && in(operand).shape == shape && in(operand).is_contiguous())
      return {};
    return wrong("operand " + std::to_string(operand) + " must be " + what);
  }

  Status hyperparameters(size_t operand) const {
    const auto groups = static_cast<int64_t>(scope_.step.optimizer.groups.size());
    return tensor(operand, DType::F64, {base::kHyperGroups + base::kHyperPerGroup * groups},
                  "the f64 hyperparameters");
  }

  Status aten() const { return {}; }  // by its overload, elsewhere

  Status fused() const {
    const std::string_view text = std::get<std::string>(node_.find(Attr::Body)->value);
    auto known = scope_.expressions.find(text);
    if (known == scope_.expressions.end())
      known = scope_.expressions.emplace(text, base::Expression::parse(text)).first;
    const base::Result<base::Expression>& body = known->second;
    if (!body.ok()) return bad("DC2205", body.status().sentence());
    if (body->operands() != node_.operands.size() || body->results.size() != node_.results.size())
      return wrong("the expression has other numbers of operands or results");
    std::vector<std::span<const int64_t>> operands, results;
    for (size_t i = 0; i < node_.results.size(); ++i) {
      const TensorType& type = scope_.type(node_.results[i]);
      if (type.dtype != body->operations[body->results[i]].dtype)
        return wrong("the results must have the element types of their values");
      results.emplace_back(type.shape);
    }
    for (size_t i = 0; i < node_.operands.size(); ++i) operands.emplace_back(in(i).shape);
    const auto shape = base::shape_of(*body, operands, results);
    if (!shape) return wrong("the operands and results do not have the shapes of the expression");
    if (shape->elements.empty()) return wrong("the values must have dims");
    return {};
  }

  Status input() const {
    const auto& name = std::get<std::string>(node_.find(Attr::Name)->value);
    for (const InputSpec& spec : scope_.step.inputs) {
      if (spec.name != name) continue;
      if (spec.type.dtype == out().dtype && spec.type.shape == out().shape) return {};
      return wrong("the type differs from that of input '" + name + "' in the table");
    }
    return bad("DC2205", "there is no input '" + name + "' in the table");
  }

  Status state() const {
    const StateEntry& entry =
        scope_.step.state[std::get<StateId>(node_.find(Attr::Entry)->value).index()];
    if (entry.type == out()) return {};
    return wrong("the type differs from that of state entry '" + entry.name + "'");
  }

  AxisMask group() const { return group_of(node_); }
  // Ranks that meet.
  int64_t members() const { return scope_.step.mesh.size(group()); }
  // Of a type, along axes of more than one rank.
  AxisMask along(const TensorType& type, AxisPlacement placement) const {
    return axes_with(type, placement) & scope_.step.mesh.wide();
  }

  // All axes would be the world, which goes without saying.
  Status group_attribute() const {
    return node_.find(Attr::Ranks) != nullptr && scope_.step.mesh.is_world(group())
               ? bad("DC2205", "attribute 'group' names all ranks, who meet without it")
               : Status();
  }

  Status is_state(size_t operand) const {
    if (scope_.entry[node_.operands[operand].index()] >= 0) return {};
    return wrong("operand " + std::to_string(operand) + " must be state");
  }

  Status wait_previous_step() const { return is_state(0); }

  Status gather_attributes(size_t operand) const {
    DC_RETURN_IF_ERROR(group_attribute());
    const int64_t elements = node_.integer(Attr::Elements), shard = node_.integer(Attr::Shard);
    DC_RETURN_IF_ERROR(dense(operand));
    if (in(operand).numel() != shard) return wrong("the operand must hold `shard` elements");
    if (out().numel() != elements) return wrong("the result must hold `elements` elements");
    if (shard > INT64_MAX / members() || elements > shard * members())
      return wrong("the shards of all ranks do not cover the whole value");
    if (in(operand).dtype != out().dtype) return wrong("a gather keeps the element type");
    if (is_flat_shard(out()) || is_partial(out(), scope_.step.mesh))
      return bad("DC2204", "a gathered value is whole on every rank");
    return out().is_contiguous() ? Status() : wrong("the result must be contiguous");
  }

  Status all_gather() const {
    DC_RETURN_IF_ERROR(group_attribute());
    if (!is_flat_shard(in(0))) return bad("DC2204", "only a flat shard can be gathered");
    if (along(in(0), AxisPlacement::FlatShard) != (group() & scope_.step.mesh.wide()))
      return bad("DC2204", "the ranks that hold the shards are not those of the group");
    return gather_attributes(0);
  }

  Status all_gather_into() const {
    DC_RETURN_IF_ERROR(is_state(0));
    if (!(out() == in(0))) return wrong("the result must have the type of operand 0");
    if (is_partial(in(1), scope_.step.mesh))
      return bad("DC2204", "a partial value cannot be gathered");
    DC_RETURN_IF_ERROR(gather_attributes(1));
    const StateEntry& entry =
        scope_.step.state[static_cast<size_t>(scope_.entry[node_.operands[0].index()])];
    if (reserved_elements(entry) >= in(1).numel() * members()) return {};
    return wrong("state entry '" + entry.name + "' has no room for the shards of all ranks");
  }

  Status reduced(size_t operand) const {
    DC_RETURN_IF_ERROR(group_attribute());
    DC_RETURN_IF_ERROR(dense(operand));
    if (!base::is_floating(in(operand).dtype)) return wrong("only floating numbers are reduced");
    if (out().dtype != DType::F32 || !out().is_contiguous())
      return wrong("the result must be contiguous f32");
    const AxisMask summed = group() & scope_.step.mesh.wide();
    const AxisMask before = along(in(operand), AxisPlacement::Partial);
    if ((summed & ~before) != 0)
      return bad("DC2204", "only a partial value is reduced; this one would be summed twice");
    return along(out(), AxisPlacement::Partial) != (before & ~summed)
               ? bad("DC2204", "a reduction leaves a value partial along the other axes only")
               : Status();
  }

  Status reduce_scatter() const {
    const int64_t shard = node_.integer(Attr::Shard);
    DC_RETURN_IF_ERROR(reduced(0));
    const bool is_shard = out().shape == Shape{shard} && is_flat_shard(out());
    if (!is_shard || along(out(), AxisPlacement::FlatShard) != (group() & scope_.step.mesh.wide()))
      return wrong("the result must be a flat shard of `shard` elements along the group's axes");
    if (shard <= INT64_MAX / members() && in(0).numel() <= shard * members()) return {};
    return wrong("the shards of all ranks do not cover the operand");
  }

  Status all_reduce() const {
    DC_RETURN_IF_ERROR(reduced(0));
    if (axes_with(out(), AxisPlacement::FlatShard) != axes_with(in(0), AxisPlacement::FlatShard))
      return bad("DC2204", "the result must be as whole as the operand");
    return out().numel() == in(0).numel()
               ? Status()
               : wrong("the result must hold as many elements as the operand");
  }

  Status all_reduce_in_place() const {
    DC_RETURN_IF_ERROR(all_reduce());
    if (in(0).dtype != DType::F32) return wrong("operand 0 must be f32, as the sums are");
    return out().shape == in(0).shape ? Status()
                                      : wrong("the result must have the operand's shape");
  }

  Status done() const {
    const Node& start = scope_.graph.node(scope_.operand(node_, 0).producer);
    if (start.kind != start_of(node_.kind))
      return bad("DC2308", "the operand is not a start of the same kind");
    return out() == in(0) ? Status() : wrong("the result must have the type of the start");
  }

  // offload.start and reload.start: the result is the operand without its offset, in another space.
  Status moved_copy() const {
    TensorType type = in(0);
    type.offset = 0;
    if (type.storage_elements() != type.numel()) return wrong("the operand must have no gaps");
    return out() == type ? Status() : wrong("the result must have the type of the operand");
  }

  Status offload_into() const {
    DC_RETURN_IF_ERROR(is_state(0));
    DC_RETURN_IF_ERROR(copy());
    return out() == in(0) ? Status() : wrong("the result must have the type of operand 0");
  }

  Status release() const {
    const Value& root = scope_.value(scope_.root[node_.operands[0].index()]);
    if (scope_.graph.node(root.producer).kind == OpKind::AllGatherStart) return {};
    return wrong("only a gathered value can be released");
  }

  Status dropout() const {
    const TensorType& mask = scope_.type(node_.results[1]);
    if (!base::is_floating(in(0).dtype) || out().dtype != in(0).dtype ||
        mask.dtype != DType::Bool) {
      return wrong("dropout of a floating x gives y of the same type and a bool mask");
    }
    if (out().shape != in(0).shape || mask.shape != in(0).shape)
      return wrong("x, y and mask must have one shape");
    if (!out().is_contiguous() || !mask.is_contiguous())
      return wrong("the results must be contiguous");
    DC_RETURN_IF_ERROR(dense(0));
    return tensor(1, DType::I64, {4}, "the four 64-bit counters");
  }

  Status reduction() const {
    const int64_t reduction = node_.integer(Attr::Reduction);
    return reduction == 1 || reduction == 2
               ? Status()
               : bad("DC2205", "attribute 'reduction' must be 1, a mean, or 2, a sum");
  }

  // The rows of classes, and a class number for each.
  Status class_rows() const {
    DC_RETURN_IF_ERROR(dense(0));
    if (!base::is_floating(in(0).dtype) || in(0).dtype == DType::F64 || in(0).shape.size() != 2)
      return wrong("operand 0 must be f32, bf16 or f16 rows of classes");
    DC_RETURN_IF_ERROR(reduction());
    return tensor(1, DType::I64, {in(0).shape[0]}, "a class number for each row");
  }

  Status cross_entropy() const {
    DC_RETURN_IF_ERROR(class_rows());
    for (size_t i = 0; i < 4; ++i) {
      const TensorType& result = scope_.type(node_.results[i]);
      if (result.dtype != DType::F32 || !result.is_contiguous() ||
          result.shape != (i < 2 ? Shape{} : Shape{in(0).shape[0]}))
        return wrong("the results must be two f32 numbers, and two of each row");
    }
    return {};
  }

  Status cross_entropy_backward() const {
    DC_RETURN_IF_ERROR(class_rows());
    for (size_t i = 2; i < 6; ++i) {
      DC_RETURN_IF_ERROR(i < 4 ? tensor(i, DType::F32, {}, "an f32 number")
                               : tensor(i, DType::F32, {in(0).shape[0]}, "an f32 of each row"));
    }
    return out() == in(0) ? Status() : wrong("the result must have the type of operand 0");
  }

  Status linear_cross_entropy() const {
    const DType dtype = in(0).dtype;
    if ((dtype != DType::F32 && dtype != DType::BF16) || in(0).shape.size() != 2 ||
        in(1).shape.size() != 2 || in(1).dtype != dtype || in(1).shape[1] != in(0).shape[1])
      return wrong("operands 0 and 1 must be f32 or bf16 matrices with rows of one length");
    const int64_t rows = in(0).shape[0], classes = in(1).shape[0];
    DC_RETURN_IF_ERROR(dense(0));
    DC_RETURN_IF_ERROR(dense(1));
    DC_RETURN_IF_ERROR(reduction());
    DC_RETURN_IF_ERROR(tensor(2, DType::I64, {rows}, "a class number for each row"));
    DC_RETURN_IF_ERROR(tensor(3, DType::F32, {}, "an f32 number"));
    const int64_t some_rows = node_.integer(Attr::Rows), some = node_.integer(Attr::Classes);
    if (some_rows < 1 || some < 1 || some_rows > rows || some > classes ||
        (some_rows < rows && some < classes))
      return bad("DC2205", "attributes 'rows' and 'classes' must be parts of all rows or classes");
    for (size_t i = 0; i < 4; ++i) {
      const TensorType& result = scope_.type(node_.results[i]);
      if (result.dtype != (i < 2 ? DType::F32 : dtype) || !result.is_contiguous() ||
          result.shape != (i < 2 ? Shape{} : in(i - 2).shape))
        return wrong("the results must be two f32 numbers and the gradients of operands 0 and 1");
    }
    return {};
  }

  // That operands `left` and the next one are matrices whose product `result` can be.
  Status product(size_t left, const TensorType& result) const {
    const TensorType &a = in(left), &b = in(left + 1);
    const bool fits = (a.dtype == DType::F32 || a.dtype == DType::BF16) && b.dtype == a.dtype &&
                      result.dtype == a.dtype && a.shape.size() == 2 && b.shape.size() == 2 &&
                      a.shape[1] == b.shape[0] && result.shape == Shape{a.shape[0], b.shape[1]} &&
                      result.is_contiguous();
    return fits ? Status()
                : wrong("operands " + std::to_string(left) + " and " + std::to_string(left + 1) +
                        " must be f32 or bf16 matrices whose product the result is");
  }

  Status add_product() const {
    DC_RETURN_IF_ERROR(product(1, out()));
    return out() == in(0) ? Status() : wrong("the result must have the type of operand 0");
  }

  Status two_products() const {
    DC_RETURN_IF_ERROR(product(0, out()));
    DC_RETURN_IF_ERROR(product(2, scope_.type(node_.results[1])));
    for (const size_t i : {0, 1}) {
      if (in(i).shape != in(i + 2).shape || in(i).strides != in(i + 2).strides ||
          in(i).dtype != in(i + 2).dtype)
        return wrong("both products must be of the same types");
    }
    return {};
  }

  Status cast() const {
    DC_RETURN_IF_ERROR(dense(0));
    return out().shape == in(0).shape && out().is_contiguous()
               ? Status()
               : wrong("the result must be contiguous with the operand's shape");
  }

  Status copy() const {
    DC_RETURN_IF_ERROR(dense(0));
    DC_RETURN_IF_ERROR(dense(1));
    const bool same = in(0).dtype == in(1).dtype && in(0).numel() == in(1).numel();
    return same ? Status() : wrong("both operands must have one element type and element count");
  }

  Status zero() const { return dense(0); }

  Status accumulate() const {
    DC_RETURN_IF_ERROR(dense(0));
    DC_RETURN_IF_ERROR(dense(1));
    const DType g = in(1).dtype;
    if (in(0).dtype != DType::F32 || (g != DType::F32 && g != DType::BF16 && g != DType::F16)) {
      return wrong("f32, bf16 or f16 is added to f32");
    }
    if (in(0).numel() != in(1).numel()) return wrong("both operands must hold as many elements");
    if ((along(in(1), AxisPlacement::Partial) & ~along(in(0), AxisPlacement::Partial)) == 0)
      return {};
    return bad("DC2204", "a partial value is added to a sum that counts as reduced");
  }

  Status add_loss() const {
    DC_RETURN_IF_ERROR(tensor(0, DType::F64, {1}, "f64[1]"));
    return in(1).numel() == 1 && base::is_floating(in(1).dtype)
               ? Status()
               : wrong("the loss must be one floating number");
  }

  Status flatten() const {
    DC_RETURN_IF_ERROR(dense(0));
    const bool flat = out().shape == Shape{in(0).numel()} && out().is_contiguous() &&
                      out().offset == in(0).offset;
    return flat ? Status() : wrong("the result must be the operand as one dim");
  }

  Status row(size_t operand) const {
    return tensor(operand, DType::F64, {trainable() + base::kTableExtra},
                  "this rank's row of the table");
  }

  Status scalars() const {
    return tensor(0, DType::F64, {base::kScalarFinite + trainable()}, "the f64 scalars");
  }

  Status square_sum() const {
    DC_RETURN_IF_ERROR(row(0));
    DC_RETURN_IF_ERROR(gradient(1));
    DC_RETURN_IF_ERROR(hyperparameters(2));
    const bool whole = node_.integer(Attr::Whole) != 0;
    if (in(1).numel() != node_.integer(whole ? Attr::Elements : Attr::Shard))
      return wrong("operand 1 must hold the whole value or the shard, as `whole` says");
    DC_RETURN_IF_ERROR(counts_once(node_.integer(Attr::Shard)));
    return is_partial(in(1), scope_.step.mesh)
               ? bad("DC2204", "the norm of a partial value means nothing")
               : Status();
  }

  // Every element of every shard is in the part of one rank.
  Status counts_once(int64_t shard) const {
    const Mesh& mesh = scope_.step.mesh;
    const AxisMask holders = mesh.shard_axes();
    const Arg* axes = node_.find(Attr::Axes);
    if (axes == nullptr) {
      const bool split =
          !is_flat_shard(in(1)) || mesh.is_world(axes_with(in(1), AxisPlacement::FlatShard));
      return split ? Status() : wrong("replicas of a shard need `axes` and `part`");
    }
    if (std::get<std::vector<int64_t>>(axes->value) != axes_in(mesh, holders))
      return bad("DC2205", "attribute 'axes' does not name the axes of the shards");
    if (node_.find(Attr::Part) == nullptr || node_.integer(Attr::Part) == 0)
      return bad("DC2205", "attribute 'part' is missing or zero");
    const int64_t part = node_.integer(Attr::Part);
    const int64_t replicas = mesh.size(kAllAxes & ~holders);
    return part <= INT64_MAX / replicas && part * replicas >= shard
               ? Status()
               : wrong("the parts of all replicas do not cover the shard");
  }

  Status check_finite() const {
    DC_RETURN_IF_ERROR(scalars());
    DC_RETURN_IF_ERROR(row(1));
    return tensor(2, DType::F64, {world()}, "the f64 losses of all ranks");
  }

  Status clip_and_check() const {
    DC_RETURN_IF_ERROR(scalars());
    DC_RETURN_IF_ERROR(tensor(1, DType::F64, {world(), trainable() + base::kTableExtra},
                              "the f64 table of all ranks"));
    return hyperparameters(2);
  }

  // True also for a reloaded copy of state that lies in another space.
  bool is_state_or_copy(ValueId value) const {
    const ValueId root = scope_.root[value.index()];
    if (scope_.entry[root.index()] >= 0) return true;
    const Node& producer = scope_.graph.node(scope_.value(root).producer);
    return producer.kind == OpKind::ReloadStart && scope_.entry[producer.operands[0].index()] >= 0;
  }

  Status gradient(size_t operand) const {
    DC_RETURN_IF_ERROR(dense(operand));
    return base::is_floating(in(operand).dtype)
               ? Status()
               : wrong("operand " + std::to_string(operand) + " must be a gradient");
  }

  // Of an optimizer: parameter and state first, then the gradient, scalars, hyperparameters, and
  // perhaps the parameter's copy.
  Status update() const {
    const size_t gradient = gradient_operand(node_.kind).value();
    const auto is_of_parameter = [&](size_t i, bool must_be_state) {
      const std::string name = "operand " + std::to_string(i);
      if (must_be_state && !is_state_or_copy(node_.operands[i]))
        return wrong(name + " must be state");
      DC_RETURN_IF_ERROR(dense(i));
      return in(i).numel() == in(0).numel()
                 ? Status()
                 : wrong(name + " must have as many elements as operand 0");
    };
    for (size_t i = 0; i < gradient; ++i) {
      DC_RETURN_IF_ERROR(is_of_parameter(i, true));
      if (in(i).dtype != DType::F32) return wrong("operand " + std::to_string(i) + " must be f32");
    }
    DC_RETURN_IF_ERROR(is_of_parameter(gradient, false));
    DC_RETURN_IF_ERROR(this->gradient(gradient));
    DC_RETURN_IF_ERROR(
        tensor(gradient + 1, DType::F64, {base::kScalarFinite + trainable()}, "the f64 scalars"));
    DC_RETURN_IF_ERROR(hyperparameters(gradient + 2));
    const size_t copy = gradient + 3;
    if (copy == node_.operands.size()) return {};
    DC_RETURN_IF_ERROR(is_of_parameter(copy, true));
    return base::is_floating(in(copy).dtype) && in(copy).dtype != DType::F32
               ? Status()
               : wrong("the copy must be of another floating type than f32");
  }

  const Scope& scope_;
  const Node& node_;
};

}  // namespace

Status verify_op_types(const Scope& scope, const Node& node) {
  return OpChecker(scope, node).run();
}

}  // namespace dc::ir
