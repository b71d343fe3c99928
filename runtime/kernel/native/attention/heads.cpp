#include "runtime/kernel/native/attention/heads.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/kernel/native/math.h"
#include "runtime/kernel/native/reductions/fold.h"
#include "runtime/kernel/native/vector_clones.h"
#include "src/base/attention_blocks.h"

namespace dc::runtime::kernel::native {
namespace {

constexpr int64_t kLanes = base::kAttentionLanes;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A mask with fewer dims, or dims of one element, stands for one of the scores' shape.
std::optional<BoundTensor> as_scores(const BoundTensor& mask, std::span<int64_t> sizes,
                                     std::span<int64_t> strides) {
  const size_t dims = mask.sizes.size();
  if (dims > sizes.size()) return std::nullopt;
  for (size_t d = 0; d < sizes.size(); ++d) {
    strides[d] = 0;
    if (d < sizes.size() - dims) continue;
    const size_t own = d - (sizes.size() - dims);
    if (mask.sizes[own] != 1 && mask.sizes[own] != sizes[d]) return std::nullopt;
    if (mask.sizes[own] != 1) strides[d] = mask.strides[own];
  }
  return BoundTensor{mask.data, mask.dtype, sizes, strides};
}

// Rows of n elements; those behind them in `to`, up to `width`, become zero.
template <typename To, typename From>
DC_VECTOR_CLONES void convert_rows(To* __restrict to, int64_t to_row, const From* from,
                                   int64_t from_row, int64_t rows, int64_t n, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, to += to_row, from += from_row) {
    for (int64_t i = 0; i < n; ++i) to[i] = native::store<To>(native::load(from[i]));
    for (int64_t i = n; i < width; ++i) to[i] = To{};
  }
}

}  // namespace

HeadRows::HeadRows(const BoundTensor& tensor)
    : data_(static_cast<std::byte*>(tensor.data)),
      element_(base::byte_size(tensor.dtype)),
      dtype_(tensor.dtype),
      is_dense_(tensor.strides[3] == 1 || tensor.sizes[3] == 1),
      load_(loader(Lane::F32, tensor.dtype)),
      store_(storer(Lane::F32, tensor.dtype)) {
  std::copy_n(tensor.sizes.begin(), 4, sizes_.begin());
  std::copy_n(tensor.strides.begin(), 4, strides_.begin());
}

void HeadRows::read(float* to, int64_t row, int64_t batch, int64_t head, int64_t first,
                    int64_t count) const {
  const std::byte* from = place(batch, head, first);
  const auto convert = [&](const auto* elements) {
    convert_rows(to, row, elements, strides_[2], count, sizes_[3], row);
  };
  if (is_dense_ && dtype_ == base::DType::F32) return convert(reinterpret_cast<const float*>(from));
  if (is_dense_ && dtype_ == base::DType::BF16) return convert(reinterpret_cast<const BF16*>(from));
  for (int64_t i = 0; i < count; ++i, to += row) {
    load_(to, place(batch, head, first + i), strides_[3], sizes_[3]);
    std::fill(to + sizes_[3], to + row, 0.0f);
  }
}

const float* HeadRows::part(float* buffer, int64_t batch, int64_t head, int64_t row, int64_t first,
                            int64_t count) const {
  const std::byte* from = place(batch, head, row) + first * strides_[3] * element_;
  if (is_dense_ && dtype_ == base::DType::F32 && count % kLanes == 0)
    return reinterpret_cast<const float*>(from);
  load_(buffer, from, strides_[3], count);
  std::fill(buffer + count, buffer + base::round_up(count, kLanes), 0.0f);
  return buffer;
}

void HeadRows::write(const float* from, int64_t row, int64_t batch, int64_t head, int64_t first,
                     int64_t count) const {
  if (data_ == nullptr) return;
  std::byte* to = place(batch, head, first);
  const auto convert = [&](auto* elements) {
    convert_rows(elements, strides_[2], from, row, count, sizes_[3], sizes_[3]);
  };
  if (is_dense_ && dtype_ == base::DType::F32) return convert(reinterpret_cast<float*>(to));
  if (is_dense_ && dtype_ == base::DType::BF16) return convert(reinterpret_cast<BF16*>(to));
  for (int64_t i = 0; i < count; ++i, from += row)
    store_(place(batch, head, first + i), strides_[3], from, sizes_[3]);
}

