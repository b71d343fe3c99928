// A training run: what dcrun does between parsing its arguments and its exit code.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/rendezvous.h"
#include "runtime/plan/file.h"
#include "runtime/train/schedule.h"
#include "src/base/status.h"

namespace dc::runtime {

class TraceRecorder;  // runtime/exec/trace.h

struct TrainOptions {
  std::string weights;            // as given to --weights
  std::vector<std::string> data;  // as given to --data
  bool weights_only_by_name = false;
  int64_t steps = 1;
  std::optional<uint64_t> shuffle;
  std::string metrics, save, trace, dump_gradients;  // paths; empty: none
  std::string offload_dir;                           // for what the plan keeps on disk
  bool overwrite = false;  // --save and --metrics may replace what is there
  bool poison = false;
  bool record = false;  // keep this rank's records for the caller
  RunSettings settings;
};

struct Outcome {
  int64_t steps = 0;                               // updates done
  bool stopped = false;                            // a signal asked for it
  std::shared_ptr<const TraceRecorder> recording;  // with `record`; of the plan given to train
};

// Collective. Checks that all ranks run the same plan the same way, prepares, trains, saves.
base::Result<Outcome> train(const plan::Loaded& loaded, Job& job, const LaunchInfo& launch,
                            const TrainOptions& options);

}  // namespace dc::runtime
