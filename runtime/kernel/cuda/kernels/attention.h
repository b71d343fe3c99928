// Attention in tiles with an online softmax: Dao et al., FlashAttention (2022) and FlashAttention-2
// (2023). A block has kTile queries of a head; nothing of the size queries x keys is stored.
#pragma once

#include "runtime/kernel/cuda/kernels/attention_tiles.h"

namespace dc::runtime::kernel::cuda {

// Of each query of a tile: its largest score so far, the sum of exp(score - largest), and by what
// was summed before becomes less. Four threads work on one query.
struct OnlineSoftmax {
  float largest[kTile], sums[kTile], factors[kTile], parts[kBlockThreads];

  void begin() {
    if (threadIdx.x < kTile) {
      largest[threadIdx.x] = minus_infinity<float>();
      sums[threadIdx.x] = 0;
    }
  }

  // Scores of a tile become exp(score - largest); -inf becomes 0.
  void add(ScoreTile& scores) {
    constexpr int kThreads = static_cast<int>(kBlockThreads) / kTile;
    const int thread = static_cast<int>(threadIdx.x), row = thread / kThreads,
              first = thread % kThreads;
    const float* others = parts + row * kThreads;
    float own = minus_infinity<float>();
    for (int k = first; k < kTile; k += kThreads) own = larger(own, scores[row][k]);
    parts[thread] = own;
    __syncthreads();
    const float before = largest[row];
    float now = before;
    for (int k = 0; k < kThreads; ++k) now = larger(now, others[k]);
    float sum = 0;
    for (int k = first; k < kTile; k += kThreads) {
      float& score = scores[row][k];
      score = score == minus_infinity<float>() ? 0.0f : scalar::math::exp(score - now);
      sum += score;
    }
    __syncthreads();
    parts[thread] = sum;
    __syncthreads();
    if (first == 0) {
      sum = 0;
      for (int k = 0; k < kThreads; ++k) sum += others[k];
      const float factor =
          before == minus_infinity<float>() ? 0.0f : scalar::math::exp(before - now);
      sums[row] = sums[row] * factor + sum;
      largest[row] = now;
      factors[row] = factor;
    }
    __syncthreads();
  }

  // A query that sees no key has a result of zeros, and -inf as logarithm of its sum.
  float last_factor(int row) const { return sums[row] == 0 ? 1.0f : 1 / sums[row]; }
  float logsumexp(int row) const {
    return sums[row] == 0 ? minus_infinity<float>() : largest[row] + scalar::math::log(sums[row]);
  }
};

template <typename T, int kDim>
inline void attention(const Attention& parameters) {
  __shared__ ChunkTile left, right;
  __shared__ ScoreTile scores;
  __shared__ OnlineSoftmax softmax;
  const int64_t tiles = (parameters.queries + kTile - 1) / kTile;
  const int64_t blocks = tiles * parameters.heads * parameters.batch;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t head = block / tiles % parameters.heads, batch = block / tiles / parameters.heads;
    // Of causal attention the last queries have the most work, and come first.
    const int64_t first = (tiles - 1 - block % tiles) * kTile;
    const HeadPart<T> query(parameters.query, batch, head),
        key(parameters.key, batch, head / parameters.heads_per_key),
        value(parameters.value, batch, head / parameters.heads_per_key);
    const Scores of(parameters, batch, head);
    ResultPart<kDim> out;
    clear<kDim>(out);
    softmax.begin();
    const int64_t end = of.end_of_keys(first);
    for (int64_t at = 0; at < end; at += kTile) {
      ScorePart sums;
      multiply_rows(sums, left, right, query, first, parameters.queries, key, at, parameters.keys,
                    parameters.dim);
      for (int i = 0; i < kPart; ++i)
        for (int j = 0; j < kPart; ++j) {
          const int row = tile_y() + kSide * i, column = tile_x() + kSide * j;
          scores[row][column] = of.sees(first + row, at + column)
                                    ? of.score(sums[i][j], first + row, at + column)
                                    : minus_infinity<float>();
        }
      __syncthreads();
      softmax.add(scores);
      for_each_result<kDim>(
          out, [&](int row, int, float& result) { result = result * softmax.factors[row]; });
      add_product<false, kDim>(out, scores, right, value, at, parameters.keys, parameters.dim);
    }
    __syncthreads();
    for_each_result<kDim>(
        out, [&](int row, int, float& result) { result = result * softmax.last_factor(row); });
    if (parameters.out.data != nullptr)
      write_rows<kDim>(out, HeadPart<T>(parameters.out, batch, head), first, parameters.queries,
                       parameters.dim);
    const int row = static_cast<int>(threadIdx.x);
    if (parameters.logsumexp.data != nullptr && row < kTile && first + row < parameters.queries)
      HeadPart<float>(parameters.logsumexp, batch, head).at(first + row, 0) =
          softmax.logsumexp(row);
    __syncthreads();
  }
}

}  // namespace dc::runtime::kernel::cuda
