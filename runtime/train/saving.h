// Saving: what --save keeps of a run: its weights in one file at the end, or checkpoints in a
// folder, at the end and every so many steps.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/saver.h"
#include "runtime/train/claim.h"
#include "runtime/train/train.h"
#include "src/base/device_kind.h"

namespace dc::runtime::train {

// What became of the state at the end.
struct Saved {
  bool refused = false;  // it is not finite, so nothing was written
  std::string sentence;  // continues a message; empty without --save
};

class Saving {
 public:
  // Proves, on rank 0, that --save can be written and claims it: CannotWrite (73) if another run
  // writes there, or if it would replace the work of a run that this one does not continue.
  // `resumed`: the checkpoint that this run began with, or empty. `held`: the claim of the folder,
  // if it was made before. `made`: gets the folders that were made.
  static base::Result<Claim> claim(const TrainOptions& options, const std::string& resumed,
                                   Claim held, std::vector<std::string>& made);

  // OutOfMemory (80) if what the plan has in the host's memory and the copy that --save-every takes
  // do not fit, for all ranks of this host, into the memory that is free. Before any of it is
  // taken; nothing if the system does not say how much is free. `device`: where the plan runs.
  static base::Status check_memory(const TrainOptions& options, const plan::Plan& plan, int rank,
                                   int ranks_of_host, base::DeviceKind device,
                                   std::optional<int64_t> free);

  // `quiesce` waits until the state is at rest.
  static base::Result<std::unique_ptr<Saving>> create(const TrainOptions& options,
                                                      const plan::Plan& plan,
                                                      const std::string& digest,
                                                      checkpoint::StateMemory memory,
                                                      comm::Communicator& control,
                                                      std::function<base::Status()> quiesce);

  // Collective, after each step but the last. `position`: in the data. Failures to save are said on
  // stderr and do not end the run; NonFinite (84) when the state turns out not to be finite.
  base::Status after_step(int64_t steps, const checkpoint::DataPosition& position);
  // Collective, at the end. `updated`: parameters of a step that was applied in part. A failure to
  // save ends the run.
  base::Result<Saved> finish(int64_t steps, const checkpoint::DataPosition& position,
                             std::vector<std::string> updated);
  // The newest checkpoint that this run has published or begun with; empty if none.
  const std::string& newest() const { return newest_; }
  int64_t copy_bytes() const { return saver_ ? saver_->copy_bytes() : 0; }
  void begun_with(const std::string& checkpoint) { newest_ = checkpoint; }

 private:
  Saving(const TrainOptions& options, const plan::Plan& plan, const std::string& digest,
         checkpoint::StateMemory memory, comm::Communicator& control,
         std::function<base::Status()> quiesce)
      : options_(options),
        plan_(plan),
        digest_(digest),
        memory_(std::move(memory)),
        control_(control),
        quiesce_(std::move(quiesce)) {}
  base::Status settle_periodic();
  base::Result<Saved> finish_checkpoint(int64_t steps, const checkpoint::DataPosition& position);
  base::Result<Saved> finish_weights(const std::string& path, int64_t steps,
                                     std::vector<std::string> updated);
  Saved refused(const std::string& value) const;
  std::string newest_text() const;

  const TrainOptions& options_;
  const plan::Plan& plan_;
  const std::string& digest_;
  checkpoint::StateMemory memory_;
  comm::Communicator& control_;
  std::function<base::Status()> quiesce_;
  std::unique_ptr<checkpoint::CheckpointSaver> saver_;  // null: a weights file, or nothing
  std::string newest_;
};

}  // namespace dc::runtime::train
