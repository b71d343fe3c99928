// Element types, with the numbers that plans and archives share.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dc::base {

// Values are those of PyTorch's export schema (ScalarType), so archives need no second table.
enum class DType : uint8_t {
  U8 = 1,
  I8 = 2,
  I16 = 3,
  I32 = 4,
  I64 = 5,
  F16 = 6,
  F32 = 7,
  F64 = 8,
  Bool = 12,
  BF16 = 13,
};

constexpr int64_t byte_size(DType dtype) {  // bytes per element
  switch (dtype) {
    case DType::U8:
    case DType::I8:
    case DType::Bool:
      return 1;
    case DType::I16:
    case DType::F16:
    case DType::BF16:
      return 2;
    case DType::I32:
    case DType::F32:
      return 4;
    case DType::I64:
    case DType::F64:
      return 8;
  }
  return 1;
}
std::string_view name(DType dtype);                      // "f32", "bf16", "i64", "bool"
std::optional<DType> dtype_from_name(std::string_view);  // inverse of name()
std::optional<DType> dtype_from_export(
    int64_t value);  // PyTorch's export number; empty if not supported
bool is_floating(DType dtype);
// The bits of the exponent in an element: all set in infinities and NaN. 0: not floating.
uint64_t exponent_bits(DType dtype);

}  // namespace dc::base
