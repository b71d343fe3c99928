#include "src/frontend/kernel_types.h"

#include <array>

namespace dc::frontend {
namespace {

using base::DType;

bool is_half(std::optional<DType> dtype) { return dtype == DType::BF16 || dtype == DType::F16; }

// Forwards that return (output, mean, reciprocal deviation): at 1 and 2.
constexpr std::array<std::string_view, 6> kNorms = {
    "aten.native_layer_norm.default",
    "aten.native_group_norm.default",
    "aten._batch_norm_no_update.default",
    "aten._native_batch_norm_legit.no_stats",
    "aten._native_batch_norm_legit_functional.default",
    "aten._native_batch_norm_legit_no_training.default"};

bool is_norm(std::string_view overload) {
  for (const std::string_view norm : kNorms) {
    if (norm == overload) return true;
  }
  return false;
}

// 16-bit numbers with f32 weights, as autocast makes them, are summed and kept in f32.
std::optional<DType> statistics(const OperandType& operand) {
  if (!is_half(operand("input"))) return std::nullopt;
  for (const std::string_view name : {"weight", "bias", "running_mean", "running_var"}) {
    if (operand(name) == DType::F32) return DType::F32;
  }
  return std::nullopt;
}

}  // namespace

std::optional<DType> kernel_dtype(std::string_view overload, size_t index,
                                  const OperandType& operand) {
  if (is_norm(overload) && (index == 1 || index == 2)) return statistics(operand);
  if (overload == "aten._native_batch_norm_legit_functional.default" && index >= 3) {
    return operand(index == 3 ? "running_mean" : "running_var");
  }
  if (overload == "aten.native_group_norm_backward.default" && index == 0) return operand("input");
  if (overload == "aten._weight_norm_interface.default" && index == 1 && is_half(operand("v"))) {
    return DType::F32;
  }
  if (overload == "aten._scaled_dot_product_flash_attention_for_cpu.default" && index == 1 &&
      operand("query") == DType::F64) {
    return DType::F64;
  }
  return std::nullopt;
}

bool takes_kernel_types(std::string_view overload) {
  return overload.ends_with("_norm_backward.default") ||
         overload == "aten._weight_norm_interface_backward.default" ||
         overload == "aten._scaled_dot_product_flash_attention_for_cpu_backward.default";
}

}  // namespace dc::frontend
