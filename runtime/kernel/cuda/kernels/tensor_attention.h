// Attention on tensor cores, after Dao, FlashAttention-2 (2023): a warp owns rows of queries, has
// their scores and results in registers, and makes the softmax online. Probabilities are rounded to
// the element type before they are multiplied by values, as on CPUs.
#pragma once

#include "runtime/kernel/cuda/kernels/tensor_attention_blocks.h"

namespace dc::runtime::kernel::cuda {

// Of the rows of a thread, two in each 16: the largest score, and the sum of the thread's columns.
template <int kRowTiles, int kColumnTiles>
struct RowSoftmax {
  float largest[kRowTiles][2], sums[kRowTiles][2];
  float less[kRowTiles][2];  // what results are multiplied by, since the largest score is another

  RowSoftmax() {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        largest[r][half] = minus_infinity<float>();
        sums[r][half] = 0;
      }
  }
  // Scores become powers of what they are less than the largest one.
  template <bool kHasMask>
  void add(Sums<kRowTiles, kColumnTiles>& scores, const TensorScores<kHasMask>& of) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float now = largest[r][half];
#pragma unroll
        for (int c = 0; c < kColumnTiles; ++c)
          now = fmaxf(now, fmaxf(scores[r][c][2 * half], scores[r][c][2 * half + 1]));
        now = fmaxf(now, exchange(now, 1));
        now = fmaxf(now, exchange(now, 2));
        const float origin = now == minus_infinity<float>() ? 0.0f : of.origin(now);
        less[r][half] = of.power(largest[r][half], origin);
        largest[r][half] = now;
        float sum = 0;
#pragma unroll
        for (int c = 0; c < kColumnTiles; ++c)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            const float power = of.power(scores[r][c][i], origin);
            scores[r][c][i] = power;
            sum += power;
          }
        sums[r][half] = scalar::fma(sums[r][half], less[r][half], sum);
      }
  }
  template <int kResultTiles>
  void scale(Sums<kRowTiles, kResultTiles>& results) const {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int c = 0; c < kResultTiles; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) results[r][c][i] *= less[r][i / 2];
  }
  void join_columns() {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& sum = sums[r][half];
        sum += exchange(sum, 1);
        sum += exchange(sum, 2);
      }
  }
};

