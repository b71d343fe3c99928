// Which sample each row of a step reads. A global batch does not depend on how it is spread over
// ranks and micro-batches.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/train/random.h"

namespace dc::runtime {

// How one step divides its global batch.
struct BatchShape {
  int64_t accumulation = 1;  // micro-batches per step
  int64_t world = 1;
  int64_t rank = 0;
  int64_t rows = 1;  // per micro-batch and rank

  int64_t per_step() const { return accumulation * world * rows; }
  // Index of a row in the endless sequence of samples; `step` counts from 0.
  int64_t index(int64_t step, int64_t micro_batch, int64_t row) const {
    return ((step * accumulation + micro_batch) * world + rank) * rows + row;
  }
};

// Maps that sequence to the samples of a file: whole global batches only, then over again.
class Sampler {
 public:
  Sampler(int64_t samples, BatchShape shape, std::optional<uint64_t> shuffle)
      : samples_(samples), shape_(shape), shuffle_(shuffle) {}

  int64_t steps_per_epoch() const { return samples_ / shape_.per_step(); }
  int64_t epoch(int64_t step) const { return step / steps_per_epoch(); }
  int64_t sample(int64_t step, int64_t micro_batch, int64_t row) const {
    const int64_t index = shape_.index(step % steps_per_epoch(), micro_batch, row);
    if (!shuffle_) return index;
    return permute(index, samples_, derive_key(*shuffle_, static_cast<uint64_t>(epoch(step))));
  }

 private:
  int64_t samples_;
  BatchShape shape_;
  std::optional<uint64_t> shuffle_;
};

}  // namespace dc::runtime
