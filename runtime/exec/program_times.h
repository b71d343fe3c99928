// ProgramTimes: how long a program's commands take compute's stream, by timestamps between them.
// Private to this folder.
#pragma once

#include <memory>
#include <vector>

#include "runtime/device/device.h"

namespace dc::runtime::exec {

// Written anew by each run, or by each launch of a graph that it was recorded in.
class ProgramTimes {
 public:
  // Of each instruction, or of the program as a whole with no timestamp in it.
  enum class Of : uint8_t { Instructions, Program };
  ProgramTimes(device::Device& device, Of of) : device_(device), of_(of) {}

  // In this order, on one stream, as the program is issued.
  void begin(device::Stream& compute);
  void command_issued(device::Stream& compute, int32_t instruction);
  void end(device::Stream& compute);

  // After the stream was drained: nanoseconds by instruction, from the end of the command before
  // it; 0 for those that were not issued to the stream. What a timestamp itself takes, as those in
  // a row at the end show, is not in them; the least is 1.
  base::Result<std::vector<int64_t>> read(size_t instructions) const;
  // The same for times of a program: nanoseconds.
  base::Result<int64_t> read_program() const { return interval(1); }

 private:
  void write(device::Stream& compute);
  base::Result<int64_t> interval(size_t last) const {
    return stamps_[last]->since(*stamps_[last - 1]);
  }

  device::Device& device_;
  Of of_;
  std::vector<std::unique_ptr<device::Timestamp>> stamps_;  // from the first run on
  size_t written_ = 0;
  std::vector<int32_t> instructions_;  // in order of issue
};

}  // namespace dc::runtime::exec
