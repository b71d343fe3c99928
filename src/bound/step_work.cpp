#include "src/bound/step_work.h"

#include <algorithm>
#include <utility>

#include "src/cost/transfer.h"
#include "src/ir/effects.h"
#include "src/sim/simulate.h"

namespace dc::bound {
namespace {

using ir::Node;
using ir::OpKind;

class Reader {
 public:
  Reader(const cost::CostModel& cost, LeastTime& least, bool copies_may_go)
      : cost_(cost), least_(least), copies_may_go_(copies_may_go) {}

  void add(const ProgramView& program) {
    const size_t count = program.step.parameters.size();
    result.own.resize(count);
    result.gather.resize(count);
    std::vector<std::optional<Work>> gather(count), cast(count);
    for (ir::NodeId id = program.graph.first(); id.valid(); id = program.graph.next(id)) {
      const Node& node = program.graph.node(id);
      if (!ir::runs(node) || ir::is_done(node.kind)) continue;
      const Work work = of(program, node);
      if (const int p = program.gathered(node); p >= 0) {
        std::vector<std::optional<Work>>& list = node.kind == OpKind::Cast ? cast : gather;
        std::optional<Work>& known = list[static_cast<size_t>(p)];
        known = known ? smaller(*known, work) : work;
        continue;
      }
      const int p = program.parameter(id);
      Work& sum = p < 0 ? result.common : result.own[static_cast<size_t>(p)];
      sum += work * program.repeat;
    }
    for (size_t p = 0; p < count; ++p) {
      if (!gather[p]) continue;
      if (cast[p]) *gather[p] += *cast[p];
      std::optional<Work>& known = result.gather[p];
      known = known ? smaller(*known, *gather[p]) : gather[p];
    }
  }

  StepWork result;

 private:
  Work of(const ProgramView& program, const Node& node) {
    if (const auto transfer = cost::transfer_of(program.graph, node)) {
      Work work = least_.collective(transfer->kind, transfer->wire_bytes(),
                                    cost::group_of(program.step, node));
      const bool refreshes =
          node.kind == OpKind::AllGatherIntoStart && program.parameter(node.id) >= 0;
      if (refreshes) std::swap(work[Resource::Queue], work[Resource::Refresh]);
      return work;
    }
    Work work;
    if (ir::is_start(node.kind) || node.stream != 0) return work;
    if (copies_may_go_ && (node.kind == OpKind::Copy || node.kind == OpKind::Cast)) return work;
    base::Nanos time = sim::node_time(program.step, program.graph, node, cost_);
    if (copies_may_go_ && ir::copy_of_parameter(node).valid()) {
      Node alone = node;
      alone.operands.pop_back();
      alone.kernel = {};
      time = std::min(time, sim::node_time(program.step, program.graph, alone, cost_));
    }
    work[ir::is_update(node.kind) ? Resource::Update : Resource::Compute] =
        static_cast<double>(time.v);
    return work;
  }

  const cost::CostModel& cost_;
  LeastTime& least_;
  bool copies_may_go_;
};

}  // namespace

Work smaller(const Work& a, const Work& b) {
  Work result;
  for (size_t r = 0; r < kResources; ++r) result.ns[r] = std::min(a.ns[r], b.ns[r]);
  return result;
}

StepWork work_of(const std::vector<const ProgramView*>& programs, const cost::CostModel& cost,
                 LeastTime& least, bool copies_may_go) {
  Reader reader(cost, least, copies_may_go);
  for (const ProgramView* program : programs) reader.add(*program);
  return std::move(reader.result);
}

}  // namespace dc::bound
