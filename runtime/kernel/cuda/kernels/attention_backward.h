// The gradients of attention, without atomic additions: a block has the keys of a tile and goes
// through all queries that see them, another has queries and goes through their keys. Both make the
// probabilities again from the logarithms of their sums, so a product more is made than with
// atomics, and every sum has one order.
#pragma once

#include "runtime/kernel/cuda/kernels/attention_tiles.h"

namespace dc::runtime::kernel::cuda {

// A thread takes a query.
template <typename T>
inline void attention_deltas(const AttentionBackward& parameters) {
  const Attention& of = parameters.of;
  const int64_t count = of.batch * of.heads * of.queries;
  for (int64_t i = first_element<int64_t>(); i < count; i += all_threads<int64_t>()) {
    const int64_t query = i % of.queries, head = i / of.queries % of.heads,
                  batch = i / of.queries / of.heads;
    const HeadPart<T> out(of.out, batch, head), gradient(parameters.gradient, batch, head);
    float sum = 0;
    for (int64_t column = 0; column < of.dim; ++column)
      sum = scalar::fma(scalar::load(gradient.at(query, column)),
                        scalar::load(out.at(query, column)), sum);
    parameters.deltas[i] = sum;
  }
}

// Probabilities and gradients of scores of a tile.
struct TileGradients {
  ScorePart probabilities, of_scores;
};

struct BackwardTiles {
  ChunkTile left, right;
  ScoreTile scores;
};

// Of the tile with queries from `first`, keys from `at` on.
template <typename T>
inline void tile_gradients(TileGradients& tile, BackwardTiles& tiles,
                           const AttentionBackward& parameters, const Scores& scores, int64_t batch,
                           int64_t head, int64_t first, int64_t at) {
  const Attention& of = parameters.of;
  const int64_t key_head = head / of.heads_per_key;
  const HeadPart<T> query(of.query, batch, head), key(of.key, batch, key_head),
      value(of.value, batch, key_head), gradient(parameters.gradient, batch, head);
  const HeadPart<float> logsumexp(of.logsumexp, batch, head);
  multiply_rows(tile.probabilities, tiles.left, tiles.right, query, first, of.queries, key, at,
                of.keys, of.dim);
  multiply_rows(tile.of_scores, tiles.left, tiles.right, gradient, first, of.queries, value, at,
                of.keys, of.dim);
  const float* deltas = parameters.deltas + (batch * of.heads + head) * of.queries;
  for (int i = 0; i < kPart; ++i) {
    const int64_t q = first + tile_y() + kSide * i;
    const bool exists = q < of.queries;
    const float log_of_sum = exists ? logsumexp.at(q, 0) : minus_infinity<float>();
    const float delta = exists ? deltas[q] : 0.0f;
    for (int j = 0; j < kPart; ++j) {
      const int64_t k = at + tile_x() + kSide * j;
      const bool sees = log_of_sum != minus_infinity<float>() && scores.sees(q, k);
      const float p =
          sees ? scalar::math::exp(scores.score(tile.probabilities[i][j], q, k) - log_of_sum)
               : 0.0f;
      tile.probabilities[i][j] = p;
      tile.of_scores[i][j] = p * (tile.of_scores[i][j] - delta) * of.scale;
    }
  }
}

inline void put_scores(ScoreTile& to, const ScorePart& from) {
  __syncthreads();
  for (int i = 0; i < kPart; ++i)
    for (int j = 0; j < kPart; ++j) to[tile_y() + kSide * i][tile_x() + kSide * j] = from[i][j];
  __syncthreads();
}

// Blocks of keys: gradients of keys and values, of all query heads that share them.
template <typename T, int kDim>
inline void attention_key_gradients(const AttentionBackward& parameters) {
  __shared__ BackwardTiles tiles;
  const Attention& of = parameters.of;
  const int64_t count = (of.keys + kTile - 1) / kTile, key_heads = of.heads / of.heads_per_key;
  for (int64_t block = blockIdx.x; block < count * key_heads * of.batch; block += gridDim.x) {
    const int64_t at = block % count * kTile, key_head = block / count % key_heads,
                  batch = block / count / key_heads;
    ResultPart<kDim> of_key, of_value;
    clear<kDim>(of_key);
    clear<kDim>(of_value);
    for (int64_t h = 0; h < of.heads_per_key; ++h) {
      const int64_t head = key_head * of.heads_per_key + h;
      const HeadPart<T> query(of.query, batch, head), gradient(parameters.gradient, batch, head);
      const Scores scores(of, batch, head);
      for (int64_t first = of.is_causal ? at : 0; first < of.queries; first += kTile) {
        TileGradients tile;
        tile_gradients<T>(tile, tiles, parameters, scores, batch, head, first, at);
        put_scores(tiles.scores, tile.probabilities);
        add_product<true, kDim>(of_value, tiles.scores, tiles.right, gradient, first, of.queries,
                                of.dim);
        put_scores(tiles.scores, tile.of_scores);
        add_product<true, kDim>(of_key, tiles.scores, tiles.right, query, first, of.queries,
                                of.dim);
      }
    }
    if (parameters.of_key.data != nullptr)
      write_rows<kDim>(of_key, HeadPart<T>(parameters.of_key, batch, key_head), at, of.keys,
                       of.dim);
    if (parameters.of_value.data != nullptr)
      write_rows<kDim>(of_value, HeadPart<T>(parameters.of_value, batch, key_head), at, of.keys,
                       of.dim);
  }
}

// Blocks of queries.
template <typename T, int kDim>
inline void attention_query_gradients(const AttentionBackward& parameters) {
  __shared__ BackwardTiles tiles;
  const Attention& of = parameters.of;
  const int64_t count = (of.queries + kTile - 1) / kTile;
  for (int64_t block = blockIdx.x; block < count * of.heads * of.batch; block += gridDim.x) {
    const int64_t first = (count - 1 - block % count) * kTile, head = block / count % of.heads,
                  batch = block / count / of.heads;
    const HeadPart<T> key(of.key, batch, head / of.heads_per_key);
    const Scores scores(of, batch, head);
    ResultPart<kDim> of_query;
    clear<kDim>(of_query);
    const int64_t end = scores.end_of_keys(first);
    for (int64_t at = 0; at < end; at += kTile) {
      TileGradients tile;
      tile_gradients<T>(tile, tiles, parameters, scores, batch, head, first, at);
      put_scores(tiles.scores, tile.of_scores);
      add_product<false, kDim>(of_query, tiles.scores, tiles.right, key, at, of.keys, of.dim);
    }
    write_rows<kDim>(of_query, HeadPart<T>(parameters.of_query, batch, head), first, of.queries,
                     of.dim);
  }
}

}  // namespace dc::runtime::kernel::cuda