DC_VECTOR_CLONES void scale_rows(const ScoreRows& scores, float scale, float* greatest) {
  using Max = MaxFold<float>;
  const ScoreRows s = scores;
  for (int64_t row = 0; row < s.count; ++row) {
    float* x = s.first + row * s.row;
    const int32_t seen = s.seen[row];
    float lanes[kLanes];
    for (float& lane : lanes) lane = Max::neutral();
    for (int32_t i = 0; i < seen; i += kLanes) {
      for (int32_t k = 0; k < kLanes; ++k) {
        const float scaled = x[i + k] * scale;
        x[i + k] = scaled;
        Max::join(lanes[k], i + k < seen ? scaled : Max::neutral());
      }
    }
    greatest[row] = join_lanes<kLanes, Max>(lanes);
  }
}

DC_VECTOR_CLONES float scale_and_add_row(float* __restrict x, float scale, const float* added,
                                         int64_t n) {
  using Max = MaxFold<float>;
  float lanes[kLanes];
  for (float& lane : lanes) lane = Max::neutral();
  for (int64_t i = 0; i < n; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) {
      const float sum = x[i + k] * scale + added[i + k];
      x[i + k] = sum;
      Max::join(lanes[k], i + k < n ? sum : Max::neutral());
    }
  }
  return join_lanes<kLanes, Max>(lanes);
}

namespace {

template <bool kRounds>
[[gnu::always_inline]] inline float rounded(float x) {
  return kRounds ? widen(narrow_bf16(x)) : x;
}

template <bool kRounds>
DC_VECTOR_CLONES void exp_rows_as(const ScoreRows& scores, const float* shifts, float* sums) {
  const ScoreRows s = scores;
  const auto keys = static_cast<int32_t>(s.keys);
  for (int64_t row = 0; row < s.count; ++row) {
    float* x = s.first + row * s.row;
    const float shift = shifts[row];
    const int32_t seen = shift == -kInfinity ? 0 : s.seen[row];
    float lanes[kLanes] = {};
    for (int32_t i = 0; i < keys; i += kLanes) {
      for (int32_t k = 0; k < kLanes; ++k) {
        const float power = math::exp(x[i + k] - shift);
        const float term = i + k < seen ? power : 0.0f;
        lanes[k] = lanes[k] + term;
        x[i + k] = rounded<kRounds>(term);
      }
    }
    sums[row] = join_lanes<kLanes, SumFold<float>>(lanes);
  }
}

template <bool kRounds>
DC_VECTOR_CLONES void gradient_rows_as(const ScoreRows& scores, const ScoreGradients& gradients) {
  const ScoreRows s = scores;
  const ScoreGradients g = gradients;
  const auto keys = static_cast<int32_t>(s.keys);
  for (int64_t row = 0; row < s.count; ++row) {
    float* __restrict x = s.first + row * s.row;
    float* __restrict d = g.first + row * s.row;
    const float shift = g.logsumexp[row], delta = g.deltas[row];
    const int32_t seen = shift == -kInfinity ? 0 : s.seen[row];
#pragma GCC ivdep
    for (int32_t i = 0; i < keys; i += kLanes) {
#pragma GCC ivdep
      for (int32_t k = 0; k < kLanes; ++k) {
        const float power = math::exp(x[i + k] * g.scale - shift);
        const float p = i + k < seen ? power : 0.0f;
        const float gradient = p * (d[i + k] - delta) * g.outer_scale;
        x[i + k] = rounded<kRounds>(p);
        d[i + k] = rounded<kRounds>(gradient);
      }
    }
  }
}

}  // namespace

void exp_rows(const ScoreRows& scores, const float* shifts, float* sums, bool rounds) {
  (rounds ? exp_rows_as<true> : exp_rows_as<false>)(scores, shifts, sums);
}
void gradient_rows(const ScoreRows& scores, const ScoreGradients& gradients, bool rounds) {
  (rounds ? gradient_rows_as<true> : gradient_rows_as<false>)(scores, gradients);
}

DC_VECTOR_CLONES void join_greatest(float* __restrict greatest, const float* own,
                                    float* __restrict factors, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float before = greatest[i];
    const float now = own[i] < before ? before : own[i];  // NaN stays
    const float factor = math::exp(before - now);
    factors[i] = before == -kInfinity ? 0.0f : factor;
    greatest[i] = now;
  }
}

