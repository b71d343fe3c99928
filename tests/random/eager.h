// What eager PyTorch makes of a model: NAME.eager.json, which modules.py writes.
#pragma once

#include <string>
#include <vector>

#include "tests/random/run_case.h"

namespace dc::test {

struct EagerRun {
  RandomCase facts;  // model, world, micro-batches, optimizer, clipping; the rest as in references
  std::vector<double> losses, norms;
  double loss_bound = 0, norm_bound = 0;  // relative
};

// Empty where there is no such file.
base::Result<std::vector<EagerRun>> eager_runs(const std::string& folder, const std::string& model);

// The first step that is further away than its bound, in words; empty if none is.
std::string difference(const EagerRun& eager, const Numbers& ours);

}  // namespace dc::test
