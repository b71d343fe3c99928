// A training run: what dcrun does between parsing its arguments and its exit code.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/rendezvous.h"
#include "runtime/plan/file.h"
#include "runtime/train/schedule.h"
#include "src/base/status.h"

namespace dc::runtime::exec {
class TraceRecorder;
}

namespace dc::runtime::train {

// How --save and --resume are read.
inline constexpr std::string_view kLatest = "latest";
inline bool is_weights_path(const std::string& save) { return save.ends_with(".safetensors"); }

struct TrainOptions {
  std::string weights;            // as given to --weights
  std::vector<std::string> data;  // as given to --data
  bool weights_only_by_name = false;
  int64_t steps = 1;  // in all, those before a resumed checkpoint included
  std::optional<uint64_t> shuffle;
  std::string metrics, save, trace, dump_gradients;  // paths; empty: none
  std::vector<std::string> eval_data;                // as given to --eval-data
  int64_t eval_every = 0;                            // steps between evaluations; 0: none
  int64_t eval_batches = 0;  // micro-batches of an evaluation in all; 0: all of the data
  int64_t save_every = 0;    // steps between checkpoints; 0: only at the end
  int64_t keep = 0;          // newest checkpoints that stay; 0: all
  std::string resume;        // a checkpoint, a folder of them, or "latest"; empty: start anew
  std::string offload_dir;   // for what the plan keeps on disk
  bool overwrite = false;    // --save and --metrics may replace what is there
  bool poison = false;
  bool graphs = true;   // on devices that can record programs
  bool record = false;  // keep this rank's records for the caller
  RunSettings settings;
};

struct Outcome {
  int64_t begun = 0;     // updates that the resumed checkpoint had
  int64_t steps = 0;     // updates done in all
  std::string saved;     // what became of the state, as a clause; empty without --save
  bool stopped = false;  // a signal asked for it
  std::shared_ptr<const exec::TraceRecorder>
      recording;  // with `record`; of the plan given to train
};

// Collective. Checks that all ranks run the same plan the same way, prepares, trains, saves.
base::Result<Outcome> train(const plan::Loaded& loaded, comm::ProcessGroup& job,
                            const comm::LaunchInfo& launch, const TrainOptions& options);

}  // namespace dc::runtime::train