DC_VECTOR_CLONES void join_sums(float* __restrict sums, const float* factors, const float* own,
                                int64_t n) {
  for (int64_t i = 0; i < n; ++i) sums[i] = sums[i] * factors[i] + own[i];
}

DC_VECTOR_CLONES void end_rows(float* sums, const float* greatest, float* factors, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const bool sees_none = sums[i] == 0;
    factors[i] = sees_none ? 1.0f : 1 / sums[i];
    const float logsumexp = greatest[i] + math::log(sums[i]);
    sums[i] = sees_none ? -kInfinity : logsumexp;
  }
}

DC_VECTOR_CLONES void dot_rows(float* dots, const float* x, const float* y, int64_t row,
                               int64_t count, int64_t n) {
  using W = Wide<float>;
  const int64_t full = n - n % kFoldLanes;
  for (int64_t r = 0; r < count; ++r, x += row, y += row) {
    W::Vector sums[W::kVectors] = {};
    for (int64_t i = 0; i < full; i += kFoldLanes) {
#pragma GCC unroll 8
      for (int64_t k = 0; k < W::kVectors; ++k) {
        W::Vector a, b;
        read_vector<float>(a, x + i + k * W::kWidth);
        read_vector<float>(b, y + i + k * W::kWidth);
        sums[k] = sums[k] + a * b;
      }
    }
    join_rest<SumFold<float>, float>(sums, n - full,
                                     [&](int64_t i) { return x[full + i] * y[full + i]; });
    dots[r] = join_vectors<SumFold<float>, float>(sums);
  }
}

DC_VECTOR_CLONES void multiply_rows(float* x, const float* factors, int64_t row, int64_t count) {
  for (int64_t r = 0; r < count; ++r, x += row) {
    const float factor = factors[r];
    for (int64_t i = 0; i < row; ++i) x[i] = x[i] * factor;
  }
}

AttentionCall::AttentionCall(Call& call, const BoundTensor& query, const BoundTensor& key) {
  call.require(call.ok() && query.sizes.size() == 4 && key.sizes.size() == 4,
               "queries and keys must have four dims");
  call.require(call.number("dropout_p", 0) == 0, "dropout inside attention has no native kernel");
  call.require(call.integer("return_debug_mask", 0) == 0,
               "the mask of dropout has no native kernel");
  if (!call.ok()) return;
  batch = query.sizes[0];
  heads = query.sizes[1];
  queries = query.sizes[2];
  dim = query.sizes[3];
  keys = key.sizes[2];
  causal = call.integer("is_causal", 0) != 0;
  scale = static_cast<float>(call.number("scale", 1 / std::sqrt(static_cast<double>(dim))));
  call.require(batch > 0 && heads > 0 && queries > 0 && keys > 0 && dim > 0,
               "a tensor has no elements");
  call.require(key.sizes[1] > 0 && heads % key.sizes[1] == 0,
               "the heads of queries are no multiple of those of keys");
  if (!call.ok()) return;
  heads_per_key = heads / key.sizes[1];
  const std::optional<BoundTensor> given = call.tensor_if("attn_mask");
  if (!given) return;
  std::array<int64_t, 4> sizes = {batch, heads, queries, keys}, strides{};
  const std::optional<BoundTensor> whole = as_scores(*given, sizes, strides);
  call.require(whole.has_value() && base::is_floating(given->dtype),
               "the mask does not broadcast to the scores, or is not floating-point");
  if (call.ok()) mask = HeadRows(*whole);
}

void require_square_causal_mask(Call& call) {
  const BoundTensor query = call.tensor("query"), key = call.tensor("key");
  if (!call.ok() || call.integer("is_causal", 0) == 0) return;
  call.require(query.sizes.size() == 4 && key.sizes.size() == 4 && query.sizes[2] == key.sizes[2],
               "queries and keys of a causal mask must be of one length");
}

void AttentionCall::scale_and_mask(const ScoreRows& scores, int64_t in_batch, int64_t head,
                                   int64_t query, int64_t first, float* greatest) const {
  if (!mask) return scale_rows(scores, scale, greatest);
  for (int64_t i = 0; i < scores.count; ++i) {
    alignas(64) float buffer[base::kKeyBlock];
    const float* added = mask->part(buffer, in_batch, head, query + i, first, scores.seen[i]);
    greatest[i] = scale_and_add_row(scores.first + i * scores.row, scale, added, scores.seen[i]);
  }
}

}  // namespace dc::runtime::kernel::native
