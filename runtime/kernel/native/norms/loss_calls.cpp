#include "runtime/kernel/native/norms/loss_calls.h"

#include <vector>

namespace dc::runtime::kernel::native {
namespace {

bool is_f32_or_16_bits(base::DType dtype) {
  return base::is_floating(dtype) && dtype != base::DType::F64;
}

// Of [rows] or [images, height, width]; of self and its gradient without the dim of the classes.
scalar::RowPlaces rows_of(Call& call, const BoundTensor& tensor, bool has_classes) {
  std::vector<int64_t> sizes(tensor.sizes.begin(), tensor.sizes.end());
  std::vector<int64_t> strides(tensor.strides.begin(), tensor.strides.end());
  if (has_classes) {
    sizes.erase(sizes.begin() + 1);
    strides.erase(strides.begin() + 1);
  }
  if (sizes.size() == 1) return {std::max<int64_t>(sizes[0], 1), 0, strides[0]};
  call.require(sizes[1] == 1 || sizes[2] == 1 || strides[1] == sizes[2] * strides[2],
               "the rows of an image do not follow each other");
  return {std::max<int64_t>(sizes[1] * sizes[2], 1), strides[0],
          sizes[2] == 1 ? strides[1] : strides[2]};
}

// What both directions have; `loss` and `total` are checked against it.
NllLossCall read_rows(Call& call, const BoundTensor& loss, std::optional<BoundTensor> total) {
  NllLossCall of;
  of.self = call.tensor("self");
  of.target = call.tensor("target");
  of.weight = call.tensor_if("weight");
  of.reduction = call.integer("reduction", kMeanOfRows);
  of.ignored = call.integer("ignore_index", -100);
  of.loss = loss;
  of.total = total;
  const size_t dims = of.self.sizes.size();
  std::vector<int64_t> rows(of.self.sizes.begin(), of.self.sizes.end());
  if (dims > 1) rows.erase(rows.begin() + 1);
  call.require((dims == 2 || dims == 4) && std::ranges::equal(of.target.sizes, rows) &&
                   of.target.dtype == base::DType::I64,
               "only rows or images of classes with one class number each have a kernel");
  call.require(is_f32_or_16_bits(of.self.dtype), "it does not take this element type");
  call.require(
      of.reduction == kLossOfEachRow || of.reduction == kMeanOfRows || of.reduction == kSumOfRows,
      "'reduction' is none that it knows");
  if (!call.ok()) return of;
  call.require(!of.weight || (of.weight->sizes.size() == 1 && of.weight->sizes[0] == of.classes()),
               "'weight' must have one number per class");
  const bool is_each = of.reduction == kLossOfEachRow;
  call.require(is_each ? std::ranges::equal(loss.sizes, rows) : loss.numel() == 1,
               "the loss or its gradient has another shape");
  call.require(!of.total || of.total->numel() == 1, "the sum of weights must be one number");
  if (!call.ok()) return of;
  of.self_rows = rows_of(call, of.self, true);
  of.target_rows = rows_of(call, of.target, false);
  if (is_each) of.loss_rows = rows_of(call, loss, false);
  return of;
}

// The attribute of the operators of ours: whether the loss is a mean.
bool read_is_mean(Call& call) {
  const int64_t reduction = call.integer("reduction");
  call.require(reduction == kMeanOfRows || reduction == kSumOfRows,
               "'reduction' must be 1, a mean, or 2, a sum");
  return reduction == kMeanOfRows;
}

CrossEntropyCall read_class_rows(Call& call) {
  CrossEntropyCall of;
  of.logits = call.operand(0);
  of.target = call.operand(1, base::DType::I64);
  of.rows = of.target.count;
  of.classes = call.columns(0);
  of.ignored = call.integer("ignored");
  of.is_mean = read_is_mean(call);
  call.require(is_f32_or_16_bits(of.logits.dtype), "the logits must be f32, bf16 or f16");
  call.require(of.classes > 0 && of.logits.count % of.classes == 0 &&
                   of.logits.count / of.classes == of.rows,
               "the logits must be a row of classes for each target");
  return of;
}

void check_numbers(Call& call, const CrossEntropyCall& of) {
  bool are_f32 = true;
  for (const Dense& numbers : {of.loss, of.total, of.largest, of.log_of_sum})
    are_f32 = are_f32 && numbers.dtype == base::DType::F32;
  call.require(are_f32 && of.loss.count == 1 && of.total.count == 1 &&
                   of.largest.count == of.rows && of.log_of_sum.count == of.rows,
               "there must be f32 numbers: the loss and the sum of weights, and two of each row");
}

void check_layer(Call& call, const OutputLayerCall& of) {
  const base::OutputLayer& layer = of.layer;
  call.require(layer.dtype == base::DType::F32 || layer.dtype == base::DType::BF16,
               "the hidden states must be f32 or bf16");
  for (const Dense& other : {of.weight, of.hidden_gradient, of.weight_gradient})
    call.require(other.dtype == layer.dtype, "the element types differ");
  call.require(of.hidden.count > 0 && of.weight.count > 0 && layer.depth > 0,
               "a matrix has no elements");
  if (!call.ok()) return;
  call.require(call.columns(1) == layer.depth && of.hidden.count % layer.depth == 0 &&
                   of.hidden.count / layer.depth == layer.rows &&
                   of.weight.count % layer.depth == 0,
               "there must be hidden states for each target, and weights as deep as they");
  call.require(
      of.hidden_gradient.count == of.hidden.count && of.weight_gradient.count == of.weight.count,
      "the gradients must have the sizes of the hidden states and of the weights");
  for (const Dense& number : {of.gradient, of.loss, of.total})
    call.require(number.dtype == base::DType::F32 && number.count == 1,
                 "the loss, its gradient and the sum of weights must be f32 numbers");
}

void check_chunk(Call& call, const base::OutputLayer& layer, const base::LogitChunk& chunk) {
  constexpr int64_t kMostParts = 1024;  // each has separate kernels
  const auto is_part = [](int64_t part, int64_t size) {
    return part >= 1 && part <= size && base::parts_of(size, part) <= kMostParts;
  };
  call.require(is_part(chunk.rows, layer.rows) && is_part(chunk.classes, layer.classes) &&
                   (chunk.rows == layer.rows || chunk.classes == layer.classes),
               "'rows' and 'classes' must be at most 1024 parts of all rows or of all classes");
}

}  // namespace

NllLossCall read_nll_loss(Call& call) {
  const BoundTensor loss = call.output(0);
  return read_rows(call, loss, call.has_result(1) ? std::optional(call.output(1)) : std::nullopt);
}

NllLossCall read_nll_loss_gradient(Call& call) {
  NllLossCall of = read_rows(call, call.tensor("grad_output"), call.tensor("total_weight"));
  of.to = call.output(0);
  call.same_sizes(of.self, *of.to);
  if (call.ok()) of.to_rows = rows_of(call, *of.to, true);
  return of;
}

CrossEntropyCall read_cross_entropy(Call& call) {
  CrossEntropyCall of = read_class_rows(call);
  of.loss = call.result(0);
  of.total = call.result(1);
  of.largest = call.result(2);
  of.log_of_sum = call.result(3);
  check_numbers(call, of);
  return of;
}

CrossEntropyCall read_cross_entropy_gradient(Call& call) {
  CrossEntropyCall of = read_class_rows(call);
  of.loss = call.operand(2);
  of.total = call.operand(3);
  of.largest = call.operand(4);
  of.log_of_sum = call.operand(5);
  check_numbers(call, of);
  return of;
}

OutputLayerCall read_output_layer(Call& call) {
  OutputLayerCall of;
  of.hidden = call.operand(0);
  of.weight = call.operand(1);
  of.target = call.operand(2, base::DType::I64);
  of.gradient = call.operand(3, base::DType::F32);
  of.loss = call.result(0);
  of.total = call.result(1);
  of.hidden_gradient = call.result(2);
  of.weight_gradient = call.result(3);
  of.layer = {of.target.count, 0, call.columns(0), of.hidden.dtype};
  of.chunk = {call.integer("rows"), call.integer("classes")};
  of.ignored = call.integer("ignored");
  of.is_mean = read_is_mean(call);
  if (!call.ok()) return of;
  check_layer(call, of);
  if (!call.ok()) return of;
  of.layer.classes = of.weight.count / of.layer.depth;
  check_chunk(call, of.layer, of.chunk);
  return of;
}

}  // namespace dc::runtime::kernel::native
