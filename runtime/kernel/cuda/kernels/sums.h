// From gradients and losses to the step's few scalars. The order of every sum is written down.
#pragma once

#include "runtime/kernel/cuda/kernels/blocks.h"
#include "runtime/kernel/cuda/kernels/fours.h"
#include "runtime/kernel/cuda/kernels/parameters.h"
#include "runtime/kernel/scalar/elements.h"

namespace dc::runtime::kernel::cuda {

// Leaves what the block has found. The last block to come here finds what all have left, and the
// count of blocks as it was, 0.
inline bool is_last_block(const SquareSum& parameters, double sum, double others) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    parameters.parts[2 * blockIdx.x] = sum;
    parameters.parts[2 * blockIdx.x + 1] = others;
    __threadfence();
    is_last = atomicAdd(parameters.done, 1u) == gridDim.x - 1;
    if (is_last) *parameters.done = 0;
  }
  __syncthreads();
  __threadfence();
  return is_last;
}

template <typename G>
inline void square_sum(const SquareSum& parameters) {
  constexpr int64_t kLanes = int64_t{kSquareSumBlocks} * kBlockThreads;
  constexpr int kPack = kSquareSumPack, kPacks = 4;  // whose reads do not wait for each other
  const auto lane = first_element<int64_t>();
  const auto scale = static_cast<float>(parameters.hyperparameters[base::kHyperGradScale]);
  // A product of two f32 is exact in f64, so the sum is rounded once either way.
  const auto add_square = [&](double& to, G element) {
    const auto x = static_cast<double>(static_cast<float>(scalar::load(element)) * scale);
    to = scalar::fma(x, x, to);
  };
  double sum = 0, others = 0;
  const G* counted = static_cast<const G*>(parameters.g) + parameters.counted_first;
  const int64_t count = parameters.counted_count, packs = count / kPack;
  int64_t at = lane;
  if (parameters.in_packs) {
    for (; at + (kPacks - 1) * kLanes < packs; at += kPacks * kLanes) {
      Pack<G, kPack> read[kPacks];
      for (int k = 0; k < kPacks; ++k)
        read[k] = load_pack<kPack>(counted + kPack * (at + k * kLanes));
      for (int k = 0; k < kPacks; ++k) {
        for (int j = 0; j < kPack; ++j) add_square(sum, read[k].at[j]);
      }
    }
    for (; at < packs; at += kLanes) {
      const auto read = load_pack<kPack>(counted + kPack * at);
      for (int j = 0; j < kPack; ++j) add_square(sum, read.at[j]);
    }
  }
  for (; kPack * at < count; at += kLanes) {
    for (int64_t i = kPack * at; i < count && i < kPack * (at + 1); ++i)
      add_square(sum, counted[i]);
  }
  // Of these only whether all are finite counts.
  const int64_t skipped = parameters.counted_first - parameters.checked_first;
  const G* checked = static_cast<const G*>(parameters.g) + parameters.checked_first;
  const bool has_others = parameters.checked_count > count;
  for (int64_t i = lane; i < parameters.checked_count - count; i += kLanes)
    add_square(others, checked[i < skipped ? i : i + count]);
  sum = block_sum(sum);
  if (has_others) others = block_sum(others);
  if (gridDim.x > 1) {
    if (!is_last_block(parameters, sum, others)) return;
    sum = others = 0;
    for (unsigned block = threadIdx.x; block < gridDim.x; block += kBlockThreads) {
      sum += parameters.parts[2 * block];
      others += parameters.parts[2 * block + 1];
    }
    sum = block_sum(sum);
    if (has_others) others = block_sum(others);
  }
  if (threadIdx.x == 0) *parameters.cell = scalar::is_finite(others) ? sum : sum + others;
}

template <typename T>
inline void rank_sum(const RankSum& parameters) {
  const T* own = static_cast<const T*>(parameters.own);
  const auto load = [&](int64_t rank, int64_t element) {
    if (rank == parameters.rank) return scalar::load(own[element]);
    const int64_t place = rank < parameters.rank ? rank : rank - 1;
    const char* other = static_cast<const char*>(parameters.others) + place * parameters.stride;
    return scalar::load(reinterpret_cast<const T*>(other)[element]);
  };
  for (int64_t i = first_element<int64_t>(); i < parameters.count; i += all_threads<int64_t>()) {
    float sum = load(0, i);
    for (int64_t rank = 1; rank < parameters.ranks; ++rank) sum += load(rank, i);
    parameters.sum[i] = sum;
  }
}

template <typename T>
inline void mapped_rank_sum(const MappedRankSum& parameters) {
  const auto load = [&](int64_t rank, int64_t element) {
    return scalar::load(static_cast<const T*>(parameters.inputs[rank])[element]);
  };
  for (int64_t i = first_element<int64_t>(); i < parameters.count; i += all_threads<int64_t>()) {
    float sum = load(0, i);
    for (int64_t rank = 1; rank < parameters.ranks; ++rank) sum += load(rank, i);
    parameters.sum[i] = sum;
  }
}

// One thread.
template <typename T>
inline void add_loss(const AddLoss& parameters) {
  if (first_element<int64_t>() != 0) return;
  *parameters.sum += static_cast<double>(scalar::load(*static_cast<const T*>(parameters.loss)));
}
inline void check_finite(const scalar::CheckFinite& parameters) {
  if (first_element<int64_t>() == 0) parameters.run();
}

// One block: the columns of its parameters are summed at once, and added by the first thread.
inline void clip_and_check(const scalar::ClipAndCheck& parameters) {
  __shared__ double columns[kBlockThreads];
  const unsigned thread = threadIdx.x;
  const double loss = parameters.loss();
  scalar::ClipAndCheck::Found found;
  for (int64_t first = 0; first < parameters.parameters; first += kBlockThreads) {
    if (first + thread < parameters.parameters) columns[thread] = parameters.column(first + thread);
    __syncthreads();
    if (thread == 0) {
      for (int64_t p = first; p < first + kBlockThreads && p < parameters.parameters; ++p)
        parameters.add(found, p, columns[p - first], scalar::is_finite(loss));
    }
    __syncthreads();
  }
  if (thread == 0) parameters.finish(found, loss);
}

}  // namespace dc::runtime::kernel::cuda
