// Lanes: the few types that kernels of aten.* compute with, and how elements in memory become
// lanes.
//
// f32 is computed in f32; bf16 and f16 too, rounded once when the result is stored; f64 in f64;
// integers in int64 (the low bits of what wraps are right); bool as 0 or 1.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "runtime/kernel/native/convert.h"
#include "src/base/dtype.h"

namespace dc::runtime::kernel::native {

enum class Lane : uint8_t { F32, F64, I64, Bool };

inline Lane lane_of(base::DType dtype) {
  if (dtype == base::DType::F64) return Lane::F64;
  if (base::is_floating(dtype)) return Lane::F32;
  return dtype == base::DType::Bool ? Lane::Bool : Lane::I64;
}
template <typename T>
inline constexpr Lane kLaneOf = std::is_same_v<T, float>    ? Lane::F32
                                : std::is_same_v<T, double> ? Lane::F64
                                : std::is_same_v<T, Bool>   ? Lane::Bool
                                                            : Lane::I64;

// What holds a lane's elements as they are, so that nothing needs to be converted.
inline base::DType dtype_of(Lane lane) {
  switch (lane) {
    case Lane::F32:
      return base::DType::F32;
    case Lane::F64:
      return base::DType::F64;
    case Lane::I64:
      return base::DType::I64;
    case Lane::Bool:
      return base::DType::Bool;
  }
  return base::DType::F32;
}

// n elements from memory, `stride` elements apart, as lanes without gaps; and back.
using LoadLanes = void (*)(void* lanes, const void* memory, int64_t stride, int64_t n);
using StoreLanes = void (*)(void* memory, int64_t stride, const void* lanes, int64_t n);
LoadLanes loader(Lane lane, base::DType dtype);
StoreLanes storer(Lane lane, base::DType dtype);

// A loop over lanes without gaps: in[i][0] to in[i][n - 1] are the lanes of operand i. `context` is
// what the loop belongs to, as an operator with its numbers.
using LoopOverLanes = void (*)(const void* context, void* out, const void* const* in, int64_t n);
// For so many lanes the compiler knows the count.
inline constexpr int64_t kLoopLanes = 256;
// Rounds lanes of f32 to a type of 16 bits, as if they were stored and loaded; null for others.
LoopOverLanes rounder(Lane lane, base::DType dtype);
// One lane, rounded so.
template <typename T>
T rounded(T lane, base::DType dtype) {
  const LoopOverLanes round = rounder(kLaneOf<T>, dtype);
  if (round == nullptr) return lane;
  T result{};
  const void* const in[] = {&lane};
  round(nullptr, &result, in, 1);
  return result;
}

// Elements that are handled at once: a few arrays of this length stay in the first-level cache.
inline constexpr int64_t kBlock = 512;
// Calls f(first, count) for the blocks of a row of n elements.
template <typename F>
void in_blocks(int64_t n, F&& f) {
  for (int64_t first = 0; first < n; first += kBlock) f(first, std::min(kBlock, n - first));
}

// A strided operand whose rows are read as lanes. Without conversion and gaps the memory itself is
// used.
struct LaneReader {
  LaneReader() = default;
  LaneReader(Lane lane, base::DType dtype, int64_t stride)
      : load(loader(lane, dtype)),
        stride(stride),
        element(base::byte_size(dtype)),
        direct(stride == 1 && dtype_of(lane) == dtype) {}

  const void* read(void* buffer, const std::byte* row, int64_t first, int64_t n) const {
    const std::byte* from = row + first * stride * element;
    if (direct) return from;
    load(buffer, from, stride, n);
    return buffer;
  }

  LoadLanes load = nullptr;
  int64_t stride = 0, element = 0;
  bool direct = false;
};

}  // namespace dc::runtime::kernel::native
