// Trace: when each instruction ran on this rank, for Chrome's and Perfetto's viewers.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"
#include "src/base/status.h"

namespace dc::runtime::exec {

inline constexpr const char* kTraceSchema = "dcrun-trace/1";

// When one instruction ran, once.
struct TraceEvent {
  int32_t rank = 0, stream = 0;
  int32_t step = 0;  // 1 for the first; 0: outside the steps
  int32_t run = 0;   // of programs, within the step; 0 for the first
  int32_t program = 0, instruction = 0;
  int64_t begin_ns = 0, end_ns = 0;
};

class TraceRecorder {
 public:
  // What is kept of programs outside of the steps: all, or on each stream where they begin only,
  // so that they take no step's place.
  enum class Outside : uint8_t { All, Begin };
  // Keeps the newest `capacity` records of each stream; memory is allocated here and never again.
  TraceRecorder(const plan::Plan& plan, int rank, size_t capacity, Outside outside = Outside::All);

  static int64_t now();  // nanoseconds of the monotonic clock, comparable between ranks of a host
  // Called by the one thread of `stream`. `epoch` counts the runs of the program, 1 for the first.
  void record(int32_t stream, int32_t program, int32_t instruction, uint32_t epoch,
              int64_t begin_ns, int64_t end_ns);

  int64_t dropped() const;                 // records that were overwritten
  std::vector<TraceEvent> events() const;  // what is kept: by stream, then time
  // Writes this rank's events as JSON objects, each but the first preceded by a comma. An event
  // says in which step it ran (1 for the first) and in which of the step's runs of programs (0 for
  // the first). One in which compute waited names what it waited for; its duration is exposed
  // waiting.
  base::Status write_events(std::FILE* file, bool first) const;

 private:
  struct Record {
    int32_t program = 0, instruction = 0;
    uint32_t epoch = 0;
    int64_t begin_ns = 0, end_ns = 0;
  };
  struct Ring {
    std::vector<Record> records;
    uint64_t count = 0;  // ever recorded
  };
  bool is_outside(int32_t program) const { return runs_[static_cast<size_t>(program)].empty(); }
  void write_names(std::FILE* file, bool first) const;
  TraceEvent event(size_t stream, const Record& record) const;
  void write_event(std::FILE* file, const TraceEvent& event) const;
  // ',"awaits":{...}' where compute waited, else nothing.
  std::string exposed_wait(const TraceEvent& event) const;

  const plan::Plan& plan_;
  int rank_;
  Outside outside_;
  std::vector<std::vector<int32_t>> runs_;    // by program: its places among the runs of a step
  std::vector<std::vector<int32_t>> causes_;  // by program and instruction: what a wait waits for
  std::vector<Ring> rings_;                   // by stream
};

// The plan's words for an instruction and the bytes it writes.
std::string instruction_name(const plan::Instruction& instruction);
int64_t written_bytes(const plan::Plan& plan, const plan::Instruction& instruction);

}  // namespace dc::runtime::exec
