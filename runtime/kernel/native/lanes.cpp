#include "runtime/kernel/native/lanes.h"

#include "runtime/kernel/native/fill.h"

namespace dc::runtime::kernel::native {
namespace {

using base::DType;

template <typename L, typename E>
DC_VECTOR_CLONES void load_dense(L* __restrict lanes, const E* __restrict from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) lanes[i] = store<L>(native::load(from[i]));
}
template <typename L, typename E>
DC_VECTOR_CLONES void store_dense(E* __restrict to, const L* __restrict lanes, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = store<E>(native::load(lanes[i]));
}

template <typename L, typename E>
void load_lanes(void* lanes, const void* memory, int64_t stride, int64_t n) {
  auto* to = static_cast<L*>(lanes);
  const auto* from = static_cast<const E*>(memory);
  if (stride == 1) return load_dense(to, from, n);
  if (stride == 0) return fill_dense(to, store<L>(native::load(*from)), n);
  for (int64_t i = 0; i < n; ++i) to[i] = store<L>(native::load(from[i * stride]));
}

template <typename L, typename E>
void store_lanes(void* memory, int64_t stride, const void* lanes, int64_t n) {
  auto* to = static_cast<E*>(memory);
  const auto* from = static_cast<const L*>(lanes);
  if (stride == 1) return store_dense(to, from, n);
  for (int64_t i = 0; i < n; ++i) to[i * stride] = store<E>(native::load(from[i]));
}

template <typename E>
DC_VECTOR_CLONES void round_dense(float* __restrict to, const float* __restrict from, int64_t n) {
  if (n == kLoopLanes) {
    for (int64_t i = 0; i < kLoopLanes; ++i) to[i] = native::load(store<E>(from[i]));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = native::load(store<E>(from[i]));
  }
}
template <typename E>
void round_lanes(const void*, void* out, const void* const* in, int64_t n) {
  round_dense<E>(static_cast<float*>(out), static_cast<const float*>(in[0]), n);
}

// Calls f with a value of the type that `dtype` has in memory.
template <typename F>
auto with_element(DType dtype, F&& f) {
  switch (dtype) {
    case DType::U8:
      return f(uint8_t{});
    case DType::I8:
      return f(int8_t{});
    case DType::I16:
      return f(int16_t{});
    case DType::I32:
      return f(int32_t{});
    case DType::I64:
      return f(int64_t{});
    case DType::F16:
      return f(F16{});
    case DType::F32:
      return f(float{});
    case DType::F64:
      return f(double{});
    case DType::Bool:
      return f(Bool{});
    case DType::BF16:
      return f(BF16{});
  }
  return f(float{});
}

template <typename F>
auto with_lane(Lane lane, F&& f) {
  switch (lane) {
    case Lane::F32:
      return f(float{});
    case Lane::F64:
      return f(double{});
    case Lane::I64:
      return f(int64_t{});
    case Lane::Bool:
      return f(Bool{});
  }
  return f(float{});
}

}  // namespace

LoadLanes loader(Lane lane, DType dtype) {
  return with_lane(lane, [dtype]<typename L>(L) {
    return with_element(dtype, []<typename E>(E) -> LoadLanes { return load_lanes<L, E>; });
  });
}

StoreLanes storer(Lane lane, DType dtype) {
  return with_lane(lane, [dtype]<typename L>(L) {
    return with_element(dtype, []<typename E>(E) -> StoreLanes { return store_lanes<L, E>; });
  });
}

LoopOverLanes rounder(Lane lane, DType dtype) {
  if (lane != Lane::F32) return nullptr;
  if (dtype == DType::BF16) return round_lanes<BF16>;
  return dtype == DType::F16 ? round_lanes<F16> : nullptr;
}

}  // namespace dc::runtime::kernel::native
