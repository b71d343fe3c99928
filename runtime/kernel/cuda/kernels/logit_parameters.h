// The parameters of the kernels of logits.h, for those who launch them too.
#pragma once

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/kernels/walk.h"

namespace dc::runtime::kernel::cuda {

// Elements of a row that a block has at once: a thread reads 8 neighbours, where they lie on 16
// bytes.
inline constexpr int kRowPack = 8;
inline constexpr int64_t kRowTile = int64_t{kRowPack} * kBlockThreads;

// Of the classes of one part of a row.
struct LogitPowers {
  double sum;  // of exp(logit - largest)
  float largest;
};

// Some classes of some rows. Logits are of the element type that the kernel is for.
struct LogitPart {
  const void* logits;       // of the first rows, [rows_in_first, classes]
  const void* more_logits;  // of the other rows
  void* gradients;          // [rows, classes]; may be where the logits are
  const int64_t* targets;   // of the rows
  int64_t rows, rows_in_first, classes, first_class;
  LogitPowers* powers;                // of each row
  float* own;                         // of each row the logit of its class, if that is of the part
  const float *largest, *log_of_sum;  // of each row
  const float *loss_gradient, *total;
  int64_t ignored;
  bool is_mean;
};

// From the powers of all parts to the numbers of rows and the loss.
struct LogitLoss {
  const LogitPowers* powers;  // [parts, rows]
  const float* own;
  const int64_t* targets;
  int64_t rows, parts, classes, ignored;
  float *largest, *log_of_sum, *losses;  // of each row
  float *loss, *total;
  bool is_mean;
};

}  // namespace dc::runtime::kernel::cuda
