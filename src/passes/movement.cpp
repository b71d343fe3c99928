#include "src/passes/movement.h"

#include <string>
#include <vector>

#include "src/base/text.h"
#include "src/cost/transfer.h"
#include "src/schedule/time_axis.h"
#include "src/sim/simulate.h"

namespace dc::passes {
namespace {

std::vector<base::RemarkSubject> subjects_of(const Movement& what) {
  using cost::Collective;
  std::vector<base::RemarkSubject> subjects;
  const auto add = [&](Collective kind) {
    subjects.push_back({base::SubjectKind::Collective, static_cast<int32_t>(kind)});
  };
  if (what.gathers) add(Collective::AllGather);
  if (what.reductions) {
    add(Collective::ReduceScatter);
    add(Collective::AllReduce);
  }
  return subjects;
}

}  // namespace

Change move_collectives(ir::Step& step, const PassContext& context, std::string_view pass,
                        const Movement& what, const MoveInGraph& move) {
  const auto exposed = [&] { return sim::simulate(step, context.cost).exposed; };
  const base::Nanos before = context.collect_remarks ? exposed() : base::Nanos{};
  const std::optional<int64_t> limit = schedule::transient_limit(step, context.options.memory());
  int moved = 0;
  for (ir::Program& program : step.programs) moved += move(program.graph, limit);
  if (moved == 0) return Change::No;
  if (!context.collect_remarks) return Change::Yes;
  const base::Nanos after = exposed();
  context.remarks.push_back(
      {std::string(pass),
       std::string(what.code),
       subjects_of(what),
       {{"moved", moved}, {"exposed_before_ns", before.v}, {"exposed_after_ns", after.v}},
       std::to_string(moved) + " " + std::string(what.text) + ": exposed communication " +
           base::format_duration(before.v) + " becomes " + base::format_duration(after.v)});
  return Change::Yes;
}

}  // namespace dc::passes
