// Fuzz target: arbitrary bytes as a trace of the small plan, and as the events of a trace whose
// head is right. What is accepted names ranks, streams and instructions that the plan has.
#include <cstdlib>

#include "runtime/exec/trace_reader.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"
#include "tests/runtime/plan/plan_builder.h"

namespace {

using namespace dc::runtime;  // NOLINT

void try_file(std::string_view bytes) {
  static const plan::Loaded loaded{plan::test::tiny_plan(), std::string(64, 'd')};
  const dc::fuzz::MemoryFile file(bytes);
  const auto trace = exec::read_trace(file.path(), loaded);
  if (!trace.ok()) {
    if (trace.status().to_string().empty()) std::abort();
    return;
  }
  for (const exec::TraceEvent& event : trace->events) {
    if (event.rank < 0 || event.rank >= trace->ranks) std::abort();
    if (event.stream < 0 || event.program < 0 || event.instruction < 0) std::abort();
    const auto program = static_cast<size_t>(event.program);
    if (program >= loaded.plan.programs.size()) std::abort();
    const auto index = static_cast<size_t>(event.instruction);
    if (index >= loaded.plan.programs[program].instructions.size()) std::abort();
    if (event.end_ns < event.begin_ns) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try_file(bytes);
  try_file(R"({"otherData":{"schema":"dcrun-trace/1","plan":")" + std::string(64, 'd') +
           R"(","communicator":"local","ranks":2},"traceEvents":[)" + bytes + "]}");
  return 0;
}
