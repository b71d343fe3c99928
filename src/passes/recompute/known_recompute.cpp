#include "src/passes/recompute/known_recompute.h"

#include <algorithm>

namespace dc::passes {

KnownRecompute::KnownRecompute(const ir::Step& step, const cost::CostModel& cost, int64_t whole)
    : whole_(whole) {
  for (const ir::Program& program : step.programs)
    programs_.emplace_back(step, program.graph, cost);
}

const std::vector<RecomputeChoice>& KnownRecompute::lowest() {
  if (lowest_.empty()) {
    for (const RecomputeProgram& program : programs_) lowest_.push_back(choose(program, 0));
  }
  return lowest_;
}

const std::vector<RecomputeChoice>& KnownRecompute::block_inputs() {
  if (block_inputs_.empty()) {
    for (const RecomputeProgram& program : programs_) {
      RecomputeChoice& choice = block_inputs_.emplace_back();
      choice.kept = keep_block_inputs(program);
      choice.timeline = settle(program, choice.kept);
    }
  }
  return block_inputs_;
}

int64_t KnownRecompute::most_bytes() {
  if (!most_bytes_) {
    most_bytes_ = 0;
    for (const RecomputeProgram& program : programs_)
      *most_bytes_ = std::max(*most_bytes_, evaluate(program, keep_everything(program)).peak);
  }
  return *most_bytes_;
}

}  // namespace dc::passes
