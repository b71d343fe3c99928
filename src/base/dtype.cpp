#include "src/base/dtype.h"

#include <array>

#include "src/base/enum_names.h"

namespace dc::base {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  uint64_t exponent;  // its bits in an element; 0: not floating
};
constexpr std::array<Row, 10> kRows = {{
    {DType::U8, "u8", 0},
    {DType::I8, "i8", 0},
    {DType::I16, "i16", 0},
    {DType::I32, "i32", 0},
    {DType::I64, "i64", 0},
    {DType::F16, "f16", 0x7C00},
    {DType::F32, "f32", 0x7F800000},
    {DType::F64, "f64", 0x7FF0000000000000},
    {DType::Bool, "bool", 0},
    {DType::BF16, "bf16", 0x7F80},
}};

static_assert(kRows.size() == sparse_enum_count<DType, 64>(), "one row for each type");

const Row& row(DType dtype) {
  for (const Row& candidate : kRows) {
    if (candidate.dtype == dtype) return candidate;
  }
  return kRows[0];
}

}  // namespace

std::string_view name(DType dtype) { return row(dtype).name; }
bool is_floating(DType dtype) { return row(dtype).exponent != 0; }
uint64_t exponent_bits(DType dtype) { return row(dtype).exponent; }

std::optional<DType> dtype_from_name(std::string_view text) {
  for (const Row& candidate : kRows) {
    if (candidate.name == text) return candidate.dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_export(int64_t value) {
  for (const Row& candidate : kRows) {
    if (static_cast<int64_t>(candidate.dtype) == value) return candidate.dtype;
  }
  return std::nullopt;
}

}  // namespace dc::base
