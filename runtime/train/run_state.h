// What a checkpoint says of the run that wrote it.
#pragma once

#include "runtime/checkpoint/index.h"
#include "runtime/plan/plan.h"
#include "runtime/train/train.h"

namespace dc::runtime::train {

// Settings that decide what the steps compute, by name. A run that resumes with other values
// computes something else.
base::JsonValue run_configuration(const plan::Plan& plan, const TrainOptions& options);

// After `steps` updates in all.
checkpoint::RunState run_state(const plan::Plan& plan, const std::string& digest,
                               const TrainOptions& options, int64_t steps,
                               const checkpoint::DataPosition& position);

}  // namespace dc::runtime::train
