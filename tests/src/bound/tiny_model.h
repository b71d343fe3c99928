// TinyModel: a small normalized step as the enumerator sees it: kernels, values, parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "src/cost/cost_model.h"
#include "src/ir/step.h"

namespace dc::bound::test {

struct TinyKernel {
  int64_t time = 0, scratch = 0;
  std::vector<int> reads;       // values
  std::vector<int> parameters;  // that it reads whole
  int makes = -1;               // value
  bool backward = false;
  int gradient = -1;  // parameter whose whole gradient it makes
};
struct TinyValue {
  int64_t bytes = 0;
  int maker = -1;  // kernel; -1: an input
  bool saved = false;
};
struct TinyParameter {
  int64_t whole = 0, shard = 0, bytes = 0;  // aligned; as collectives take them
};

struct TinyModel {
  std::vector<TinyKernel> kernels;
  std::vector<TinyValue> values;
  std::vector<TinyParameter> parameters;
};

inline int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

TinyModel read(const ir::Step& step, const cost::CostModel& cost);

}  // namespace dc::bound::test
