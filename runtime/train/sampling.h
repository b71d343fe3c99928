// Which sample each row of a step reads. A global batch does not depend on how it is spread over
// ranks and micro-batches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "runtime/checkpoint/index.h"
#include "runtime/train/random.h"

namespace dc::runtime::train {

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

// Where a run begins: at step 0 of the first epoch, or where a checkpoint ended.
struct DataStart {
  int64_t step = 0;
  checkpoint::DataPosition position;
};

// Maps that sequence to the samples of a file: whole global batches only, then over again. A run
// that goes on with another global batch reads from the next sample on; its first epoch then ends
// where none of its whole ones is left.
class Sampler {
 public:
  Sampler(int64_t samples, BatchShape shape, std::optional<uint64_t> shuffle, DataStart start = {})
      : samples_(samples), shape_(shape), shuffle_(shuffle), start_(start) {}

  int64_t steps_per_epoch() const { return samples_ / shape_.per_step(); }
  int64_t epoch(int64_t step) const { return place(step).epoch; }
  int64_t sample(int64_t step, int64_t micro_batch, int64_t row) const {
    const Place at = place(step);
    const int64_t index = at.first + shape_.index(0, micro_batch, row);
    if (!shuffle_) return index;
    return permute(index, samples_, derive_key(*shuffle_, static_cast<uint64_t>(at.epoch)));
  }
  // After `steps` steps in all.
  checkpoint::DataPosition position(int64_t steps) const {
    checkpoint::DataPosition position = start_.position;
    if (steps == start_.step) return position;
    const Place last = place(steps - 1);
    position.samples += (steps - start_.step) * shape_.per_step();
    position.epoch = last.epoch;
    position.in_epoch = last.first + shape_.per_step();
    return position;
  }

 private:
  struct Place {
    int64_t epoch = 0, first = 0;  // the global batch begins with this sample of the epoch's order
  };
  Place place(int64_t step) const {
    const int64_t since = step - start_.step, batch = shape_.per_step();
    const checkpoint::DataPosition& from = start_.position;
    const int64_t in_first = std::max<int64_t>(samples_ - from.in_epoch, 0) / batch;
    if (since < in_first) return {from.epoch, from.in_epoch + since * batch};
    const int64_t later = since - in_first;
    return {from.epoch + 1 + later / steps_per_epoch(), later % steps_per_epoch() * batch};
  }

  int64_t samples_;
  BatchShape shape_;
  std::optional<uint64_t> shuffle_;
  DataStart start_;
};

}  // namespace dc::runtime::train
