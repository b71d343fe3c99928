// --resume: which checkpoint, whether it fits, and what is different now.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/checkpoint/reader.h"
#include "runtime/checkpoint/state_memory.h"
#include "runtime/checkpoint/state_parts.h"
#include "runtime/comm/communicator.h"
#include "runtime/train/sampling.h"

namespace dc::runtime::train {

class Resuming {
 public:
  // Collective. `from`: --resume; `save`: --save, where "latest" looks. Null if "latest" found no
  // checkpoint. Errors of the checkpoint name the newest other one that is whole.
  static base::Result<std::unique_ptr<Resuming>> open(const std::string& from,
                                                      const std::string& save,
                                                      const plan::Plan& plan,
                                                      comm::Communicator& control);

  const std::string& path() const { return reader_->path(); }
  DataStart start() const { return {reader_->run().step, reader_->run().data}; }
  // What this run does differently, as a clause; empty if nothing. `now`: of run_configuration().
  std::string differences(const base::JsonValue& now) const;
  // What becomes of buffers that each rank has for itself when their ranks are more or fewer than
  // those that saved, as a sentence that names them; empty if nothing does.
  std::string moved_buffers(const plan::Plan& plan) const;
  // Fills this rank's part of the state.
  base::Status restore(const plan::Plan& plan, const checkpoint::StateMemory& memory);

 private:
  Resuming(std::unique_ptr<checkpoint::CheckpointReader> reader,
           std::vector<checkpoint::StatePart> parts)
      : reader_(std::move(reader)), parts_(std::move(parts)) {}
  std::unique_ptr<checkpoint::CheckpointReader> reader_;
  std::vector<checkpoint::StatePart> parts_;
};

}  // namespace dc::runtime::train
