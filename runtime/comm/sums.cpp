#include "runtime/comm/sums.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace dc::runtime::comm {
namespace {

constexpr int64_t kBlock =
    4096;  // elements: the f32 accumulator of a block stays in the first-level cache

struct F32 {
  using Stored = float;
  static float load(float value) { return value; }
};

struct BF16 {
  using Stored = uint16_t;
  static float load(uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

struct F16 {
  using Stored = uint16_t;
  // Exact for every half, without branches: the exponent is rebased, then infinities, NaNs and
  // subnormals are mended.
  static float load(uint16_t bits) {
    const uint32_t shifted = static_cast<uint32_t>(bits & 0x7fffu) << 13;
    const uint32_t exponent = shifted & 0x0f800000u;
    const uint32_t rebased = shifted + (112u << 23);
    const uint32_t special = rebased + (112u << 23);
    const float subnormal =
        std::bit_cast<float>(rebased + (1u << 23)) - std::bit_cast<float>(113u << 23);
    uint32_t result = exponent == 0x0f800000u ? special : rebased;
    result = exponent == 0 ? std::bit_cast<uint32_t>(subnormal) : result;
    return std::bit_cast<float>(result | static_cast<uint32_t>(bits & 0x8000u) << 16);
  }
};

// Every loop reads and writes the same index only, so an output that is one of the inputs is safe
// to vectorise.
template <typename T>
void convert(const typename T::Stored* a, int64_t n, float* out) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = T::load(a[i]);
}

template <typename T>
void add_two(const typename T::Stored* a, const typename T::Stored* b, int64_t n, float* out) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = T::load(a[i]) + T::load(b[i]);
}

template <typename T>
void add_to(const float* sum, const typename T::Stored* b, int64_t n, float* out) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = sum[i] + T::load(b[i]);
}

template <typename T>
void sum_blocks(std::span<const void* const> inputs, int64_t elements, float* output) {
  const auto at = [&](size_t rank, int64_t index) {
    return static_cast<const typename T::Stored*>(inputs[rank]) + index;
  };
  alignas(64) std::array<float, kBlock> sum;
  for (int64_t start = 0; start < elements; start += kBlock) {
    const int64_t n = std::min(kBlock, elements - start);
    float* out = output + start;
    if (inputs.size() == 1) {
      convert<T>(at(0, start), n, out);
      continue;
    }
    if (inputs.size() == 2) {
      add_two<T>(at(0, start), at(1, start), n, out);
      continue;
    }
    // The output may be an input that is still to be read, so only the last addition writes it.
    add_two<T>(at(0, start), at(1, start), n, sum.data());
    for (size_t rank = 2; rank + 1 < inputs.size(); ++rank) {
      add_to<T>(sum.data(), at(rank, start), n, sum.data());
    }
    add_to<T>(sum.data(), at(inputs.size() - 1, start), n, out);
  }
}

}  // namespace

bool can_sum(base::DType dtype) {
  return dtype == base::DType::F32 || dtype == base::DType::BF16 || dtype == base::DType::F16;
}

void sum_in_rank_order(std::span<const void* const> inputs, base::DType dtype, int64_t elements,
                       float* output) {
  if (elements <= 0) return;
  switch (dtype) {
    case base::DType::F32:
      if (inputs.size() == 1) {
        if (inputs[0] != output) std::memcpy(output, inputs[0], static_cast<size_t>(elements) * 4);
        return;
      }
      return sum_blocks<F32>(inputs, elements, output);
    case base::DType::BF16:
      return sum_blocks<BF16>(inputs, elements, output);
    case base::DType::F16:
      return sum_blocks<F16>(inputs, elements, output);
    default:
      return;  // refused by check_buffers before any rank moves
  }
}

}  // namespace dc::runtime::comm
