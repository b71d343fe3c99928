#include "src/frontend/result_rules.h"

#include <algorithm>
#include <array>

#include "src/ir/ops.h"

namespace dc::frontend {
namespace {

using base::DType;
using ir::Shape;
using ir::TensorType;
using MaybeShape = std::optional<Shape>;

template <size_t N>
bool is_one_of(std::string_view overload, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), overload) != names.end();
}

// Element by element, but not of the operands' common sizes and types.
constexpr std::array<std::string_view, 8> kUneven = {"aten.glu.default",
                                                     "aten.glu_backward.default",
                                                     "aten.fill.Scalar",
                                                     "aten.fill.Tensor",
                                                     "aten.log_sigmoid_forward.default",
                                                     "aten.log_sigmoid_backward.default",
                                                     "aten._prelu_kernel_backward.default",
                                                     "aten.native_dropout.default"};

bool is_pointwise(std::string_view overload) {
  const ir::AtenInfo* info = ir::aten_info(overload);
  return info != nullptr && info->cls == ir::AtenClass::Pointwise && !is_one_of(overload, kUneven);
}

bool gives_truth(std::string_view overload) {
  constexpr std::array<std::string_view, 16> kStems = {
      "aten.eq.",          "aten.ne.",          "aten.ge.",         "aten.gt.",
      "aten.le.",          "aten.lt.",          "aten.isnan.",      "aten.isinf.",
      "aten.isfinite.",    "aten.logical_and.", "aten.logical_or.", "aten.logical_xor.",
      "aten.logical_not.", "aten.isneginf.",    "aten.isposinf.",   "aten.signbit."};
  return std::any_of(kStems.begin(), kStems.end(),
                     [overload](std::string_view stem) { return overload.starts_with(stem); });
}

MaybeShape broadcast(const std::vector<const TensorType*>& operands) {
  Shape shape;
  for (const TensorType* operand : operands) {
    const Shape& other = operand->shape;
    if (other.size() > shape.size()) shape.insert(shape.begin(), other.size() - shape.size(), 1);
    const size_t missing = shape.size() - other.size();
    for (size_t i = 0; i < other.size(); ++i) {
      int64_t& size = shape[i + missing];
      if (size != other[i] && size != 1 && other[i] != 1) return std::nullopt;
      if (size == 1) size = other[i];
    }
  }
  return operands.empty() ? std::nullopt : MaybeShape(std::move(shape));
}

// Tensors with dims decide before those without, floating ones before others.
std::optional<DType> promoted(const std::vector<const TensorType*>& operands) {
  std::optional<DType> common;
  for (const TensorType* operand : operands) {
    if (operand->shape.empty() || !base::is_floating(operand->dtype)) continue;
    if (common && *common != operand->dtype) return std::nullopt;
    common = operand->dtype;
  }
  return common;
}

KnownResult pointwise(const Call& call) {
  const bool truth = gives_truth(call.overload);
  return {broadcast(call.operands), truth ? DType::Bool : promoted(call.operands)};
}

// Results of the sizes and type of one argument.
struct Alike {
  std::string_view overload, argument;
  size_t results = 1;
};
constexpr std::array<Alike, 34> kAlike = {{{"aten.clone.default", "self"},
                                           {"aten.flip.default", "self"},
                                           {"aten.roll.default", "self"},
                                           {"aten.tril.default", "self"},
                                           {"aten.triu.default", "self"},
                                           {"aten.copy.default", "self"},
                                           {"aten.fill.Scalar", "self"},
                                           {"aten.fill.Tensor", "self"},
                                           {"aten.zero.default", "self"},
                                           {"aten.lift_fresh_copy.default", "self"},
                                           {"aten.as_strided_scatter.default", "self"},
                                           {"aten.diagonal_scatter.default", "self"},
                                           {"aten.select_scatter.default", "self"},
                                           {"aten.slice_scatter.default", "self"},
                                           {"aten.index_add.default", "self"},
                                           {"aten.index_copy.default", "self"},
                                           {"aten.index_fill.int_Scalar", "self"},
                                           {"aten.index_put.default", "self"},
                                           {"aten._unsafe_index_put.default", "self"},
                                           {"aten.scatter.src", "self"},
                                           {"aten.scatter.value", "self"},
                                           {"aten.scatter_add.default", "self"},
                                           {"aten.scatter_reduce.two", "self"},
                                           {"aten.sort.default", "self"},
                                           {"aten.sort.stable", "self"},
                                           {"aten.cummax.default", "self"},
                                           {"aten.log_sigmoid_forward.default", "self"},
                                           {"aten.log_sigmoid_backward.default", "self"},
                                           {"aten._prelu_kernel_backward.default", "self", 2},
                                           {"aten.native_dropout.default", "input"},
                                           {"aten.native_layer_norm.default", "input"},
                                           {"aten.native_group_norm.default", "input"},
                                           {"aten.nll_loss_backward.default", "self"},
                                           {"aten.nll_loss2d_backward.default", "self"}}};

