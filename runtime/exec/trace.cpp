#include "runtime/exec/trace.h"

#include <time.h>

#include <algorithm>

#include "runtime/plan/awaited.h"
#include "runtime/plan/names.h"
#include "src/base/json_writer.h"
#include "src/base/shape.h"

namespace dc::runtime::exec {
namespace {

std::string quoted(const std::string& text) {
  std::string out;
  base::append_json_string(out, text);
  return out;
}

}  // namespace

std::string instruction_name(const plan::Instruction& instruction) {
  switch (instruction.kind) {
    case plan::InstructionKind::Kernel:
      return instruction.op;
    case plan::InstructionKind::Collective:
      return std::string(plan::name(instruction.collective));
    case plan::InstructionKind::Copy:
      return "copy";
    case plan::InstructionKind::Signal:
      return "signal";
    case plan::InstructionKind::Wait:
      return "wait";
  }
  return "instruction";
}

int64_t written_bytes(const plan::Plan& plan, const plan::Instruction& instruction) {
  int64_t bytes = 0;
  if (instruction.kind == plan::InstructionKind::Collective) {
    for (const plan::CollectiveBuffer& buffer : instruction.buffers) {
      const plan::Tensor& input = plan.tensors[static_cast<size_t>(buffer.input)];
      bytes += buffer.elements * base::byte_size(input.dtype);
    }
    return bytes;
  }
  for (const int32_t id : instruction.writes) {
    const plan::Tensor& tensor = plan.tensors[static_cast<size_t>(id)];
    bytes += base::numel(tensor.sizes) * base::byte_size(tensor.dtype);
  }
  return bytes;
}

TraceRecorder::TraceRecorder(const plan::Plan& plan, int rank, size_t capacity, Outside outside)
    : plan_(plan),
      rank_(rank),
      outside_(outside),
      runs_(plan.programs.size()),
      rings_(std::max<size_t>(plan.streams.size(), 1)) {
  for (Ring& ring : rings_) ring.records.resize(std::max<size_t>(capacity, 1));
  int32_t place = 0;
  for (const plan::ProgramRun& run : plan.step) {
    for (int32_t i = 0; i < run.repeat; ++i) {
      runs_[static_cast<size_t>(run.program)].push_back(place++);
    }
  }
  for (const plan::Program& program : plan.programs) {
    causes_.push_back(plan::awaited(plan, program));
  }
}

int64_t TraceRecorder::now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * int64_t{1000000000} + time.tv_nsec;
}

void TraceRecorder::record(int32_t stream, int32_t program, int32_t instruction, uint32_t epoch,
                           int64_t begin_ns, int64_t end_ns) {
  Ring& ring = rings_[static_cast<size_t>(stream)];
  if (outside_ == Outside::Begin && ring.count > 0 && is_outside(program)) {
    const Record& last = ring.records[(ring.count - 1) % ring.records.size()];
    if (is_outside(last.program)) return;
  }
  ring.records[ring.count % ring.records.size()] = {program, instruction, epoch, begin_ns, end_ns};
  ++ring.count;
}

int64_t TraceRecorder::dropped() const {
  uint64_t sum = 0;
  for (const Ring& ring : rings_) {
    sum += ring.count - std::min<uint64_t>(ring.count, ring.records.size());
  }
  return static_cast<int64_t>(sum);
}

void TraceRecorder::write_names(std::FILE* file, bool first) const {
  std::fprintf(file,
               "%s{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"rank "
               "%d\"}}",
               first ? "" : ",\n", rank_, rank_);
  for (size_t s = 0; s < rings_.size(); ++s) {
    const std::string name = s < plan_.streams.size() ? plan_.streams[s].name : "compute";
    std::fprintf(file,
                 ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%zu,\"name\":\"thread_name\",\"args\":{"
                 "\"name\":%s}}",
                 rank_, s, quoted(name).c_str());
  }
}

TraceEvent TraceRecorder::event(size_t stream, const Record& record) const {
  TraceEvent event;
  event.rank = rank_;
  event.stream = static_cast<int32_t>(stream);
  event.program = record.program;
  event.instruction = record.instruction;
  event.begin_ns = record.begin_ns;
  event.end_ns = record.end_ns;
  // A program outside the step, run once before it, belongs to no step.
  const std::vector<int32_t>& runs = runs_[static_cast<size_t>(record.program)];
  const size_t before = record.epoch - 1;
  if (!runs.empty()) {
    event.step = static_cast<int32_t>(before / runs.size() + 1);
    event.run = runs[before % runs.size()];
  }
  return event;
}

std::vector<TraceEvent> TraceRecorder::events() const {
  std::vector<TraceEvent> list;
  for (size_t s = 0; s < rings_.size(); ++s) {
    const Ring& ring = rings_[s];
    const uint64_t size = ring.records.size();
    for (uint64_t i = ring.count - std::min(ring.count, size); i < ring.count; ++i) {
      list.push_back(event(s, ring.records[i % size]));
    }
  }
  return list;
}

std::string TraceRecorder::exposed_wait(const TraceEvent& event) const {
  const plan::Program& program = plan_.programs[static_cast<size_t>(event.program)];
  const auto index = static_cast<size_t>(event.instruction);
  // A collective on the compute stream is fully exposed: compute waits for all of its time.
  const bool own = program.instructions[index].kind == plan::InstructionKind::Collective;
  const int32_t cause =
      own ? event.instruction : causes_[static_cast<size_t>(event.program)][index];
  if (event.stream != 0 || cause < 0) return "";
  const plan::Instruction& awaited = program.instructions[static_cast<size_t>(cause)];
  return ",\"awaits\":{\"index\":" + std::to_string(cause) +
         ",\"name\":" + quoted(instruction_name(awaited)) +
         ",\"module\":" + quoted(awaited.module) +
         ",\"bytes\":" + std::to_string(written_bytes(plan_, awaited)) + "}";
}

void TraceRecorder::write_event(std::FILE* file, const TraceEvent& event) const {
  const plan::Program& program = plan_.programs[static_cast<size_t>(event.program)];
  const plan::Instruction& instruction =
      program.instructions[static_cast<size_t>(event.instruction)];
  std::fprintf(file,
               ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":%s,"
               "\"cat\":\"%s\",\"args\":{\"step\":%d,\"run\":%d,\"program\":%s,\"index\":%d,"
               "\"module\":%s,\"bytes\":%lld%s}}",
               event.rank, event.stream, static_cast<double>(event.begin_ns) / 1000.0,
               static_cast<double>(event.end_ns - event.begin_ns) / 1000.0,
               quoted(instruction_name(instruction)).c_str(),
               std::string(plan::name(instruction.phase)).c_str(), event.step, event.run,
               quoted(program.name).c_str(), event.instruction, quoted(instruction.module).c_str(),
               static_cast<long long>(written_bytes(plan_, instruction)),
               exposed_wait(event).c_str());
}

base::Status TraceRecorder::write_events(std::FILE* file, bool first) const {
  write_names(file, first);
  for (const TraceEvent& event : events()) write_event(file, event);
  if (std::ferror(file)) {
    return base::Status(base::ErrorKind::Io, "DC6621", "the trace could not be written");
  }
  return base::ok_status();
}

}  // namespace dc::runtime::exec
