// The loss of an output layer and the gradients of its logits, some rows or classes at a time.
#pragma once

#include "runtime/kernel/cuda/kernels/blocks.h"
#include "runtime/kernel/cuda/kernels/logit_parameters.h"
#include "runtime/kernel/scalar/elements.h"
#include "runtime/kernel/scalar/math.h"

namespace dc::runtime::kernel::cuda {

template <typename T>
inline const T* logits_of_row(const LogitPart& part, int64_t row) {
  return row < part.rows_in_first
             ? static_cast<const T*>(part.logits) + row * part.classes
             : static_cast<const T*>(part.more_logits) + (row - part.rows_in_first) * part.classes;
}

template <typename T>
inline bool in_packs(const T* row, int64_t count) {
  return count % kRowPack == 0 && scalar::bit_cast<scalar::uint64_t>(row) % 16 == 0;
}
// f(first, pack) for the thread's packs of a row, of 8 elements or of one.
template <typename T, typename F>
inline void for_each_pack_of_row(const T* row, int64_t count, bool packs, F f) {
  if (packs) {
    for (int64_t c = kRowPack * threadIdx.x; c < count; c += kRowTile)
      f(c, load_pack<kRowPack>(row + c));
  } else {
    for_each_in_block(count, [&](int64_t c) { f(c, load_pack<1>(row + c)); });
  }
}

// Of each x its exponential, in less time if all are moderate.
template <int kCount>
inline void exponentials(float (&x)[kCount]) {
  bool moderate = true;
  for (int k = 0; k < kCount; ++k) moderate = moderate && scalar::math::is_moderate(x[k]);
  if (moderate) {
    for (int k = 0; k < kCount; ++k) x[k] = scalar::math::exp_in_range(x[k]);
  } else {
    for (int k = 0; k < kCount; ++k) x[k] = scalar::math::exp(x[k]);
  }
}

// What a part leaves of a row; one thread calls it.
template <typename T>
inline void leave_powers(const LogitPart& parameters, int64_t row, const T* logits, double sum,
                         float largest) {
  parameters.powers[row] = {sum, largest};
  const int64_t place = parameters.targets[row] - parameters.first_class;
  if (place >= 0 && place < parameters.classes) parameters.own[row] = scalar::load(logits[place]);
}

// A block takes a row. Thread t adds the exponentials of logits t, t + kBlockThreads, ... in order.
// Those of a row that is no longer than a tile come to it through shared memory.
template <typename T>
inline void logit_powers(const LogitPart& parameters) {
  __shared__ Pack<T, kRowPack> tile[kBlockThreads];
  T* const staged = reinterpret_cast<T*>(tile);
  const int64_t classes = parameters.classes;
  const bool is_staged = classes <= kRowTile;
  for (int64_t row = blockIdx.x; row < parameters.rows; row += gridDim.x) {
    const T* logits = logits_of_row<T>(parameters, row);
    float largest = minus_infinity<float>();
    for_each_pack_of_row(logits, classes, in_packs(logits, classes),
                         [&]<int kCount>(int64_t first, const Pack<T, kCount>& pack) {
                           for (int k = 0; k < kCount; ++k)
                             largest = larger(largest, scalar::load(pack.at[k]));
                           if (is_staged) store_pack(staged + first, pack);
                         });
    largest = block_largest(largest);
    const T* const seen = is_staged ? staged : logits;
    double sum = 0;
    for (int64_t begin = threadIdx.x; begin < classes; begin += kRowTile) {
      float powers[kRowPack];
      const auto exists = [&](int k) { return begin + k * int64_t{kBlockThreads} < classes; };
      for (int k = 0; k < kRowPack; ++k)
        powers[k] =
            exists(k) ? scalar::load(seen[begin + k * int64_t{kBlockThreads}]) - largest : 0.0f;
      exponentials(powers);
      for (int k = 0; k < kRowPack; ++k)
        if (exists(k)) sum += static_cast<double>(powers[k]);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) leave_powers(parameters, row, logits, sum, largest);
  }
}

// The same for rows of exactly a tile that lie on 16 bytes, of a 16-bit type (a block's fit its
// shared memory), a warp for each, which need no barriers of blocks: a thread adds for threads
// lane, lane + 32 ... of a block, then as block_sum does.
template <typename T>
inline void logit_powers_of_tiles(const LogitPart& parameters) {
  constexpr unsigned kWarp = 32, kWarps = kBlockThreads / kWarp;
  constexpr int kPacks = kRowTile / (kRowPack * kWarp);
  static_assert(kWarps == 8 && sizeof(T) == 2);
  __shared__ Pack<T, kRowPack> tiles[kWarps][kBlockThreads];
  const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  T* const staged = reinterpret_cast<T*>(tiles[warp]);
  for (int64_t row = int64_t{blockIdx.x} * kWarps + warp; row < parameters.rows;
       row += int64_t{gridDim.x} * kWarps) {
    const T* logits = logits_of_row<T>(parameters, row);
    float largest = minus_infinity<float>();
    Pack<T, kRowPack> packs[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      packs[p] = load_pack<kRowPack>(logits + kRowPack * (lane + p * kWarp));
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int k = 0; k < kRowPack; ++k) largest = larger(largest, scalar::load(packs[p].at[k]));
      store_pack(staged + kRowPack * (lane + p * kWarp), packs[p]);
    }
    for (unsigned half = kWarp / 2; half > 0; half /= 2)
      largest = larger(largest, exchange(largest, half));
    meet_warp();
    double sums[kWarps];
#pragma unroll
    for (unsigned t = 0; t < kWarps; ++t) {
      float powers[kRowPack];
#pragma unroll
      for (int k = 0; k < kRowPack; ++k)
        powers[k] = scalar::load(staged[lane + t * kWarp + k * kBlockThreads]) - largest;
      exponentials(powers);
      sums[t] = 0;
#pragma unroll
      for (int k = 0; k < kRowPack; ++k) sums[t] += static_cast<double>(powers[k]);
    }
    double sum =
        ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
    for (unsigned half = kWarp / 2; half > 0; half /= 2) sum += exchange(sum, half);
    meet_warp();
    if (lane == 0) leave_powers(parameters, row, logits, sum, largest);
  }
}