// Results of the sizes of one argument, whose type an argument `dtype` may change.
constexpr std::array<std::string_view, 5> kConverted = {
    "aten._to_copy.default", "aten.empty_like.default", "aten.full_like.default",
    "aten.ones_like.default", "aten.zeros_like.default"};

std::optional<KnownResult> alike(const Call& call, size_t index) {
  for (const Alike& row : kAlike) {
    const TensorType* operand =
        row.overload == call.overload && index < row.results ? call.tensor(row.argument) : nullptr;
    if (operand != nullptr) return KnownResult{operand->shape, operand->dtype};
  }
  const TensorType* self = is_one_of(call.overload, kConverted) ? call.tensor("self") : nullptr;
  if (self == nullptr) return std::nullopt;
  return KnownResult{self->shape, call.args.dtype("dtype").value_or(self->dtype)};
}

// Products, named by their first matrix; what is added does not change the sizes.
std::optional<KnownResult> product(const Call& call) {
  const std::string_view op = call.overload;
  const auto pair = [&call](std::string_view a, std::string_view b) {
    return std::pair(call.tensor(a), call.tensor(b));
  };
  if (op == "aten.mm.default" || op == "aten.addmm.default") {
    const auto [a, b] = op == "aten.mm.default" ? pair("self", "mat2") : pair("mat1", "mat2");
    if (!a || !b || a->shape.size() != 2 || b->shape.size() != 2) return std::nullopt;
    return KnownResult{Shape{a->shape[0], b->shape[1]}, a->dtype};
  }
  if (op == "aten.bmm.default" || op == "aten.baddbmm.default") {
    const auto [a, b] = op == "aten.bmm.default" ? pair("self", "mat2") : pair("batch1", "batch2");
    if (!a || !b || a->shape.size() != 3 || b->shape.size() != 3) return std::nullopt;
    return KnownResult{Shape{a->shape[0], a->shape[1], b->shape[2]}, a->dtype};
  }
  if (op == "aten.mv.default" || op == "aten.addmv.default") {
    const TensorType* matrix = call.tensor(op == "aten.mv.default" ? "self" : "mat");
    if (!matrix || matrix->shape.size() != 2) return std::nullopt;
    return KnownResult{Shape{matrix->shape[0]}, matrix->dtype};
  }
  if (op == "aten.dot.default" || op == "aten.vdot.default") return KnownResult{Shape{}, {}};
  return std::nullopt;
}

// Whether the rows of the first matrix are as long as the columns of the second.
bool matrices_fit(const Call& call) {
  struct Pair {
    std::string_view overload, first, second;
  };
  constexpr std::array<Pair, 4> kPairs = {{{"aten.mm.default", "self", "mat2"},
                                           {"aten.addmm.default", "mat1", "mat2"},
                                           {"aten.bmm.default", "self", "mat2"},
                                           {"aten.baddbmm.default", "batch1", "batch2"}}};
  for (const Pair& pair : kPairs) {
    const TensorType *a = call.tensor(pair.first), *b = call.tensor(pair.second);
    if (pair.overload != call.overload || !a || !b || !product(call)) continue;
    const Shape &x = a->shape, &y = b->shape;
    return x.back() == y[y.size() - 2] && (x.size() == 2 || x[0] == y[0]);
  }
  return true;
}

