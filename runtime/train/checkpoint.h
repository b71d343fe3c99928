// --save: full parameters as one safetensors file, written by all ranks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/kernel/kernel.h"
#include "runtime/memory/disk_space.h"
#include "runtime/plan/plan.h"
#include "runtime/train/tensor_file.h"

namespace dc::runtime {

using TensorBinder = std::function<BoundTensor(int32_t)>;

// This rank's part of a value of `elements` elements whose flat shards have `shard` (0: the whole
// is rank 0's).
struct OwnRange {
  int64_t first = 0, count = 0;
};
OwnRange own_range(int64_t elements, int64_t shard, int rank);

// What this rank writes of one tensor of the file.
struct CheckpointPart {
  FileTensor file;
  int32_t tensor = -1;       // of the plan
  bool is_buffer = false;    // else a parameter
  OwnRange range;            // of the file's tensor
  int64_t source_first = 0;  // of the rank's tensor
};
std::vector<CheckpointPart> checkpoint_parts(const plan::Plan& plan, int rank);

struct CheckpointFacts {
  std::string plan_digest;
  int64_t step = 0;                             // updates that the parameters have seen
  std::vector<std::string> updated_parameters;  // after a partly applied step; empty otherwise
};

// Collective. Writes DIR/model.safetensors: every parameter in its own type under its canonical
// name (tied names stand in the metadata), and the persistent buffers of rank 0. The file appears
// whole or not at all. `disk`: where the plan's state on disk lies, if there is any.
base::Status save_checkpoint(const std::string& folder, const plan::Plan& plan,
                             const TensorBinder& bind, const CheckpointFacts& facts,
                             Communicator& control, DiskSpace* disk = nullptr);

// Creates the folder if needed and proves that a file can be made in it: CannotWrite (73)
// otherwise.
base::Status prepare_folder(const std::string& folder);
// Collective. All ranks write into the folder together, so on several hosts it must be one that
// they share: CannotWrite (73) before the first step otherwise.
base::Status check_shared(const std::string& folder, Communicator& control);
// The same as prepare_folder for a file that will be written later.
base::Status prepare_file(const std::string& path);

}  // namespace dc::runtime
