// Files: read-only mappings, whole reads, and writes that appear at once or not at all.
//
// Failures: MissingInput (66) for an input that is not there, CannotWrite (73) for an output that
// cannot be created, Io (74) for anything that goes wrong later. Each names the path and the cause.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "src/base/status.h"

namespace dc::base {

// A whole regular file mapped read-only. An empty file maps to an empty span. If it becomes shorter
// meanwhile, reading what is gone ends the process (report_lost_inputs() in mapped_inputs.h).
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// BadInput (65) for a file of more than `max_bytes`, and for what is no regular file.
inline constexpr int64_t kMaxTextBytes = int64_t{1} << 30;
Result<std::string> read_file(const std::string& path, int64_t max_bytes = kMaxTextBytes);

// Takes the room on the disk for the file's first `bytes` bytes, as posix_fallocate() does; a
// signal does not end it. 0, or the error.
int take_room(int descriptor, int64_t bytes);

// A file under construction: a temporary in the destination's folder until commit().
//
// One process creates it; others may join it by its temporary path and write other ranges.
// Nobody may write after the creator committed. Destroyed without commit, a created file is
// removed.
class OutputFile {
 public:
  // Creates the temporary with `bytes` bytes (zeros until written; space is reserved if possible).
  // Of a symbolic link the file is what it names: commit() replaces that, and the link stays.
  static Result<OutputFile> create(const std::string& path, int64_t bytes = 0);
  // The same under its own name from the start, for a folder that is itself a temporary: `path`
  // must not exist, nothing is removed or renamed, and there is no commit().
  static Result<OutputFile> create_new(const std::string& path, int64_t bytes = 0);
  static Result<OutputFile> join(const std::string& temporary_path);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& temporary_path() const { return temporary_; }
  Status write_at(int64_t offset, std::span<const uint8_t> bytes);
  Status flush();   // data reaches the disk
  Status commit();  // flush, rename over the destination, flush the folder; creator only

 private:
  OutputFile() = default;
  void discard();
  std::string path_;  // empty when joined
  std::string temporary_;
  int descriptor_ = -1;
};

// CannotWrite (73) if no file can be made at `path`: to be asked before long work. Leaves nothing
// there.
Status check_writable(const std::string& path);

// Usage (64) if the output `path` is the file that one of `inputs` names: writing would destroy it.
// What is empty or not there is no input.
Status check_no_input(const std::string& path, std::span<const std::string> inputs);
// Both, for an output that a command writes at its end.
Status check_output(const std::string& path, std::span<const std::string> inputs);
Status write_file_atomically(const std::string& path, std::span<const uint8_t> bytes);
Status write_file_atomically(const std::string& path, std::string_view text);

}  // namespace dc::base