// Reductions over dims. Without dims all are meant.
constexpr std::array<std::string_view, 15> kReductions = {"aten.sum.dim_IntList",
                                                          "aten.mean.dim",
                                                          "aten.amax.default",
                                                          "aten.amin.default",
                                                          "aten.all.dim",
                                                          "aten.any.dim",
                                                          "aten.max.dim",
                                                          "aten.min.dim",
                                                          "aten.argmax.default",
                                                          "aten.argmin.default",
                                                          "aten.var.correction",
                                                          "aten.std.correction",
                                                          "aten.var_mean.correction",
                                                          "aten.prod.dim_int",
                                                          "aten.logsumexp.default"};
constexpr std::array<std::string_view, 8> kWholeReductions = {
    "aten.sum.default", "aten.mean.default", "aten.all.default",  "aten.any.default",
    "aten.max.default", "aten.min.default",  "aten.prod.default", "aten.norm.Scalar"};

MaybeShape reduced(const Call& call) {
  const TensorType* self = call.tensor("self");
  if (self == nullptr) return std::nullopt;
  const bool all = call.args.find("dim") == nullptr;
  const auto dims = call.args.integers("dim");
  if (!all && !dims) return std::nullopt;
  std::vector<bool> chosen(self->shape.size(), all || dims->empty());
  for (const int64_t given : dims.value_or(std::vector<int64_t>{})) {
    const auto dim = wrapped_dim(given, self->shape.size());
    if (!dim) return std::nullopt;
    if (!self->shape.empty()) chosen[*dim] = true;
  }
  const bool keeps = call.args.flag("keepdim").value_or(false);
  Shape shape;
  for (size_t i = 0; i < self->shape.size(); ++i) {
    if (!chosen[i]) shape.push_back(self->shape[i]);
    if (chosen[i] && keeps) shape.push_back(1);
  }
  return shape;
}

// Of floating numbers; what the others become is left open.
std::optional<DType> reduced_dtype(const Call& call) {
  const TensorType* self = call.tensor("self");
  if (const auto given = call.args.dtype("dtype")) return given;
  if (self == nullptr || !base::is_floating(self->dtype)) return std::nullopt;
  if (call.overload.starts_with("aten.all.") || call.overload.starts_with("aten.any."))
    return DType::Bool;
  if (call.overload.starts_with("aten.arg")) return DType::I64;
  return self->dtype;
}

// Sizes that an argument gives; the type is that of `typed`, unless an argument says it.
struct Sized {
  std::string_view overload, sizes, typed;
};
constexpr std::array<Sized, 14> kSized = {
    {{"aten.slice_backward.default", "input_sizes", "grad_output"},
     {"aten.select_backward.default", "input_sizes", "grad_output"},
     {"aten.diagonal_backward.default", "input_sizes", "grad_output"},
     {"aten.unfold_backward.default", "input_sizes", "grad_in"},
     {"aten.index_select_backward.default", "self_sizes", "grad"},
     {"aten.full.default", "size", ""},
     {"aten.zeros.default", "size", ""},
     {"aten.ones.default", "size", ""},
     {"aten.empty.memory_format", "size", ""},
     {"aten.new_empty.default", "size", "self"},
     {"aten.new_full.default", "size", "self"},
     {"aten.new_ones.default", "size", "self"},
     {"aten.new_zeros.default", "size", "self"},
     {"aten.new_empty_strided.default", "size", "self"}}};

std::optional<KnownResult> sized(const Call& call) {
  for (const Sized& row : kSized) {
    if (row.overload != call.overload) continue;
    KnownResult known{call.args.integers(row.sizes), call.args.dtype("dtype")};
    const TensorType* typed = call.tensor(row.typed);
    if (!known.dtype && typed != nullptr) known.dtype = typed->dtype;
    return known;
  }
  return std::nullopt;
}

MaybeShape concatenated(const Call& call) {
  Shape shape;
  for (const TensorType* operand : call.operands) {
    if (operand->shape == Shape{0}) continue;  // PyTorch takes an empty vector next to any tensor
    if (shape.empty()) {
      shape = operand->shape;
      continue;
    }
    const auto given = call.args.integer("dim", 0);
    const auto dim = given ? wrapped_dim(*given, shape.size()) : std::nullopt;
    if (!dim || operand->shape.size() != shape.size()) return std::nullopt;
    shape[*dim] += operand->shape[*dim];
  }
  return shape.empty() ? std::nullopt : MaybeShape(std::move(shape));
}

