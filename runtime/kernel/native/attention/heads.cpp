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

// Rows of n floats; those behind them in `to`, up to `width`, become zero.
DC_VECTOR_CLONES void copy_rows(float* __restrict to, int64_t to_row, const float* from,
                                int64_t from_row, int64_t rows, int64_t n, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, to += to_row, from += from_row) {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i];
    for (int64_t i = n; i < width; ++i) to[i] = 0;
  }
}

}  // namespace

HeadRows::HeadRows(const BoundTensor& tensor)
    : data_(static_cast<std::byte*>(tensor.data)),
      element_(base::byte_size(tensor.dtype)),
      is_direct_(tensor.dtype == base::DType::F32 &&
                 (tensor.strides[3] == 1 || tensor.sizes[3] == 1)),
      load_(loader(Lane::F32, tensor.dtype)),
      store_(storer(Lane::F32, tensor.dtype)) {
  std::copy_n(tensor.sizes.begin(), 4, sizes_.begin());
  std::copy_n(tensor.strides.begin(), 4, strides_.begin());
}

void HeadRows::read(float* to, int64_t row, int64_t batch, int64_t head, int64_t first,
                    int64_t count) const {
  if (is_direct_) {
    const auto* from = reinterpret_cast<const float*>(place(batch, head, first));
    return copy_rows(to, row, from, strides_[2], count, sizes_[3], row);
  }
  for (int64_t i = 0; i < count; ++i, to += row) {
    load_(to, place(batch, head, first + i), strides_[3], sizes_[3]);
    std::fill(to + sizes_[3], to + row, 0.0f);
  }
}

const float* HeadRows::part(float* buffer, int64_t batch, int64_t head, int64_t row, int64_t first,
                            int64_t count) const {
  const std::byte* from = place(batch, head, row) + first * strides_[3] * element_;
  if (is_direct_ && count % kLanes == 0) return reinterpret_cast<const float*>(from);
  load_(buffer, from, strides_[3], count);
  std::fill(buffer + count, buffer + base::round_up(count, kLanes), 0.0f);
  return buffer;
}

void HeadRows::write(const float* from, int64_t row, int64_t batch, int64_t head, int64_t first,
                     int64_t count) const {
  if (data_ == nullptr) return;
  if (is_direct_) {
    auto* to = reinterpret_cast<float*>(place(batch, head, first));
    return copy_rows(to, strides_[2], from, row, count, sizes_[3], sizes_[3]);
  }
  for (int64_t i = 0; i < count; ++i, from += row)
    store_(place(batch, head, first + i), strides_[3], from, sizes_[3]);
}

DC_VECTOR_CLONES float scale_row(float* x, float scale, int64_t n) {
  using Max = MaxFold<float>;
  float lanes[kLanes];
  for (float& lane : lanes) lane = Max::neutral();
  for (int64_t i = 0; i < n; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) {
      const float scaled = x[i + k] * scale;
      x[i + k] = scaled;
      Max::join(lanes[k], i + k < n ? scaled : Max::neutral());
    }
  }
  return join_lanes<Max>(lanes, kLanes);
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
  return join_lanes<Max>(lanes, kLanes);
}

DC_VECTOR_CLONES float dot(const float* x, const float* y, int64_t n) {
  float lanes[kFoldLanes] = {};
  const int64_t full = n - n % kFoldLanes;
  for (int64_t i = 0; i < full; i += kFoldLanes) {
#pragma GCC unroll 32
    for (int64_t k = 0; k < kFoldLanes; ++k) lanes[k] = lanes[k] + x[i + k] * y[i + k];
  }
  for (int64_t i = full; i < n; ++i) lanes[i - full] = lanes[i - full] + x[i] * y[i];
  for (int64_t half = kFoldLanes / 2; half > 0; half /= 2) {
    for (int64_t k = 0; k < half; ++k) lanes[k] = lanes[k] + lanes[k + half];
  }
  return lanes[0];
}

DC_VECTOR_CLONES void multiply_row(float* x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] * factor;
}

DC_VECTOR_CLONES float exp_row(float* x, float least, int64_t valid, int64_t n) {
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < n; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) {
      const float power = math::exp(x[i + k] - least);
      x[i + k] = i + k < valid ? power : 0.0f;
      lanes[k] = lanes[k] + x[i + k];
    }
  }
  return join_lanes<SumFold<float>>(lanes, kLanes);
}

DC_VECTOR_CLONES void end_rows(float* sums, const float* greatest, float* factors, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const bool sees_none = sums[i] == 0;
    factors[i] = sees_none ? 1.0f : 1 / sums[i];
    const float logsumexp = greatest[i] + math::log(sums[i]);
    sums[i] = sees_none ? -std::numeric_limits<float>::infinity() : logsumexp;
  }
}

DC_VECTOR_CLONES void gradient_row(float* d, const float* p, float delta, float scale, int64_t n) {
  for (int64_t i = 0; i < n; ++i) d[i] = p[i] * (d[i] - delta) * scale;
}

DC_VECTOR_CLONES void round_row_to_bf16(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = widen(narrow_bf16(x[i]));
}

AttentionCall::AttentionCall(Call& call, const BoundTensor& query, const BoundTensor& key) {
  call.require(call.ok() && query.sizes.size() == 4 && key.sizes.size() == 4,
               "queries and keys must have four dims");
  call.require(call.number("dropout_p", 0) == 0, "dropout inside attention has no native kernel");
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

float AttentionCall::scale_and_mask(float* scores, int64_t in_batch, int64_t head, int64_t query,
                                    int64_t first, int64_t count) const {
  alignas(64) float buffer[base::kKeyBlock];
  const float* added = mask->part(buffer, in_batch, head, query, first, count);
  return scale_and_add_row(scores, scale, added, count);
}

}  // namespace dc::runtime::kernel::native