template <typename T, int kDim, bool kHasMask, TileShape kShape>
inline void tensor_attention(const Attention& of) {
  constexpr int kRowTiles = kShape.row_tiles, kOthers = kShape.others, kThreads = kShape.threads();
  using Own = Tiles<kDim, kShape.by_groups>;
  constexpr int kTileBytes = kOthers * Own::kRowPitch, kStages = forward_stages(kShape);
  static_assert(kOthers == kShape.step);
  DC_SHARED_MEMORY(memory);
  const SharedPlace queries = shared_place(memory), keys = queries + kShape.rows() * Own::kRowPitch,
                    values = keys + kStages * kTileBytes;
  const BlockPlace place(of.queries, kShape.rows(), of.heads, of.is_causal);
  const int first = place.first, query_count = static_cast<int>(of.queries),
            key_count = static_cast<int>(of.keys);
  const int64_t key_head = place.head / of.heads_per_key;
  const HeadRows<T> key(of.key, place.batch, key_head), value(of.value, place.batch, key_head);
  const TensorScores<kHasMask> scores_of(of, place.batch, place.head);
  const int end =
      of.is_causal && first + kShape.rows() < key_count ? first + kShape.rows() : key_count;
  const auto stage_of = [](int at) { return at / kOthers % kStages * kTileBytes; };
  const auto begin_tile = [&](int at) {
    if (at < end) {
      Own::template copy<kOthers, kThreads>(keys + stage_of(at), key, at, key_count);
      Own::template copy<kOthers, kThreads>(values + stage_of(at), value, at, key_count);
    }
    end_copy_group();
  };

  Own::template copy<kShape.rows(), kThreads>(
      queries, HeadRows<T>(of.query, place.batch, place.head), first, query_count);
  end_copy_group();
  begin_tile(0);
  typename Own::template Left<kShape.rows(), kRowTiles, kShape.keeps_rows> left(queries);
  wait_for_copies<1>();
  Own::show_copies();
  __syncthreads();
  left.keep();

  const int own = own_rows<kShape>(first);
  Sums<kRowTiles, kDim / 8> results;
  clear_sums<kRowTiles, kDim / 8>(results);
  RowSoftmax<kRowTiles, kOthers / 8> softmax;
  Sums<kRowTiles, kOthers / 8> scores;
  Packed<kRowTiles, kOthers / 8> powers;
  const auto begin_scores = [&](int at) {
    Own::begin(scores);
    Own::template multiply<T, kOthers>(scores, left, keys + stage_of(at), 0);
    Own::end();
  };
  const auto make_powers = [&](int at) {
    const bool hides = !scores_of.all_see(own, at + kOthers);
    if (kHasMask || hides)
      for_each_pair<kRowTiles, kOthers / 8>(
          scores, [&](int r, int half, int c, float& a, float& b) {
            const int q = own + row_in_tile(r, half), k = at + column_in_tile(c);
            a = scores_of.sees(q, k) ? scores_of.score(a, q, k) : minus_infinity<float>();
            b = scores_of.sees(q, k + 1) ? scores_of.score(b, q, k + 1) : minus_infinity<float>();
          });
    softmax.add(scores, scores_of);
  };
  const auto begin_results = [&](int at) {
    Own::begin(results, powers);
    Own::template add<T, kOthers>(results, powers, values + stage_of(at), 0);
    Own::end();
  };
  const auto show_tile = [] {
    wait_for_copies<0>();
    Own::show_copies();
    __syncthreads();
  };
  if constexpr (kShape.by_groups) {
    // A tile's probabilities are made while the values of the one before are multiplied.
    show_tile();
    begin_tile(kOthers);
    begin_scores(0);
    Own::template wait<0>(scores);
    for (int at = 0; at < end; at += kOthers) {
      make_powers(at);
      Own::template wait<0>(results, powers);
      show_tile();
      begin_tile(at + 2 * kOthers);
      softmax.scale(results);
      pack_sums<T, kRowTiles, kOthers / 8>(powers, scores);
      begin_scores(at + kOthers);  // after the last tile of nothing that is used
      begin_results(at);
      Own::template wait<1>(scores);
    }
    Own::template wait<0>(results, powers);
  } else {
    for (int at = 0; at < end; at += kOthers) {
      show_tile();
      begin_tile(at + kOthers);
      if (of.is_causal && at >= own + kRowTiles * 16) continue;
      begin_scores(at);
      make_powers(at);
      softmax.scale(results);
      pack_sums<T, kRowTiles, kOthers / 8>(powers, scores);
      begin_results(at);
    }
  }
  wait_for_copies<0>();

  softmax.join_columns();
  for_each_pair<kRowTiles, kDim / 8>(results, [&](int r, int half, int, float& a, float& b) {
    const float sum = softmax.sums[r][half], by = sum == 0 ? 1.0f : 1 / sum;
    a *= by;
    b *= by;
  });
  if (of.out.data != nullptr)
    write_sums(results, HeadRows<T>(of.out, place.batch, place.head), own, query_count, 1);
  if (of.logsumexp.data == nullptr || lane() % 4 != 0) return;
  auto* const sums_of = static_cast<float*>(of.logsumexp.data);
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t q = own + row_in_tile(r, half);
      const float sum = softmax.sums[r][half];
      if (q < query_count)
        sums_of[place.batch * of.logsumexp.batch + place.head * of.logsumexp.head +
                q * of.logsumexp.row] = sum == 0
                                            ? minus_infinity<float>()
                                            : scores_of.log_of_sum(softmax.largest[r][half], sum);
    }
}

}  // namespace dc::runtime::kernel::cuda
