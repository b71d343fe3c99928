// The weights of a state as one safetensors file with the names of the model, for anybody to load.
#pragma once

#include <string>
#include <vector>

#include "runtime/checkpoint/state_memory.h"
#include "runtime/checkpoint/state_parts.h"
#include "runtime/checkpoint/tensor_file.h"
#include "runtime/plan/plan.h"

namespace dc::runtime::checkpoint {

struct WeightFacts {
  std::string plan_digest;
  int64_t step = 0;                             // updates that the parameters have seen
  std::vector<std::string> updated_parameters;  // after a partly applied step; empty otherwise
};

// Every parameter in its own dtype under its canonical name, and the persistent buffers. Equal on
// all ranks. In the order in which readers want them: wide elements first, then by name.
std::vector<FileTensor> weight_tensors(const std::vector<StatePart>& parts);
// Whether this rank's part is a range of one of them: buffers are those of rank 0.
bool is_weight(const StatePart& part, int rank);
// Tied names stand in the metadata.
TensorFile::Metadata weight_metadata(const plan::Plan& plan, const WeightFacts& facts);

// Collective. Writes the file at `path`; it appears whole or not at all. `parts`: of
// parts_to_save().
base::Status save_weights(const std::string& path, const plan::Plan& plan,
                          const std::vector<StatePart>& parts, const StateMemory& memory,
                          const WeightFacts& facts, comm::Communicator& control);

}  // namespace dc::runtime::checkpoint
