// Trace: when each instruction ran on this rank, for Chrome's and Perfetto's viewers.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"
#include "src/base/status.h"

namespace dc::runtime {

class TraceRecorder {
 public:
  // Keeps the newest `capacity` records of each stream; memory is allocated here and never again.
  TraceRecorder(const plan::Plan& plan, int rank, size_t capacity);

  static int64_t now();  // nanoseconds of the monotonic clock, comparable between ranks of a host
  // Called by the one thread of `stream`.
  void record(int32_t stream, int32_t program, int32_t instruction, int64_t begin_ns,
              int64_t end_ns);

  int64_t dropped() const;  // records that were overwritten
  // Writes this rank's events as JSON objects, each but the first preceded by a comma.
  base::Status write_events(std::FILE* file, bool first) const;

 private:
  struct Record {
    int32_t program = 0, instruction = 0;
    int64_t begin_ns = 0, end_ns = 0;
  };
  struct Ring {
    std::vector<Record> records;
    uint64_t count = 0;  // ever recorded
  };
  void write_names(std::FILE* file, bool first) const;
  void write_record(std::FILE* file, size_t stream, const Record& record) const;

  const plan::Plan& plan_;
  int rank_;
  std::vector<Ring> rings_;  // by stream
};

// The plan's words for an instruction and the bytes it writes.
std::string instruction_name(const plan::Instruction& instruction);
int64_t written_bytes(const plan::Plan& plan, const plan::Instruction& instruction);

}  // namespace dc::runtime
