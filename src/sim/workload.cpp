#include "src/sim/workload.h"

#include "src/analysis/live_bytes.h"
#include "src/base/step_scalars.h"
#include "src/cost/transfer.h"
#include "src/ir/effects.h"

namespace dc::sim {
namespace {

using ir::OpKind;
using ir::ValueId;

class Collector {
 public:
  Collector(const ir::Step& step, const ir::Graph& graph)
      : step_(step), graph_(graph), storages_(step, graph), of_state_(step.state.size(), -1) {
    of_value_.assign(graph.value_capacity(), -1);
  }

  Workload run(Schedule schedule) {
    workload_.schedule = std::move(schedule);
    const std::vector<Event>& events = workload_.schedule.events;
    workload_.traits.resize(events.size());
    add_transients();
    for (size_t i = 0; i < events.size(); ++i) {
      if (events[i].kind == EventKind::Done) continue;
      event_ = static_cast<int32_t>(i);
      const ir::Node& node = graph_.node({events[i].origin});
      add_accesses(node);
      if (events[i].kind == EventKind::Start && ir::is_start(node.kind)) add_joined(node.id);
      EventTraits& traits = workload_.traits[i];
      traits.scratch = {analysis::aligned_bytes(node.scratch.bytes)};
      traits.is_barrier = node.kind == OpKind::ClipAndCheck;
      traits.keeps_order = events[i].kind == EventKind::Compute &&
                           node.origin.phase != ir::Phase::Update &&
                           !travels_with_collective(node.kind);
    }
    return std::move(workload_);
  }

 private:
  void add_transients() {
    const analysis::Liveness live = analysis::liveness(step_, graph_, storages_);
    for (const analysis::LiveRange& range : live.ranges) {
      of_value_[range.value.index()] = static_cast<int32_t>(workload_.storages.size());
      const bool is_input = graph_.node(graph_.value(range.value).producer).kind == OpKind::Input;
      const bool counts = range.space == ir::Space::Device;
      workload_.storages.push_back(
          {{counts ? analysis::aligned_bytes(range.bytes.v) : 0}, is_input});
    }
  }

  int32_t storage_of(ValueId value) {
    const int owner = storages_.owner(value);
    int32_t& slot = owner < 0 ? of_value_[storages_.root(value).index()]
                              : of_state_[static_cast<size_t>(owner)];
    if (slot < 0) {
      slot = static_cast<int32_t>(workload_.storages.size());
      workload_.storages.push_back({{}, true});
    }
    return slot;
  }

  Access access(ValueId id, bool writes) {
    const ir::TensorType& type = graph_.value(id).type;
    const int64_t element = base::byte_size(type.dtype);
    const int entry = storages_.entry(id);
    const bool is_range = entry >= 0 && step_.state[static_cast<size_t>(entry)].range_of >= 0;
    return {event_,
            storage_of(id),
            is_range ? entry + 1 : 0,
            type.offset * element,
            type.storage_elements() * element,
            writes};
  }

  void add_joined(ir::NodeId start) {
    for (ir::NodeId id : cost::bucket_of(graph_, start)) {
      if (id != start) add_accesses(graph_.node(id));
    }
  }

  void add_accesses(const ir::Node& node) {
    const CellUse use = cell_use(node);
    for (size_t i = 0; i < node.operands.size(); ++i) {
      Access one = access(node.operands[i], ir::writes(node, i));
      if (const int64_t cell = only_cell(use, i); cell >= 0) {
        one.first = cell * base::byte_size(ir::DType::F64);
        one.last = one.first + base::byte_size(ir::DType::F64);
      }
      workload_.accesses.push_back(one);
    }
    for (ValueId result : node.results) {
      if (result.valid() && storages_.root(result) == result)
        workload_.accesses.push_back(access(result, true));
    }
  }

  const ir::Step& step_;
  const ir::Graph& graph_;
  const analysis::StorageMap storages_;
  std::vector<int32_t> of_value_, of_state_;
  int32_t event_ = 0;
  Workload workload_;
};

}  // namespace

bool travels_with_collective(OpKind kind) { return kind == OpKind::Cast || ir::is_tail(kind); }

CellUse cell_use(const ir::Node& node) {
  CellUse use{node.kind, {}, false};
  if (node.find(ir::Attr::Param) != nullptr) use.param = node.integer(ir::Attr::Param);
  if (ir::is_update(node.kind)) use.clips = node.integer(ir::Attr::Clip) != 0;
  return use;
}

int64_t only_cell(const CellUse& use, size_t operand) {
  const std::span<const ir::OperandInfo> operands = ir::info(use.kind).operands();
  if (operand >= operands.size() || !use.param) return -1;
  switch (operands[operand].role) {
    case ir::OperandRole::RowCell:
      return *use.param;
    case ir::OperandRole::ScalarCell:
      return use.clips ? -1 : base::kScalarFinite + *use.param;
    case ir::OperandRole::Plain:
    case ir::OperandRole::Gradient:
      break;
  }
  return -1;
}

Workload workload_of(const ir::Step& step, const ir::Graph& graph, const cost::CostModel& cost) {
  return Collector(step, graph).run(schedule_of(step, graph, cost));
}

}  // namespace dc::sim