// One block. How many rows count.
inline void logit_total(const LogitLoss& parameters) {
  double total = 0;
  for_each_in_block(parameters.rows, [&](int64_t row) {
    total += parameters.targets[row] == parameters.ignored ? 0 : 1;
  });
  total = block_sum(total);
  if (threadIdx.x == 0) *parameters.total = static_cast<float>(total);
}

// A thread takes a row. A class that there is not makes the loss NaN, which ends the run.
inline void logit_rows(const LogitLoss& parameters) {
  const int64_t rows = parameters.rows;
  for (int64_t row = first_element<int64_t>(); row < rows; row += all_threads<int64_t>()) {
    const LogitPowers* powers = parameters.powers + row;
    float largest = minus_infinity<float>();
    for (int64_t p = 0; p < parameters.parts; ++p)
      largest = larger(largest, powers[p * rows].largest);
    double sum = 0;
    for (int64_t p = 0; p < parameters.parts; ++p) {
      const LogitPowers& part = powers[p * rows];
      // A part of -inf alone adds nothing.
      if (part.largest == minus_infinity<float>() && largest != part.largest) continue;
      sum += part.sum * static_cast<double>(scalar::math::exp(part.largest - largest));
    }
    const auto log_of_sum = static_cast<float>(scalar::log(sum));
    parameters.largest[row] = largest;
    parameters.log_of_sum[row] = log_of_sum;
    const int64_t target = parameters.targets[row];
    const bool exists = target >= 0 && target < parameters.classes;
    const float loss = exists ? -(parameters.own[row] - largest - log_of_sum)
                              : scalar::numeric_limits<float>::quiet_NaN();
    parameters.losses[row] = target == parameters.ignored ? 0.0f : loss;
  }
}

// One block, after logit_total.
inline void logit_loss(const LogitLoss& parameters) {
  double sum = 0;
  for_each_in_block(parameters.rows,
                    [&](int64_t row) { sum += static_cast<double>(parameters.losses[row]); });
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  const double total = parameters.is_mean ? static_cast<double>(*parameters.total) : 1.0;
  *parameters.loss = static_cast<float>(sum / total);
}

// A block takes a row.
template <typename T>
inline void logit_gradients(const LogitPart& parameters) {
  float of_loss = *parameters.loss_gradient;
  if (parameters.is_mean) of_loss = of_loss / *parameters.total;
  const int64_t classes = parameters.classes;
  for (int64_t row = blockIdx.x; row < parameters.rows; row += gridDim.x) {
    const int64_t target = parameters.targets[row];
    const bool counts = target != parameters.ignored;
    const int64_t own_class = counts ? target - parameters.first_class : -1;
    const float sum = counts ? 0.0f - of_loss : 0.0f;
    const float largest = parameters.largest[row], log_of_sum = parameters.log_of_sum[row];
    const T* logits = logits_of_row<T>(parameters, row);
    T* to = static_cast<T*>(parameters.gradients) + row * classes;
    for_each_pack_of_row(
        logits, classes, in_packs(logits, classes) && in_packs(to, classes),
        [&]<int kCount>(int64_t first, const Pack<T, kCount>& pack) {
          const int64_t own_place = own_class - first;
          const int at = own_place >= 0 && own_place < kCount ? static_cast<int>(own_place) : -1;
          float powers[kCount];
          for (int k = 0; k < kCount; ++k)
            powers[k] = scalar::load(pack.at[k]) - largest - log_of_sum;
          exponentials(powers);
          Pack<T, kCount> gradients;
          for (int k = 0; k < kCount; ++k) {
            const float own = k == at ? -of_loss : 0.0f;
            gradients.at[k] = scalar::store<T>(own - powers[k] * sum);
          }
          store_pack(to + first, gradients);
        });
  }
}

}  // namespace dc::runtime::kernel::cuda
