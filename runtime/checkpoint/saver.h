// CheckpointSaver: all ranks write a checkpoint together, between steps or while the next ones run.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/index.h"
#include "runtime/checkpoint/rank_files.h"
#include "runtime/checkpoint/state_memory.h"
#include "runtime/comm/communicator.h"
#include "runtime/memory/host_space.h"

namespace dc::runtime::checkpoint {

// How a save ended; equal on all ranks but for the words of who failed.
struct SaveResult {
  int64_t step = 0;
  base::Status failure;  // nothing was saved
  // A value that is not finite, or "on another rank"; then nothing was saved either.
  std::string refused;
  bool saved() const { return failure.ok() && refused.empty(); }
};

class CheckpointSaver {
 public:
  struct Options {
    std::string folder;   // exists; rank 0's process has claimed it
    int64_t keep = 0;     // checkpoints that stay; 0: all
    bool copies = false;  // write while the next steps run, from a copy of the state in host memory
  };
  // `memory` must stay valid. OutOfMemory (80) if there is no room for the copy.
  static base::Result<std::unique_ptr<CheckpointSaver>> create(Options options,
                                                               const plan::Plan& plan,
                                                               StateMemory memory,
                                                               comm::Communicator& control);
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Of this rank's copy: what it saves of the state that is not on disk. Taken by create(), every
  // page of it, so that a save in the middle of a run needs no more.
  int64_t copy_bytes() const { return copy_.bytes(); }

  // All of these are collective, and fail only when the ranks cannot talk to each other.

  // Takes the state as it is now. While nothing is under way, and no step runs.
  base::Status begin(const RunState& run);
  // Whether all ranks have written theirs; rank 0 then publishes while the next steps run.
  // Between steps.
  base::Status look();
  // Waits for what is under way, which must be something.
  base::Result<SaveResult> settle();
  bool is_under_way() const { return under_way_; }
  // Equal on all ranks: what is under way has failed or was refused, so settle() does not wait.
  bool has_failed() const { return all_done_ && !result_.saved(); }

 private:
  CheckpointSaver(Options options, StateMemory memory, comm::Communicator& control)
      : options_(std::move(options)),
        folder_(options_.folder),
        memory_(std::move(memory)),
        control_(control) {}
  struct Verdict;
  base::Status lay_out(const RunState& run);
  base::Status store(const StatePart& part, size_t index);
  base::Status check_and_append(const StatePart& part, size_t index,
                                std::span<const std::byte> bytes);
  void take_state();
  void write_copies();
  void complete();
  base::Status exchange_verdicts();
  base::Status publish();
  void join();

  Options options_;
  CheckpointFolder folder_;
  StateMemory memory_;
  comm::Communicator& control_;
  std::vector<StatePart> parts_;
  const plan::Plan* plan_ = nullptr;
  memory::HostSpace copy_;
  std::vector<int64_t> copy_offset_;  // by part; -1: not copied

  // Of the save that is under way.
  bool under_way_ = false, all_done_ = false;
  RunState run_;
  std::vector<RankFiles> files_;  // at most one
  std::thread thread_;            // writes copies, then, on rank 0, publishes
  std::atomic<bool> done_{false};
  base::Status status_;   // of this rank's writing, then of publishing
  std::string refused_;   // a value of this rank that is not finite
  std::string manifest_;  // SHA-256 of what this rank wrote
  std::vector<std::string> manifests_;
  SaveResult result_;
};

}  // namespace dc::runtime::checkpoint
