// The gradients of attention on tensor cores, without atomic additions: a warp owns rows of keys
// and goes through the queries that see them, another one owns rows of queries and goes through
// their keys. Both make the probabilities again. These, and the gradients of scores, are rounded to
// the element type before they are multiplied, as on CPUs.
#pragma once

#include "runtime/kernel/cuda/kernels/tensor_attention_blocks.h"

namespace dc::runtime::kernel::cuda {

// Of each query the product of its result and gradient, and what is taken off its scores: what the
// others read. Four threads take a query, 8 columns at a time; a block takes queries of one head.
template <typename T>
inline void tensor_attention_deltas(const TensorAttentionBackward& parameters) {
  struct alignas(16) Columns {
    T elements[8];
  };
  constexpr int kRows = kBlockThreads / kThreadsPerDelta;
  static_assert(kThreadsPerDelta == 4 && kPaddedQueries % kRows == 0);
  const Attention& of = parameters.all.of;
  const int tiles = parameters.padded_queries / kRows, heads = static_cast<int>(of.heads),
            all_tiles = static_cast<int>(of.batch) * heads * tiles,
            words = static_cast<int>(of.dim) / 8,
            part = static_cast<int>(threadIdx.x) % kThreadsPerDelta;
  for (int i = static_cast<int>(blockIdx.x); i < all_tiles; i += static_cast<int>(gridDim.x)) {
    const int head = i / tiles % heads, batch = i / tiles / heads,
              query = i % tiles * kRows + static_cast<int>(threadIdx.x) / kThreadsPerDelta;
    const bool exists = query < of.queries;
    float delta = 0, sum = -minus_infinity<float>();
    if (exists) {
      const HeadRows<T> out(of.out, batch, head), gradient(parameters.all.gradient, batch, head);
      const auto *results = reinterpret_cast<const Columns*>(out.at(query)),
                 *gradients = reinterpret_cast<const Columns*>(gradient.at(query));
#pragma unroll
      for (int j = 0; j < kMostTensorDim / 8 / kThreadsPerDelta; ++j) {
        const int word = part + j * kThreadsPerDelta;
        if (word >= words) break;
        const Columns a = gradients[word], b = results[word];
#pragma unroll
        for (int c = 0; c < 8; ++c)
          delta = scalar::fma(scalar::load(a.elements[c]), scalar::load(b.elements[c]), delta);
      }
    }
    delta += exchange(delta, 1);
    delta += exchange(delta, 2);
    if (part != 0) continue;
    if (exists) {
      const float logsumexp = static_cast<const float*>(
          of.logsumexp.data)[batch * of.logsumexp.batch + head * of.logsumexp.head +
                             query * of.logsumexp.row];
      if (logsumexp != minus_infinity<float>())
        sum = of.mask.data != nullptr ? logsumexp : logsumexp * kLog2E;
    }
    const int64_t row =
        (static_cast<int64_t>(batch) * heads + head) * parameters.padded_queries + query;
    parameters.all.deltas[row] = delta;
    parameters.sums[row] = sum;
  }
  for (int64_t i = first_element<int64_t>(); i < parameters.joint.turn_count;
       i += all_threads<int64_t>())
    parameters.joint.turns[i] = 0;
}

// Blocks of keys: gradients of keys and values, of the query heads of a group.
template <typename T, int kDim, bool kHasMask, TileShape kShape>
inline void tensor_attention_key_gradients(const TensorAttentionBackward& parameters) {
  constexpr int kRowTiles = kShape.row_tiles, kOthers = kShape.others, kStep = kShape.step,
                kThreads = kShape.threads(), kRows = kShape.rows();
  using Own = Tiles<kDim, false>;
  constexpr int kRowBytes = kRows * Own::kRowPitch, kTileBytes = kOthers * Own::kRowPitch,
                kSumBytes = kOthers * 4;
  DC_SHARED_MEMORY(memory);
  const SharedPlace keys = shared_place(memory), values = keys + kRowBytes,
                    queries = values + kRowBytes, gradients = queries + 2 * kTileBytes,
                    sums = gradients + 2 * kTileBytes, deltas = sums + 2 * kSumBytes;
  const auto* const sums_in_memory = reinterpret_cast<const float*>(memory + (sums - keys));

  const AttentionBackward& all = parameters.all;
  const Attention& of = all.of;
  const int key_heads = static_cast<int>(of.heads / of.heads_per_key);
  const BlockPlace place(of.keys, kRows, int64_t{key_heads} * parameters.groups, false);
  const int group = place.head / key_heads, key_head = place.head % key_heads, batch = place.batch,
            key_count = static_cast<int>(of.keys), query_count = static_cast<int>(of.queries),
            first = place.first;
  const int heads = static_cast<int>(of.heads_per_key) / parameters.groups,
            first_head = (key_head * parameters.groups + group) * heads;
  const int first_query = of.is_causal ? first / kOthers * kOthers : 0;
  const int per_head =
      first_query < query_count ? (query_count - first_query + kOthers - 1) / kOthers : 0;
  const int count = per_head * heads;

  const auto begin_tile = [&](int i) {
    const int head = first_head + i / per_head, at = first_query + i % per_head * kOthers,
              stage = i % 2;
    Own::template copy<kOthers, kThreads>(queries + stage * kTileBytes,
                                          HeadRows<T>(of.query, batch, head), at, query_count);
    Own::template copy<kOthers, kThreads>(gradients + stage * kTileBytes,
                                          HeadRows<T>(all.gradient, batch, head), at, query_count);
    const int word = static_cast<int>(threadIdx.x) % (kOthers / 4),
              which = static_cast<int>(threadIdx.x) / (kOthers / 4);
    const int64_t from = (batch * of.heads + head) * parameters.padded_queries + at + word * 4;
    if (which < 2)
      copy_16((which == 0 ? sums : deltas) + stage * kSumBytes + word * 16,
              (which == 0 ? parameters.sums : all.deltas) + from, true);
    end_copy_group();
  };
  Own::template copy<kRows, kThreads>(keys, HeadRows<T>(of.key, batch, key_head), first, key_count);
  Own::template copy<kRows, kThreads>(values, HeadRows<T>(of.value, batch, key_head), first,
                                      key_count);
  end_copy_group();
  if (count > 0) begin_tile(0);
  typename Own::template Left<kRows, kRowTiles, kShape.keeps_rows> key_rows(keys),
      value_rows(values);
  if (kShape.keeps_rows) {
    wait_for_copies<0>();
    __syncthreads();
    key_rows.keep();
    value_rows.keep();
  }

  const int own = own_rows<kShape>(first);
  Sums<kRowTiles, kDim / 8> of_key, of_value;
  clear_sums<kRowTiles, kDim / 8>(of_key);
  clear_sums<kRowTiles, kDim / 8>(of_value);
  for (int i = 0; i < count; ++i) {
    wait_for_copies<0>();
    __syncthreads();
    if (i + 1 < count) begin_tile(i + 1);
    const int at = first_query + i % per_head * kOthers, stage = i % 2;
    const TensorScores<kHasMask> scores_of(of, batch, first_head + i / per_head);
#pragma unroll
    for (int step = 0; step < kOthers; step += kStep) {
      if (of.is_causal && at + step + kStep <= own) continue;
      const SharedPlace queries_now = queries + stage * kTileBytes,
                        gradients_now = gradients + stage * kTileBytes;
      Sums<kRowTiles, kStep / 8> scores, of_scores;
      Own::template multiply<T, kOthers>(scores, key_rows, queries_now, step);
      Own::template multiply<T, kOthers>(of_scores, value_rows, gradients_now, step);
      const bool hides = of.is_causal && own + kRowTiles * 16 > at + step + 1;
      if (kHasMask || hides)
        for_each_pair<kRowTiles, kStep / 8>(
            scores, [&](int r, int half, int c, float& a, float& b) {
              const int k = own + row_in_tile(r, half), q = at + step + column_in_tile(c);
              a = scores_of.sees(q, k) ? scores_of.score(a, q, k) : minus_infinity<float>();
              b = scores_of.sees(q + 1, k) ? scores_of.score(b, q + 1, k) : minus_infinity<float>();
            });
      const float* const sums_now = sums_in_memory + stage * kOthers + step;
      for_each_pair<kRowTiles, kStep / 8>(scores, [&](int, int, int c, float& a, float& b) {
        const float* const sum = sums_now + column_in_tile(c);
        a = scores_of.power(a, sum[0]);
        b = scores_of.power(b, sum[1]);
      });
      Packed<kRowTiles, kStep / 8> packed, of_packed;
      pack_sums<T, kRowTiles, kStep / 8>(packed, scores);
      Own::template add<T, kOthers>(of_value, packed, gradients_now, step);
      for_each_pair<kRowTiles, kStep / 8>(
          of_scores, [&](int r, int half, int c, float& a, float& b) {
            const float* const delta = sums_now + 2 * kOthers + column_in_tile(c);
            a = scores[r][c][2 * half] * (a - delta[0]);
            b = scores[r][c][2 * half + 1] * (b - delta[1]);
          });
      pack_sums<T, kRowTiles, kStep / 8>(of_packed, of_scores);
      Own::template add<T, kOthers>(of_key, of_packed, queries_now, step);
    }
  }
  wait_for_copies<0>();

  write_key_gradients<T, kDim>(parameters, of_key, of_value, batch, key_head, group, own);
}

// The sums of what groups of query heads have given for keys and values, in the order of groups. A
// thread takes four elements.
template <typename T>
inline void tensor_attention_key_sums(const TensorAttentionBackward& parameters) {
  const Attention& of = parameters.all.of;
  const auto key_heads = static_cast<uint32_t>(of.heads / of.heads_per_key),
             keys = static_cast<uint32_t>(of.keys), words = static_cast<uint32_t>(of.dim) / 4;
  const int64_t count = of.batch * key_heads * of.keys * of.dim;
  const auto sum = [&](const HeadTensor& to, const float* parts, uint32_t i) {
    if (to.data == nullptr) return;
    float all[4] = {};
    for (int group = 0; group < parameters.groups; ++group) {
      const Pack<float, 4> part = load_pack<4>(parts + group * count + int64_t{i} * 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) all[j] += part.at[j];
    }
    Pack<T, 4> rounded;
#pragma unroll
    for (int j = 0; j < 4; ++j) rounded.at[j] = scalar::store<T>(all[j]);
    const uint32_t row = i / words, head = row / keys;
    const HeadRows<T> rows(to, head / key_heads, head % key_heads);
    store_pack(rows.at(static_cast<int>(row % keys)) + i % words * 4, rounded);
  };
  for (uint32_t i = first_element<uint32_t>(); i < count / 4; i += all_threads<uint32_t>()) {
    sum(parameters.all.of_key, parameters.of_key, i);
    sum(parameters.all.of_value, parameters.of_value, i);
  }
}

// Blocks of queries.
template <typename T, int kDim, bool kHasMask, TileShape kShape>
inline void tensor_attention_query_gradients(const TensorAttentionBackward& parameters) {
  constexpr int kRowTiles = kShape.row_tiles, kOthers = kShape.others, kStep = kShape.step,
                kThreads = kShape.threads(), kRows = kShape.rows();
  using Own = Tiles<kDim, false>;
  constexpr int kRowBytes = kRows * Own::kRowPitch, kTileBytes = kOthers * Own::kRowPitch;
  DC_SHARED_MEMORY(memory);
  const SharedPlace queries = shared_place(memory), gradients = queries + kRowBytes,
                    keys = gradients + kRowBytes, values = keys + 2 * kTileBytes;
  const AttentionBackward& all = parameters.all;
  const Attention& of = all.of;
  const BlockPlace place(of.queries, kRows, of.heads, of.is_causal);
  const int first = place.first, query_count = static_cast<int>(of.queries),
            key_count = static_cast<int>(of.keys);
  const int64_t key_head = place.head / of.heads_per_key;
  const HeadRows<T> key(of.key, place.batch, key_head), value(of.value, place.batch, key_head);
  const int end = of.is_causal && first + kRows < key_count ? first + kRows : key_count;
  const auto begin_tile = [&](int at) {
    const int stage = at / kOthers % 2 * kTileBytes;
    Own::template copy<kOthers, kThreads>(keys + stage, key, at, key_count);
    Own::template copy<kOthers, kThreads>(values + stage, value, at, key_count);
    end_copy_group();
  };
  Own::template copy<kRows, kThreads>(queries, HeadRows<T>(of.query, place.batch, place.head),
                                      first, query_count);
  Own::template copy<kRows, kThreads>(gradients, HeadRows<T>(all.gradient, place.batch, place.head),
                                      first, query_count);
  end_copy_group();
  begin_tile(0);
  typename Own::template Left<kRows, kRowTiles, kShape.keeps_rows> query_rows(queries),
      gradient_rows(gradients);
  wait_for_copies<1>();
  __syncthreads();
  query_rows.keep();
  gradient_rows.keep();

  const int own = own_rows<kShape>(first);
  float sums[kRowTiles][2], deltas[kRowTiles][2];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int q = own + row_in_tile(r, half);
      const int64_t from = (place.batch * of.heads + place.head) * parameters.padded_queries + q;
      const bool exists = q < query_count;
      sums[r][half] = exists ? parameters.sums[from] : -minus_infinity<float>();
      deltas[r][half] = exists ? all.deltas[from] : 0.0f;
    }
  const TensorScores<kHasMask> scores_of(of, place.batch, place.head);
  Sums<kRowTiles, kDim / 8> of_query;
  clear_sums<kRowTiles, kDim / 8>(of_query);
  for (int at = 0; at < end; at += kOthers) {
    wait_for_copies<0>();
    __syncthreads();
    if (at + kOthers < end) begin_tile(at + kOthers);
    const int stage = at / kOthers % 2 * kTileBytes;
#pragma unroll
    for (int step = 0; step < kOthers; step += kStep) {
      if (of.is_causal && at + step >= own + kRowTiles * 16) continue;
      Sums<kRowTiles, kStep / 8> scores, of_scores;
      Own::template multiply<T, kOthers>(scores, query_rows, keys + stage, step);
      Own::template multiply<T, kOthers>(of_scores, gradient_rows, values + stage, step);
      const bool hides = !scores_of.all_see(own, at + step + kStep);
      if (kHasMask || hides)
        for_each_pair<kRowTiles, kStep / 8>(
            scores, [&](int r, int half, int c, float& a, float& b) {
              const int q = own + row_in_tile(r, half), k = at + step + column_in_tile(c);
              a = scores_of.sees(q, k) ? scores_of.score(a, q, k) : minus_infinity<float>();
              b = scores_of.sees(q, k + 1) ? scores_of.score(b, q, k + 1) : minus_infinity<float>();
            });
      for_each_pair<kRowTiles, kStep / 8>(scores, [&](int r, int half, int, float& a, float& b) {
        a = scores_of.power(a, sums[r][half]);
        b = scores_of.power(b, sums[r][half]);
      });
      for_each_pair<kRowTiles, kStep / 8>(of_scores,
                                          [&](int r, int half, int c, float& a, float& b) {
                                            a = scores[r][c][2 * half] * (a - deltas[r][half]);
                                            b = scores[r][c][2 * half + 1] * (b - deltas[r][half]);
                                          });
      Packed<kRowTiles, kStep / 8> packed;
      pack_sums<T, kRowTiles, kStep / 8>(packed, of_scores);
      Own::template add<T, kOthers>(of_query, packed, keys + stage, step);
    }
  }
  wait_for_copies<0>();
  write_sums(of_query, HeadRows<T>(all.of_query, place.batch, place.head), own, query_count,
             of.scale);
}

}  // namespace dc::runtime::kernel::cuda