std::optional<KnownResult> indexed(const Call& call) {
  if (call.overload == "aten.embedding.default") {
    const TensorType *weight = call.tensor("weight"), *indices = call.tensor("indices");
    if (!weight || !indices || weight->shape.size() != 2) return std::nullopt;
    Shape shape = indices->shape;
    shape.push_back(weight->shape[1]);
    return KnownResult{std::move(shape), weight->dtype};
  }
  if (call.overload == "aten.embedding_dense_backward.default") {
    const TensorType* grad = call.tensor("grad_output");
    const auto rows = call.args.integer("num_weights");
    if (!grad || grad->shape.empty() || !rows) return std::nullopt;
    return KnownResult{Shape{*rows, grad->shape.back()}, grad->dtype};
  }
  const TensorType *self = call.tensor("self"), *index = call.tensor("index");
  if (call.overload != "aten.gather.default" || !self || !index) return std::nullopt;
  return KnownResult{index->shape, self->dtype};
}

bool all_contiguous(const Call& call) {
  return std::all_of(call.operands.begin(), call.operands.end(),
                     [](const TensorType* operand) { return operand->is_contiguous(); });
}

// Results that are contiguous whatever the operands are.
bool is_contiguous_always(const Call& call) {
  constexpr std::array<std::string_view, 2> kFilled = {"aten.embedding.default",
                                                       "aten.embedding_dense_backward.default"};
  const ir::Arg* format = call.args.find("memory_format");
  const bool contiguous_format =
      format != nullptr && format->value == ir::Arg::Value(ir::MemoryFormatArg{1});
  if (call.overload == "aten.clone.default") return contiguous_format;
  if (call.overload == "aten.new_empty_strided.default") return false;
  return product(call).has_value() || is_one_of(call.overload, kFilled) ||
         is_one_of(call.overload, kReductions) ||
         (sized(call).has_value() && (format == nullptr || contiguous_format));
}

// Results that are contiguous where all operands are.
bool is_contiguous_of_contiguous(const Call& call) {
  const ir::Arg* format = call.args.find("memory_format");
  if (format != nullptr && format->value != ir::Arg::Value(ir::MemoryFormatArg{1}) &&
      format->value != ir::Arg::Value(ir::MemoryFormatArg{4})) {
    return false;
  }
  return is_pointwise(call.overload) || alike(call, 0).has_value() ||
         call.overload == "aten.cat.default";
}

}  // namespace

const TensorType* Call::tensor(std::string_view name) const {
  const ir::Arg* arg = args.find(name);
  const auto* operand = arg == nullptr ? nullptr : std::get_if<ir::OperandRef>(&arg->value);
  if (operand == nullptr || operand->index < 0) return nullptr;
  return operands[static_cast<size_t>(operand->index)];
}

bool operands_fit(const Call& call) {
  if (is_pointwise(call.overload) && !call.operands.empty())
    return broadcast(call.operands).has_value();
  return matrices_fit(call);
}

KnownResult known_result(const Call& call, size_t index) {
  if (const auto known = alike(call, index)) return *known;
  if (index > 0) return {};
  if (is_pointwise(call.overload)) return pointwise(call);
  if (is_one_of(call.overload, kReductions)) return {reduced(call), reduced_dtype(call)};
  if (is_one_of(call.overload, kWholeReductions)) return {Shape{}, reduced_dtype(call)};
  if (call.overload == "aten.cat.default") return {concatenated(call), {}};
  if (const auto known = product(call)) return *known;
  if (const auto known = sized(call)) return *known;
  return indexed(call).value_or(KnownResult{});
}

std::optional<ir::Strides> known_strides(const Call& call, size_t index, const Shape& shape) {
  if (call.overload == "aten.new_empty_strided.default") return call.args.integers("stride");
  if (index == 0 &&
      (is_contiguous_always(call) || (is_contiguous_of_contiguous(call) && all_contiguous(call)))) {
    return ir::contiguous_strides(shape);
  }
  return std::nullopt;
}

}  // namespace dc::frontend
