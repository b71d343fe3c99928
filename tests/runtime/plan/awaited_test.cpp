#include "runtime/plan/awaited.h"

#include <gtest/gtest.h>

namespace dc::runtime::plan {
namespace {

Instruction on_stream(InstructionKind kind, int32_t stream, int32_t event = -1) {
  Instruction in;
  in.kind = kind;
  in.stream = stream;
  in.event = event;
  return in;
}

TEST(Awaited, TheLastWorkBeforeTheLatestSignal) {
  Plan plan;
  plan.streams = {{"compute", Space::Device}, {"comm", Space::Device}};
  plan.events = 3;
  Program program;
  program.instructions = {
      on_stream(InstructionKind::Signal, 0, 0),  // before any work
      on_stream(InstructionKind::Wait, 1, 0),
      on_stream(InstructionKind::Collective, 1),
      on_stream(InstructionKind::Signal, 1, 1),
      on_stream(InstructionKind::Kernel, 0),
      on_stream(InstructionKind::Collective, 1),  // after the signal: not what 6 waits for
      on_stream(InstructionKind::Wait, 0, 1),
      on_stream(InstructionKind::Signal, 1, 1),  // the same event again
      on_stream(InstructionKind::Wait, 0, 1),
      on_stream(InstructionKind::Wait, 0, 2),  // for an earlier run
  };
  EXPECT_EQ(awaited(plan, program), (std::vector<int32_t>{-1, -1, -1, -1, -1, -1, 2, -1, 5, -1}));
}

}  // namespace
}  // namespace dc::runtime::plan
