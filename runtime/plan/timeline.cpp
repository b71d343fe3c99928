#include "runtime/plan/timeline.h"

#include <algorithm>

namespace dc::runtime::plan {

bool has_timeline(const Plan& plan) {
  return std::all_of(plan.programs.begin(), plan.programs.end(), [](const Program& program) {
    return program.duration_ns.size() == program.instructions.size();
  });
}

namespace {

// What the run before left: when each stream is free and each event given, from the beginning of
// the run.
struct Left {
  std::vector<int64_t> now, given;
};

ProgramTimeline play(const Program& program, Left& left) {
  ProgramTimeline line;
  std::vector<int64_t>&now = left.now, &given = left.given;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& in = program.instructions[i];
    int64_t& time = now[static_cast<size_t>(in.stream)];
    const int64_t begin = time;
    if (in.kind == InstructionKind::Wait) {
      time = std::max(time, given[static_cast<size_t>(in.event)]);
    } else if (in.kind == InstructionKind::Signal) {
      given[static_cast<size_t>(in.event)] = time;
    } else {
      time += program.duration_ns[i];
    }
    const bool collective = in.kind == InstructionKind::Collective;
    if (collective) line.collective_ns += time - begin;
    if (in.stream == 0 && (collective || in.kind == InstructionKind::Wait)) {
      line.exposed_ns += time - begin;
    }
    line.begin_ns.push_back(begin);
    line.end_ns.push_back(time);
    line.time_ns = std::max(line.time_ns, time);
  }
  const int64_t ended = now[0];
  for (std::vector<int64_t>* times : {&now, &given}) {
    for (int64_t& time : *times) time = std::max<int64_t>(time - ended, 0);
  }
  return line;
}

// Else every stream has ended when a program begins.
bool waits_for_earlier_run(const Plan& plan, const Program& program) {
  std::vector<bool> given(static_cast<size_t>(plan.events));
  for (const Instruction& in : program.instructions) {
    if (in.kind == InstructionKind::Signal) given[static_cast<size_t>(in.event)] = true;
    if (in.kind == InstructionKind::Wait && !given[static_cast<size_t>(in.event)]) return true;
  }
  return false;
}

}  // namespace

ProgramTimeline predicted_timeline(const Plan& plan, const Program& program) {
  Left left{std::vector<int64_t>(std::max<size_t>(plan.streams.size(), 1)),
            std::vector<int64_t>(static_cast<size_t>(plan.events))};
  if (waits_for_earlier_run(plan, program))
    (void)play(plan.programs[static_cast<size_t>(plan.step.back().program)], left);
  return play(program, left);
}

}  // namespace dc::runtime::plan
