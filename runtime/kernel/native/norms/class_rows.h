// Cross entropy of rows of logits, each with its class: what its kernels do with one row,
// or with some of its classes. They share it, so that they give the same bits.
#pragma once

#include "runtime/kernel/native/norms/rows.h"

namespace dc::runtime::kernel::native {

// The class of each row.
struct ClassTargets {
  std::byte* data = nullptr;  // i64, its address on the device
  int64_t rows = 0, classes = 0, ignored = -100;
  bool is_mean = true;

  const int64_t* on(const device::Stream& stream) const {
    return reinterpret_cast<const int64_t*>(stream.resolve(data));
  }
  bool counts(int64_t target) const { return target != ignored; }
  base::Status check(int64_t target) const;  // refuses classes that there are not (65)
};

// Of some classes of a row.
struct PowerSum {
  float largest = 0;  // logit
  double sum = 0;     // of exp(logit - largest), in the order of fold.h
};
PowerSum sum_powers(const RowTensor<float>& logits, const std::byte* row, int64_t classes);

// Of all classes of a row from those of its parts, `stride` apart.
PowerSum join_powers(const PowerSum* parts, int64_t count, int64_t stride);

// Of a whole row.
struct RowNumbers {
  float largest = 0;     // logit
  float log_of_sum = 0;  // of exp(logit - largest)
};
RowNumbers row_numbers(const PowerSum& all);

// `logit`: of the row's own class.
float row_loss(float logit, const RowNumbers& numbers);

// What the gradient of a row's logits is made from.
struct RowGradient {
  float loss = 0;  // gradient of the row's loss
  RowNumbers numbers;
  bool counts = true;
};
// Of `count` classes: from the logits at `from` to `to`, which may be the same, of the logits'
// type. `target`: the row's own class among them; outside of [0, count) if it is another.
void write_gradients(const RowTensor<float>& logits, const std::byte* from, std::byte* to,
                     int64_t count, int64_t target, const RowGradient& row);

}  // namespace dc::runtime::kernel::native
