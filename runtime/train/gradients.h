// --dump-gradients: the whole gradients of one step by name, reduced and scaled, before clipping.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/checkpoint/tensor_file.h"
#include "runtime/exec/executor.h"
#include "runtime/plan/saved_state.h"

namespace dc::runtime::train {

class GradientDump {
 public:
  // Collective: creates DIR/gradients.safetensors with an f32 tensor per trainable parameter.
  static base::Result<std::unique_ptr<GradientDump>> create(const std::string& folder,
                                                            const plan::Plan& plan,
                                                            comm::Communicator& control);
  // To be called after every instruction: writes this rank's ranges of the gradients that are ready
  // by now.
  base::Status after_instruction(const exec::Executor& executor, int32_t program, int32_t index);
  base::Status finish();  // collective

 private:
  struct Entry {
    std::string name;
    int32_t tensor = -1, ready = -1;
    int64_t elements = 0, shard = 0;
    int32_t place = -1;  // of the range that this rank writes, counted in shards; -1: none
    bool written = false;
  };
  GradientDump(checkpoint::TensorFile file, int32_t program, int32_t hyperparameters)
      : file_(std::move(file)), program_(program), hyperparameters_(hyperparameters) {}
  // A range of a parameter's gradient, scaled, which begins at element `from` of this rank's
  // tensor.
  base::Status write(const exec::Executor& executor, const Entry& entry, int64_t from,
                     plan::ElementRange range);

  checkpoint::TensorFile file_;
  int32_t program_;          // the one that holds the update
  int32_t hyperparameters_;  // tensor
  std::vector<Entry> entries_;
};

}  // namespace dc::runtime::train
