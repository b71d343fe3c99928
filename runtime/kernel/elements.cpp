#include "runtime/kernel/elements.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "src/base/shape.h"

namespace dc::runtime::kernel {
namespace {

using base::DType;

float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float from_f16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  float value = 0;
  if (exponent == 31) {
    value = fraction ? NAN : INFINITY;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    value = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  }
  return bits & 0x8000 ? -value : value;
}

uint16_t to_f16(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7E00;
  if (size >= 65520.0f) return sign | 0x7C00;
  if (size < 0x1p-14f) {  // the grid of subnormals
    return static_cast<uint16_t>(sign | static_cast<int>(std::nearbyint(size * 0x1p24f)));
  }
  int exponent = 0;
  const float fraction = std::frexp(size, &exponent);  // [0.5, 1)
  int mantissa = static_cast<int>(std::nearbyint(std::ldexp(fraction, 11)));
  if (mantissa == 2048) {
    mantissa = 1024;
    ++exponent;
  }
  return static_cast<uint16_t>(sign | ((exponent + 14) << 10) | (mantissa - 1024));
}

// To float with the last bit telling whether anything was lost, so that a second rounding to a
// narrower type equals a single one.
float to_odd(double value) {
  const float near = static_cast<float>(value);
  if (static_cast<double>(near) == value || !std::isfinite(near)) return near;
  auto bits = std::bit_cast<uint32_t>(near);
  const bool away = std::fabs(static_cast<double>(near)) > std::fabs(value);
  if (away) --bits;
  return std::bit_cast<float>(bits | 1u);
}

template <typename T>
T read(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof(T));
  return value;
}
template <typename T>
void write(void* element, T value) {
  std::memcpy(element, &value, sizeof(T));
}

}  // namespace

double load_real(DType dtype, const void* element) {
  switch (dtype) {
    case DType::F32:
      return static_cast<double>(read<float>(element));
    case DType::F64:
      return read<double>(element);
    case DType::BF16:
      return static_cast<double>(from_bf16(read<uint16_t>(element)));
    case DType::F16:
      return static_cast<double>(from_f16(read<uint16_t>(element)));
    case DType::U8:
    case DType::I8:
    case DType::I16:
    case DType::I32:
    case DType::I64:
    case DType::Bool:
      return static_cast<double>(load_integer(dtype, element));
  }
  return 0;
}

int64_t load_integer(DType dtype, const void* element) {
  switch (dtype) {
    case DType::U8:
      return read<uint8_t>(element);
    case DType::I8:
      return read<int8_t>(element);
    case DType::I16:
      return read<int16_t>(element);
    case DType::I32:
      return read<int32_t>(element);
    case DType::I64:
      return read<int64_t>(element);
    case DType::Bool:
      return read<uint8_t>(element) != 0;
    case DType::F16:
    case DType::F32:
    case DType::F64:
    case DType::BF16:
      return static_cast<int64_t>(load_real(dtype, element));
  }
  return 0;
}

void store_real(DType dtype, void* element, double value) {
  switch (dtype) {
    case DType::F32:
      return write(element, static_cast<float>(value));
    case DType::F64:
      return write(element, value);
    case DType::BF16:
      return write(element, to_bf16(to_odd(value)));
    case DType::F16:
      return write(element, to_f16(to_odd(value)));
    case DType::U8:
    case DType::I8:
    case DType::I16:
    case DType::I32:
    case DType::I64:
      return store_integer(dtype, element, static_cast<int64_t>(value));
    case DType::Bool:
      return write(element, static_cast<uint8_t>(value != 0));
  }
}

void store_integer(DType dtype, void* element, int64_t value) {
  switch (dtype) {
    case DType::U8:
    case DType::I8:
      return write(element, static_cast<uint8_t>(value));
    case DType::I16:
      return write(element, static_cast<uint16_t>(value));
    case DType::I32:
      return write(element, static_cast<uint32_t>(value));
    case DType::I64:
      return write(element, value);
    case DType::Bool:
      return write(element, static_cast<uint8_t>(value != 0));
    case DType::F16:
    case DType::F32:
    case DType::F64:
    case DType::BF16:
      return store_real(dtype, element, static_cast<double>(value));
  }
}

void convert(DType from, const void* src, DType through, DType to, void* dst, int64_t count) {
  const int64_t from_bytes = base::byte_size(from), to_bytes = base::byte_size(to);
  const bool widening = through == from || through == to;
  if (from == to && widening) {
    std::memcpy(dst, src, static_cast<size_t>(count * to_bytes));
    return;
  }
  const auto* in = static_cast<const std::byte*>(src);
  auto* out = static_cast<std::byte*>(dst);
  const bool integers = !base::is_floating(from) && !base::is_floating(to);
  for (int64_t i = 0; i < count; ++i, in += from_bytes, out += to_bytes) {
    if (integers) {
      store_integer(to, out, load_integer(from, in));
      continue;
    }
    double value = load_real(from, in);
    if (!widening) {
      uint64_t rounded = 0;
      store_real(through, &rounded, value);
      value = load_real(through, &rounded);
    }
    store_real(to, out, value);
  }
}

ElementWalk::ElementWalk(std::span<const int64_t> sizes, std::span<const int64_t> strides)
    : sizes_(sizes),
      strides_(strides),
      numel_(base::numel(sizes)),
      contiguous_(base::is_contiguous(sizes, strides)) {}

int64_t ElementWalk::offset(int64_t index) const {
  if (contiguous_) return index;
  int64_t offset = 0;
  for (size_t d = sizes_.size(); d-- > 0;) {
    offset += index % sizes_[d] * strides_[d];
    index /= sizes_[d];
  }
  return offset;
}

}  // namespace dc::runtime::kernel
