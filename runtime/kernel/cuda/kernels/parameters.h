// The parameters of the kernels of this folder, for those who launch them too. Pointers are
// addresses of the device.
#pragma once

#include "runtime/kernel/scalar/step_checks.h"
#include "runtime/kernel/scalar/update.h"

namespace dc::runtime::kernel::cuda {

using scalar::int64_t, scalar::uint32_t, scalar::uint64_t, scalar::uint8_t;

// What an update reads and writes besides its state. `g` and `copy` are of the element types that
// the kernel is for; the copy may be null. `in_fours`: as for_each_four wants it of all, the state
// too.
struct Updated {
  float* p;
  const void* g;
  void* copy;
  int64_t count;
  bool in_fours;
};
struct AdamW {
  Updated of;
  float *m, *v;
  scalar::UpdateControl control;
};
// The buffer is read with momentum only.
struct Sgd {
  Updated of;
  float* buffer;
  scalar::UpdateControl control;
  bool momentum, nesterov;
};
// `x` and `y` are of the element type that the kernel is for; the mask may be null.
struct Dropout {
  const void* x;
  void* y;
  uint8_t* mask;
  const uint64_t* rng;
  int64_t count;
  uint32_t op, threshold;
  float scale;
};

// A sum of squares of a scaled gradient. The order of its terms depends on no GPU:
// elements 8 i to 8 i + 7 of the counted range belong to lane i % (kSquareSumBlocks *
// kBlockThreads), whose elements are added in order, in f64; lanes of one block are added as a tree
// over halves, then so the blocks.
inline constexpr unsigned kSquareSumBlocks = 512, kSquareSumPack = 8;
struct SquareSum {
  const void* g;  // of the element type that the kernel is for
  const double* hyperparameters;
  // Elements that count, and around them those that must be finite.
  int64_t counted_first, counted_count, checked_first, checked_count;
  bool in_packs;   // the counted range begins on 16 bytes
  double* parts;   // of each block: the sum, and that of the others
  unsigned* done;  // blocks that have left theirs; 0 before and after
  double* cell;
};

// The sum of what ranks have for the same elements, in rank order, in f32. `own` and `others`,
// which are those of the other ranks in rank order, are of the element type that the kernel is for.
struct RankSum {
  const void* own;
  const void* others;
  int64_t stride;  // bytes from one of the others to the next
  int64_t rank, ranks, count;
  float* sum;  // may be `own`
};

// The same where all ranks' elements are in memory that this GPU reaches.
inline constexpr int kMostMappedRanks = 64;
struct MappedRankSum {
  const void* inputs[kMostMappedRanks];  // by rank
  int64_t ranks, count;
  float* sum;  // may be one of the inputs
};

// Rows of logits, of the element type that the kernel is for, each with its class.
struct CrossEntropy {
  void* logits;
  const int64_t* targets;
  int64_t rows, classes, ignored;
  bool is_mean;
  float *loss, *total;          // one number
  float *largest, *log_of_sum;  // of each row
  const float* loss_gradient;   // one number; of the backward kernel alone
};

// `loss` is of the element type that the kernel is for.
struct AddLoss {
  double* sum;
  const void* loss;
};

}  // namespace dc::runtime::kernel::cuda
