// SampledData: a data source with a number of samples, which a Sampler deals out.
#pragma once

#include <utility>

#include "runtime/train/data.h"
#include "runtime/train/sampling.h"

namespace dc::runtime::train {

class SampledData : public DataSource {
 public:
  int64_t steps_per_epoch() const override { return sampler_.steps_per_epoch(); }
  int64_t epoch(int64_t step) const override { return sampler_.epoch(step); }
  checkpoint::DataPosition position(int64_t steps) const override {
    return sampler_.position(steps);
  }

 protected:
  SampledData(int64_t samples, const DataRequest& request)
      : sampler_(samples, request.shape, request.shuffle, request.start) {}

  Sampler sampler_;
};

}  // namespace dc::runtime::train
