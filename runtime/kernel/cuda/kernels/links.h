// Places with equal keys, in their order, without sums that meet in memory: each place finds the
// next one with its key by comparing all, from shared memory. That takes the square of their number
// comparisons, and one order on every GPU.
#pragma once

#include "runtime/kernel/cuda/kernel_words.h"
#include "runtime/kernel/scalar/language.h"

namespace dc::runtime::kernel::cuda {

using scalar::int32_t, scalar::int64_t;

// Of each place the next with the same key, or `count`; its complement unless the place is the
// first with its key. key(place) is negative for places that are left out. A thread for each place.
template <typename Key>
inline void find_links(int32_t* links, int64_t count, Key key) {
  __shared__ int64_t tile[kBlockThreads];
  for (int64_t first = int64_t{blockIdx.x} * kBlockThreads; first < count;
       first += int64_t{gridDim.x} * kBlockThreads) {
    const int64_t place = first + threadIdx.x, own = place < count ? key(place) : -1;
    bool is_first = own >= 0;
    int64_t next = count;
    for (int64_t begin = 0; begin < count; begin += kBlockThreads) {
      const int64_t read = begin + threadIdx.x;
      __syncthreads();
      tile[threadIdx.x] = read < count ? key(read) : -1;
      __syncthreads();
      for (int64_t i = 0; i < kBlockThreads && begin + i < count; ++i) {
        const int64_t other = begin + i;
        if (tile[i] != own || other == place) continue;
        if (other < place) is_first = false;
        if (other > place && other < next) next = other;
      }
    }
    if (place < count) links[place] = static_cast<int32_t>(is_first ? next : ~next);
  }
}

inline bool is_first_of_key(const int32_t* links, int64_t place) { return links[place] >= 0; }
inline int64_t next_place(const int32_t* links, int64_t place) {
  const int32_t link = links[place];
  return link < 0 ? ~link : link;
}

}  // namespace dc::runtime::kernel::cuda
