// Places with equal keys, in their order, without sums that meet in memory: each place finds the
// next one with its key by comparing all, from shared memory. That takes the square of their number
// comparisons, and one order on every GPU.
#pragma once

#include "runtime/kernel/cuda/kernel_words.h"
#include "runtime/kernel/cuda/kernels/index_parameters.h"
#include "runtime/kernel/scalar/language.h"

namespace dc::runtime::kernel::cuda {

using scalar::int32_t, scalar::int64_t;

// Of each place the next with the same key, or `count`; its complement unless the place is the
// first with its key. key(place) is negative for places that are left out. kLinkThreads threads for
// each place: of every tile each sees a part, then the first joins what they found.
template <typename Key>
inline void find_links(int32_t* links, int64_t count, Key key) {
  constexpr int kPlaces = kBlockThreads / kLinkThreads;
  __shared__ int64_t tile[kBlockThreads];
  __shared__ int64_t next_of[kLinkThreads][kPlaces];
  __shared__ bool is_first_of[kLinkThreads][kPlaces];
  const int own_place = static_cast<int>(threadIdx.x) % kPlaces,
            part = static_cast<int>(threadIdx.x) / kPlaces;
  for (int64_t first = int64_t{blockIdx.x} * kPlaces; first < count;
       first += int64_t{gridDim.x} * kPlaces) {
    const int64_t place = first + own_place, own = place < count ? key(place) : -1;
    bool is_first = own >= 0;
    int64_t next = count;
    for (int64_t begin = 0; begin < count; begin += kBlockThreads) {
      const int64_t read = begin + threadIdx.x;
      __syncthreads();
      tile[threadIdx.x] = read < count ? key(read) : -1;
      __syncthreads();
      if (own < 0) continue;
      for (int i = 0; i < kPlaces; ++i) {
        const int at = part * kPlaces + i;
        if (tile[at] != own) continue;
        const int64_t other = begin + at;
        if (other < place) is_first = false;
        if (other > place && other < next) next = other;
      }
    }
    next_of[part][own_place] = next;
    is_first_of[part][own_place] = is_first;
    __syncthreads();
    if (part != 0 || place >= count) continue;
    for (int i = 1; i < kLinkThreads; ++i) {
      is_first = is_first && is_first_of[i][own_place];
      next = next_of[i][own_place] < next ? next_of[i][own_place] : next;
    }
    links[place] = static_cast<int32_t>(is_first ? next : ~next);
  }
}

inline bool is_first_of_key(const int32_t* links, int64_t place) { return links[place] >= 0; }
inline int64_t next_place(const int32_t* links, int64_t place) {
  const int32_t link = links[place];
  return link < 0 ? ~link : link;
}

}  // namespace dc::runtime::kernel::cuda
