// The folder of --save: one sub-folder per checkpoint, "step-00000100", and how they come and go.
//
// A checkpoint is written as ".step-00000100.partial" and renamed when every byte of it is on the
// disk; one that goes is renamed to ".step-00000100.removed" first. So whatever has a plain name is
// whole, and what was killed leaves hidden folders that the next run removes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace dc::runtime::checkpoint {

struct StoredCheckpoint {
  int64_t step = 0;
  std::string path;
};

class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string root) : root_(std::move(root)) {}

  const std::string& root() const { return root_; }
  std::string path_of(int64_t step) const;     // of the whole checkpoint
  std::string partial_of(int64_t step) const;  // while it is written

  // Whole checkpoints, newest last. Empty if there is no such folder.
  std::vector<StoredCheckpoint> list() const;

  // The rest is for the one process that has claimed the folder.

  // Makes an empty folder partial_of(step). Io or CannotWrite.
  base::Status begin(int64_t step) const;
  // The partial folder becomes the checkpoint of its step, in place of one that was there. Later
  // ones, of a run that this one does not continue, go.
  base::Status publish(int64_t step) const;
  void abandon(int64_t step) const;       // the partial folder goes
  void keep_newest(int64_t count) const;  // older ones go
  void remove_leftovers() const;          // of processes that were killed

 private:
  base::Status put_in_place(int64_t step) const;
  base::Status retire(const std::string& path) const;
  void remove_hidden(std::string_view ending) const;
  std::string root_;
};

// What --resume names: a checkpoint, or a folder of them (its newest). MissingInput (66) if there
// is none.
base::Result<std::string> find_checkpoint(const std::string& path);

// Folder entries reach the disk.
base::Status flush_folder(const std::string& path);

}  // namespace dc::runtime::checkpoint
