// The gradients of attention in one kernel, whose products are made once: five for each tile of
// keys and of queries. A block owns keys, whose gradients stay in registers; what it adds to the
// gradients of queries goes to memory in f32, in the order of blocks. So reruns give equal bits.
#pragma once

#include "runtime/kernel/cuda/kernels/tensor_attention_blocks.h"

namespace dc::runtime::kernel::cuda {

// What a block does: tiles of keys of one head of these, one in each chain, and query heads.
struct JointBlock {
  int rank, batch, key_head, group, first_head, heads, key_tiles, query_tiles;
  int ratio;  // of the rows of tiles of keys and queries
  bool is_causal;

  JointBlock(const TensorAttentionBackward& parameters, int number)
      : key_tiles(parameters.joint.key_tiles),
        query_tiles(parameters.joint.query_tiles),
        ratio(kJointKeys / joint_queries(static_cast<int>(parameters.all.of.dim))),
        is_causal(parameters.all.of.is_causal) {
    const Attention& of = parameters.all.of;
    const int blocks = JointGradients::blocks(key_tiles, is_causal),
              key_heads = static_cast<int>(of.heads / of.heads_per_key);
    rank = number % blocks;
    group = number / blocks % parameters.groups;
    key_head = number / blocks / parameters.groups % key_heads;
    batch = number / blocks / parameters.groups / key_heads;
    heads = static_cast<int>(of.heads_per_key) / parameters.groups;
    first_head = (key_head * parameters.groups + group) * heads;
  }
  int chains() const { return JointGradients::chains(is_causal); }
  int key_tile(int chain) const { return chain == 0 ? key_tiles - 1 - rank : rank; }
  bool has(int chain) const { return chain == 0 || key_tile(1) != key_tile(0); }
  // Tiles of queries that see its keys, for each head.
  int first_query_tile(int chain) const { return is_causal ? key_tile(chain) * ratio : 0; }
  int tiles_of_head(int chain) const {
    const int first = first_query_tile(chain);
    return first < query_tiles ? query_tiles - first : 0;
  }
  // How many blocks of the chain add to a tile of queries before.
  int turn(int chain, int query_tile) const {
    const int unseen = is_causal && chain == 0 ? key_tiles - 1 - query_tile / ratio : 0;
    return unseen > 0 ? rank - unseen : rank;
  }
};

// A tile of queries among those of all chains.
inline int64_t joint_place(const Attention& of, int query_tiles, int chain, int64_t batch,
                           int64_t head, int tile) {
  return ((chain * of.batch + batch) * of.heads + head) * query_tiles + tile;
}
// Where a block is among the tiles of queries of a chain.
struct JointStep {
  int head, tile, first_tile, end;
  JointStep(const JointBlock& block, int chain)
      : head(block.first_head),
        tile(block.first_query_tile(chain)),
        first_tile(tile),
        end(block.query_tiles) {}
  void go_on() {
    if (++tile < end) return;
    tile = first_tile;
    ++head;
  }
};

// Where the tiles of a block lie in shared memory: keys and values; queries and gradients of
// results; gradients of scores, of two steps; gradients of queries; sums and deltas.
template <int kDim>
struct JointTiles {
  static constexpr int kQueries = joint_queries(kDim), kStages = joint_stages(kDim),
                       kKeyBytes = kJointKeys * 2 * kDim, kTileBytes = kQueries * 2 * kDim,
                       kPanelBytes = kJointKeys * kPanelPitch,
                       kScoreBytes = kQueries / kPanelColumns * kPanelBytes,
                       kQueryBytes = kQueries * kDim * 4, kSumBytes = kQueries * 4;
  SharedPlace keys, values, queries, gradients, score_gradients, query_gradients, sums, deltas;
  explicit JointTiles(SharedPlace memory)
      : keys(memory),
        values(keys + kKeyBytes),
        queries(values + kKeyBytes),
        gradients(queries + kStages * kTileBytes),
        score_gradients(gradients + kStages * kTileBytes),
        query_gradients(score_gradients + 2 * kScoreBytes),
        sums(query_gradients + kQueryBytes),
        deltas(sums + kStages * kSumBytes) {}
};

// Barriers of a block: a step begins; gradients of queries lie in shared memory; there is room for
// them (one for each four warps).
namespace joint_barrier {
inline constexpr int kTile = 1, kMade = 2, kRoom = 3;
}

// One warp: adds gradients of queries to those in memory, when it is the block's turn.
template <int kDim>
inline void add_joint_queries(const TensorAttentionBackward& parameters, const JointBlock& block,
                              const JointTiles<kDim>& tiles) {
  const JointGradients& joint = parameters.joint;
  const auto give_room = [] {
    meet_warp();
    come<kGroupThreads + 32>(joint_barrier::kRoom);
    come<kGroupThreads + 32>(joint_barrier::kRoom + 1);
  };
  give_room();
  for (int chain = 0; chain < block.chains(); ++chain) {
    if (!block.has(chain)) continue;
    const int count = block.tiles_of_head(chain) * block.heads;
    JointStep step(block, chain);
    for (int i = 0; i < count; ++i, step.go_on()) {
      const int64_t place = joint_place(parameters.all.of, block.query_tiles, chain, block.batch,
                                        step.head, step.tile);
      uint32_t* const turn = joint.turns + 1 + place;
      const auto own = static_cast<uint32_t>(block.turn(chain, step.tile));
      meet<kJointMultipliers + 32>(joint_barrier::kMade);
      if (lane() == 0) {
        wait_for_turn(turn, own);
        order_copies();
        float* const to = joint.of_query + place * (tiles.kQueryBytes / 4);
        if (own == 0)
          begin_write(to, tiles.query_gradients, tiles.kQueryBytes);
        else
          begin_add(to, tiles.query_gradients, tiles.kQueryBytes);
        wait_until_read();
      }
      give_room();
      if (lane() == 0) {
        wait_until_written();
        order_copies();
        give_turn(turn, own + 1);
      }
    }
  }
}

// A tile that these threads copy, one row after the other: they have few registers.
template <int kRows, int kDim, typename T>
inline void copy_joint_rows(SharedPlace tile, const HeadRows<T>& from, int first, int rows) {
  constexpr int kWords = kPanelPitch / 16, kAtOnce = kJointCopiers / kWords;
  static_assert(kAtOnce % 8 == 0);
  const int thread = static_cast<int>(threadIdx.x % kJointCopiers), row = thread / kWords,
            word = thread % kWords;
  for (int panel = 0; panel < kDim / kPanelColumns; ++panel) {
    const SharedPlace to = tile + (panel * kRows + row) * kPanelPitch + (word ^ (row % 8)) * 16;
    const T* const words = from.data + panel * kPanelColumns + word * 8;
#pragma unroll 4
    for (int r = 0; r < kRows; r += kAtOnce) {
      const bool exists = first + row + r < rows;
      copy_16(to + r * kPanelPitch,
              words + static_cast<int64_t>(exists ? first + row + r : 0) * from.row, exists);
    }
  }
}

// Two warps: copy the tiles of a step while those of the one before are used.
template <typename T, int kDim>
inline void copy_joint_tiles(const TensorAttentionBackward& parameters, const JointBlock& block,
                             const JointTiles<kDim>& tiles) {
  constexpr int kAll = kJointMultipliers + kJointCopiers, kQueries = JointTiles<kDim>::kQueries;
  using Own = Tiles<kDim, true>;
  const AttentionBackward& all = parameters.all;
  const Attention& of = all.of;
  for (int chain = 0; chain < block.chains(); ++chain) {
    if (!block.has(chain)) continue;
    const int count = block.tiles_of_head(chain) * block.heads;
    const auto begin_step = [&](const JointStep& step, int stage) {
      const int at = step.tile * kQueries, query_count = static_cast<int>(of.queries);
      copy_joint_rows<kQueries, kDim>(tiles.queries + stage * tiles.kTileBytes,
                                      HeadRows<T>(of.query, block.batch, step.head), at,
                                      query_count);
      copy_joint_rows<kQueries, kDim>(tiles.gradients + stage * tiles.kTileBytes,
                                      HeadRows<T>(all.gradient, block.batch, step.head), at,
                                      query_count);
      constexpr int kWords = kQueries / 4;
      const int word = static_cast<int>(threadIdx.x) % kWords,
                which = static_cast<int>(threadIdx.x) % kJointCopiers / kWords;
      const int64_t from =
          (block.batch * of.heads + step.head) * parameters.padded_queries + at + word * 4;
      if (which < 2)
        copy_16((which == 0 ? tiles.sums : tiles.deltas) + stage * tiles.kSumBytes + word * 16,
                (which == 0 ? parameters.sums : all.deltas) + from, true);
      end_copy_group();
    };
    meet<kAll>(joint_barrier::kTile);
    const int first = block.key_tile(chain) * kJointKeys, key_count = static_cast<int>(of.keys);
    copy_joint_rows<kJointKeys, kDim>(tiles.keys, HeadRows<T>(of.key, block.batch, block.key_head),
                                      first, key_count);
    copy_joint_rows<kJointKeys, kDim>(
        tiles.values, HeadRows<T>(of.value, block.batch, block.key_head), first, key_count);
    JointStep step(block, chain);
    if (count > 0) begin_step(step, 0);
    for (int i = 1, stage = 1; i <= count; ++i) {
      wait_for_copies<0>();
      Own::show_copies();
      meet<kAll>(joint_barrier::kTile);
      step.go_on();
      if (i < count) begin_step(step, stage);
      stage = stage + 1 < tiles.kStages ? stage + 1 : 0;
    }
    wait_for_copies<0>();
    meet<kAll>(joint_barrier::kTile);
  }
}

// Eight warps: multiply, four a half of the block's keys.
template <typename T, int kDim, bool kHasMask>
inline void multiply_joint_tiles(const TensorAttentionBackward& parameters, const JointBlock& block,
                                 const JointTiles<kDim>& tiles, const float* sums_in_memory) {
  constexpr int kAll = kJointMultipliers + kJointCopiers, kStep = kGroupRows,
                kStages = JointTiles<kDim>::kStages, kQueries = JointTiles<kDim>::kQueries;
  using Own = Tiles<kDim, true>;
  const Attention& of = parameters.all.of;
  const int four = own_four_warps();
  for (int chain = 0; chain < block.chains(); ++chain) {
    if (!block.has(chain)) continue;
    const int first = block.key_tile(chain) * kJointKeys, own = first + warp() * 16,
              count = block.tiles_of_head(chain) * block.heads;
    const bool hides_keys = first + kJointKeys > of.keys;
    const GroupRows<kJointKeys> key_rows(tiles.keys), value_rows(tiles.values);
    Sums<1, kDim / 8> of_key, of_value;
    Sums<1, kPanelColumns / 8> of_query;
    clear_sums<1, kDim / 8>(of_key);
    clear_sums<1, kDim / 8>(of_value);
    Sums<1, kStep / 8> scores, of_scores;
    Packed<1, kStep / 8> packed, of_packed;
    JointStep now(block, chain);
    int stage = 0, half_of_two = 0;
    const auto begin_scores = [&](int step) {
      Own::begin(scores);
      Own::template multiply<T, kQueries>(scores, key_rows,
                                          tiles.queries + stage * tiles.kTileBytes, step);
      Own::end();
    };
    const auto begin_score_gradients = [&](int step) {
      Own::begin(of_scores);
      Own::template multiply<T, kQueries>(of_scores, value_rows,
                                          tiles.gradients + stage * tiles.kTileBytes, step);
      Own::end();
    };
    const auto make_probabilities = [&](int step) {
      const TensorScores<kHasMask> scores_of(of, block.batch, now.head);
      const int at = now.tile * kQueries + step;
      if (kHasMask || hides_keys || (of.is_causal && own + 16 > at + 1))
        for_each_pair<1, kStep / 8>(scores, [&](int r, int half, int c, float& a, float& b) {
          const int k = own + row_in_tile(r, half), q = at + column_in_tile(c);
          a = scores_of.sees(q, k) ? scores_of.score(a, q, k) : minus_infinity<float>();
          b = scores_of.sees(q + 1, k) ? scores_of.score(b, q + 1, k) : minus_infinity<float>();
        });
      const float* const sums_now = sums_in_memory + stage * kQueries + step;
      for_each_pair<1, kStep / 8>(scores, [&](int, int, int c, float& a, float& b) {
        const float* const sum = sums_now + column_in_tile(c);
        a = scores_of.power(a, sum[0]);
        b = scores_of.power(b, sum[1]);
      });
    };
    // Their product with the gradients of results.
    const auto add_values = [&](int step) {
      pack_sums<T, 1, kStep / 8>(packed, scores);
      Own::begin(of_value, packed);
      Own::template add<T, kQueries>(of_value, packed, tiles.gradients + stage * tiles.kTileBytes,
                                     step);
      Own::end();
    };
    // Gradients of scores, for the others too,
    const auto make_score_gradients = [&](int step) {
      const float* const deltas_now = sums_in_memory + (kStages + stage) * kQueries + step;
      for_each_pair<1, kStep / 8>(of_scores, [&](int r, int half, int c, float& a, float& b) {
        const float* const delta = deltas_now + column_in_tile(c);
        a = scores[r][c][2 * half] * (a - delta[0]);
        b = scores[r][c][2 * half + 1] * (b - delta[1]);
      });
      pack_sums<T, 1, kStep / 8>(of_packed, of_scores);
      Own::store(of_packed, tiles.score_gradients + half_of_two * tiles.kScoreBytes +
                                step / kStep * tiles.kPanelBytes + warp() * 16 * kPanelPitch);
    };
    // and their product with the queries.
    const auto add_keys = [&](int step) {
      Own::begin(of_key, of_packed);
      Own::template add<T, kQueries>(of_key, of_packed, tiles.queries + stage * tiles.kTileBytes,
                                     step);
      Own::end();
    };
    // Of the step before, all keys of the block: of each four warps 64 queries, or 64 columns.
    const auto begin_queries = [&] {
      constexpr bool kHasHalves = kDim > kPanelColumns;
      Own::begin(of_query);
      Own::template multiply_terms<T, kJointKeys>(
          of_query,
          tiles.score_gradients + (1 - half_of_two) * tiles.kScoreBytes +
              (kHasHalves ? 0 : four) * tiles.kPanelBytes,
          tiles.keys + (kHasHalves ? four : 0) * tiles.kPanelBytes);
      Own::end();
    };
    const auto put_queries = [&] {
      meet<kGroupThreads + 32>(joint_barrier::kRoom + four);
      const SharedPlace to =
          tiles.query_gradients + four * (tiles.kQueryBytes / 2) + threadIdx.x % kGroupThreads * 16;
#pragma unroll
      for (int c = 0; c < kPanelColumns / 8; ++c)
        store_4(to + c * kGroupThreads * 16, of_query[0][c]);
      Own::show_copies();
      come<kJointMultipliers + 32>(joint_barrier::kMade);
    };
    const auto go_on = [&] {
      now.go_on();
      stage = stage + 1 < kStages ? stage + 1 : 0;
      half_of_two = 1 - half_of_two;
    };

    meet<kAll>(joint_barrier::kTile);
    // Gradients of queries are made while the next step's probabilities are.
    for (int i = 0; i < count; ++i, go_on()) {
      Own::show_copies();
      meet<kAll>(joint_barrier::kTile);
      if constexpr (kQueries == 2 * kStep) {
        begin_scores(0);
        begin_score_gradients(0);
        begin_queries();  // in the first step of nothing that is used
        Own::template wait<2>(scores, packed, of_packed, of_value, of_key);
        make_probabilities(0);
        add_values(0);
        Own::template wait<2>(of_scores);
        make_score_gradients(0);
        begin_scores(kStep);
        begin_score_gradients(kStep);
        add_keys(0);
        Own::template wait<4>(of_query);
        if (i > 0) put_queries();
        Own::template wait<2>(scores, packed, of_value);
        make_probabilities(kStep);
        add_values(kStep);
        Own::template wait<1>(of_scores, of_packed, of_key);
        make_score_gradients(kStep);
        add_keys(kStep);
      } else {  // with the registers that there are
        static_assert(kQueries == kStep);
        begin_queries();
        begin_scores(0);
        Own::template wait<1>(of_query);
        if (i > 0) put_queries();
        begin_score_gradients(0);
        Own::template wait<1>(scores);
        make_probabilities(0);
        Own::template wait<0>(of_scores);
        make_score_gradients(0);
        add_keys(0);
        add_values(0);
        Own::template wait<0>(packed, of_packed, of_value, of_key);
      }
    }
    Own::template wait<0>(packed, of_packed, of_value, of_key);
    Own::show_copies();
    meet<kAll>(joint_barrier::kTile);
    if (count > 0) {
      begin_queries();
      Own::template wait<0>(of_query);
      put_queries();
    }
    write_key_gradients<T, kDim>(parameters, of_key, of_value, block.batch, block.key_head,
                                 block.group, own);
  }
}

template <typename T, int kDim, bool kHasMask>
inline void tensor_attention_joint_gradients(const TensorAttentionBackward& parameters) {
  constexpr int kFirstOfRest = kJointMultipliers / 32;
  static_assert(kJointMultipliers == 2 * kGroupThreads && kJointKeys == 2 * kGroupRows);
  DC_SHARED_MEMORY(memory);
  const JointTiles<kDim> tiles(shared_place(memory));
  auto* const number = reinterpret_cast<uint32_t*>(memory);
  if (threadIdx.x == 0) *number = take_number(parameters.joint.turns);
  __syncthreads();
  const JointBlock block(parameters, static_cast<int>(*number));
  __syncthreads();
  // Of the registers of a multiprocessor a thread has 168 at first.
  constexpr int kMany = 232, kFew = 40;
  static_assert(kJointMultipliers * kMany + (kJointThreads - kJointMultipliers) * kFew <=
                kJointThreads * 168);
  if (warp() >= kFirstOfRest) {
    give_registers<kFew>();
    if (warp() == kFirstOfRest) add_joint_queries<kDim>(parameters, block, tiles);
    if (warp() >= kFirstOfRest + 2) copy_joint_tiles<T, kDim>(parameters, block, tiles);
  } else {
    take_registers<kMany>();
    multiply_joint_tiles<T, kDim, kHasMask>(
        parameters, block, tiles,
        reinterpret_cast<const float*>(memory + (tiles.sums - tiles.keys)));
  }
}

// Sums of the chains' gradients of queries: what a thread had of a tile, a thread takes.
template <typename T, int kDim>
inline void tensor_attention_query_sums(const TensorAttentionBackward& parameters) {
  const Attention& of = parameters.all.of;
  const int tiles = parameters.joint.query_tiles, key_tiles = parameters.joint.key_tiles,
            heads = static_cast<int>(of.heads),
            all_tiles = static_cast<int>(of.batch) * heads * tiles,
            thread = static_cast<int>(threadIdx.x);
  constexpr int kQueries = joint_queries(kDim), kColumns = kPanelColumns;
  static_assert(kBlockThreads == kJointMultipliers);
  // Each four warps have 64 queries or 64 columns.
  const int four = warp() / 4, first_row = kDim > kColumns ? 0 : four * kGroupRows,
            first_column = kDim > kColumns ? four * kColumns : 0;
  for (int i = static_cast<int>(blockIdx.x); i < all_tiles; i += static_cast<int>(gridDim.x)) {
    const int tile = i % tiles, head = i / tiles % heads, batch = i / tiles / heads;
    Sums<1, kColumns / 8> sums;
    clear_sums<1, kColumns / 8>(sums);
    for (int chain = 0; chain < JointGradients::chains(of.is_causal); ++chain) {
      const int unseen =
          key_tiles - 1 - tile / (kJointKeys / kQueries);  // by these queries, of the first chain
      const bool has = chain == 0
                           ? !of.is_causal || JointGradients::blocks(key_tiles, true) > unseen
                           : key_tiles > 1;
      if (!has) continue;
      const float* const from =
          parameters.joint.of_query +
          joint_place(of, tiles, chain, batch, head, tile) * (kQueries * kDim) +
          four * (kGroupRows * kColumns) + thread % kGroupThreads * 4;
#pragma unroll
      for (int c = 0; c < kColumns / 8; ++c) {
        const Pack<float, 4> part = load_pack<4>(from + c * kGroupThreads * 4);
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[0][c][j] += part.at[j];
      }
    }
    HeadRows<T> to(parameters.all.of_query, batch, head);
    to.data += first_column;
    write_sums(sums, to, tile * kQueries + first_row + warp() % 4 * 16,
               static_cast<int>(of.queries), of.scale);
  }
}

}  // namespace dc::runtime::kernel::cuda
