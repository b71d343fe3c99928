#include "src/cost/output_layer.h"

#include "src/ir/ops.h"

namespace dc::cost {

using base::KernelTensors;

std::optional<base::OutputLayer> output_layer_of(const base::KernelSignature& kernel) {
  if (kernel.op() != ir::info(ir::OpKind::LinearCrossEntropy).kernel) return std::nullopt;
  const KernelTensors tensors = kernel.tensors();
  if (tensors.inputs.size() < 2) return std::nullopt;
  const std::span<const int64_t> hidden = tensors.inputs[0].shape, weight = tensors.inputs[1].shape;
  if (hidden.size() != 2 || weight.size() != 2) return std::nullopt;
  const base::OutputLayer layer{hidden[0], weight[0], hidden[1], tensors.inputs[0].dtype};
  const bool has_elements = layer.rows > 0 && layer.classes > 0 && layer.depth > 0;
  const bool fits = base::logit_scratch(layer, {layer.rows, layer.classes}).has_value();
  return has_elements && fits ? std::optional(layer) : std::nullopt;
}

OutputLayerWork work_of(const base::OutputLayer& layer) {
  constexpr int64_t kPasses = 3, kKernels = 4, kFlops = 6;
  const base::LogitChunk chunk = base::choose_logit_chunk(layer);
  const int64_t parts =
      base::parts_of(layer.rows, chunk.rows) * base::parts_of(layer.classes, chunk.classes);
  const int64_t logits = layer.rows * layer.classes;
  const auto flops = base::checked_mul(logits, kFlops * layer.depth);
  return {flops.value_or(INT64_MAX), kPasses * logits * base::byte_size(layer.dtype),
          kKernels * parts};
}

}  // namespace dc::cost
