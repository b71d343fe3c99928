// offload-update: parameters are updated on the host, where moments, momentum and f32 masters live
// all the time, as with DeepSpeed's offload_optimizer (ZeRO-Offload, Ren et al., USENIX ATC 2021;
// deepspeed/runtime/zero/stage3.py).
//
// When the updates begin, the reduced gradients go to the host, with the scalars that permit and
// clip them. There each update runs on a stream concurrent with compute, and so does what rounds a
// master. The new value comes back and is copied into the parameter, or this rank's shard of it,
// before the next update begins: DeepSpeed too waits for one sub-group's values before it updates
// the next. A parameter that is f32 itself gets a master on the host. The kernels are those of an
// update on the device and read the same numbers, so bits stay.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "src/base/text.h"
#include "src/cost/transfer.h"
#include "src/ir/builder.h"
#include "src/ir/effects.h"
#include "src/passes/offload/copy_writer.h"
#include "src/passes/offload/separate_copy.h"
#include "src/passes/pass.h"
#include "src/schedule/state_values.h"
#include "src/schedule/time_axis.h"

namespace dc::passes {
namespace {

using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

// The updates of the last program, which has them all, on their way to the host.
class HostUpdates {
 public:
  HostUpdates(ir::Step& step, const cost::CostModel& cost)
      : step_(step),
        before_(step),
        graph_(step.programs.back().graph),
        axis_(before_, before_.programs.back().graph, cost),
        values_(step, graph_) {
    for (int32_t i = 0; i < static_cast<int32_t>(axis_.live.order.size()); ++i) {
      if (may_move(axis_.node(i))) updates_.push_back(i);
    }
  }

  bool any() const { return !updates_.empty(); }

  void move() {
    out_ = stream_of(step_, "copy_out");
    in_ = stream_of(step_, "copy_in");
    host_ = stream_of(step_, "host");
    for (const int32_t position : updates_) start_copies(position);
    for (const int32_t position : updates_) move_update(position);
  }

  std::vector<base::RemarkSubject> subjects;  // the parameters
  int64_t bytes = 0;                          // that live on the host all the time

 private:
  struct HostCopy {
    ValueId started, done;  // `done` is invalid until an update reads it
  };
  // A value as it is from a position on.
  using Version = std::pair<ValueId, int32_t>;

  int entry_of(ValueId value) const { return axis_.storages.entry(value); }

  // All it writes is state on the device, which, where it would live on the host, nothing else
  // reads.
  bool may_move(const ir::Node& node) const {
    if (!ir::is_update(node.kind) || ir::kernel_space(axis_.graph, node) != ir::Space::Device)
      return false;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (!ir::writes(node, i)) continue;
      const int entry = entry_of(node.operands[i]);
      if (entry < 0) return false;
      const ir::StateEntry& state = before_.state[static_cast<size_t>(entry)];
      if (state.location.space != ir::Space::Device) return false;
      if (base::is_optimizer_state(state.role) && !is_only_updated(node.operands[i], node.id))
        return false;
    }
    return true;
  }

  bool is_only_updated(ValueId state, NodeId update) const {
    const auto& uses = axis_.graph.value(state).uses;
    return std::all_of(uses.begin(), uses.end(),
                       [&](const ir::Use& use) { return use.node == update; });
  }

  Version version(ValueId value, int32_t position) const {
    const int32_t write = axis_.last_write(value, position);
    return {value, write < 0 ? 0 : axis_.live.known[static_cast<size_t>(write)] + 1};
  }

  // Of what an update reads, when the updates begin or its last change is done.
  void start_copies(int32_t position) {
    const ir::Node& update = axis_.node(position);
    for (size_t i = 0; i < update.operands.size(); ++i) {
      const Version wanted = version(update.operands[i], position);
      if (ir::writes(update, i) || copies_.contains(wanted)) continue;
      int32_t start = std::max(updates_[0], wanted.second);
      while (cost::joins(axis_.node(start))) ++start;
      const ir::Value& value = axis_.graph.value(wanted.first);
      ir::TensorType type = value.type;
      type.offset = 0;
      const ValueId started =
          ir::Builder(graph_, axis_.node(start).id, update.origin, out_)
              .make(OpKind::OffloadStart, {value.id}, {"offload." + *value.name, std::move(type)});
      graph_.edit_location(started).space = ir::Space::Host;
      copies_.emplace(wanted, HostCopy{started, {}});
    }
  }

  // Awaited by the first update that reads it.
  ValueId copied(ValueId value, int32_t position) {
    HostCopy& copy = copies_.at(version(value, position));
    if (!copy.done.valid()) {
      const ir::Node& update = axis_.node(position);
      copy.done = ir::Builder(graph_, update.id, update.origin)
                      .wait(copy.started, "offloaded." + *axis_.graph.value(value).name);
    }
    return copy.done;
  }

  void move_update(int32_t position) {
    const ir::Node& update = axis_.node(position);  // as it was
    const ValueId updated = update.operands[0], master = master_of(updated);
    graph_.edit(update.id).stream = host_;
    const ValueId copy = ir::copy_of_parameter(update);
    const ValueId rounded = copy.valid() ? separate_copy(step_, update.id) : ValueId{};
    for (size_t i = 0; i < graph_.node(update.id).operands.size(); ++i) {
      const ValueId operand = update.operands[i];
      // Without momentum sgd names its parameter twice.
      const ValueId there = !ir::writes(update, i) ? copied(operand, position)
                            : operand == updated   ? master
                                                   : operand;
      if (ir::writes(update, i)) settle(there);
      graph_.set_operand(update.id, static_cast<int>(i), there);
    }
    const int entry = entry_of(updated);
    subjects.push_back(
        {base::SubjectKind::Parameter, before_.state[static_cast<size_t>(entry)].parameter});
    if (rounded.valid()) graph_.edit_location(rounded).space = ir::Space::Host;
    const NodeId made = rounded.valid() ? graph_.value(rounded).producer : update.id;
    const NodeId behind = graph_.next(made);
    const ValueId back = brought_back(rounded.valid() ? rounded : master, behind, update.origin);
    ir::Builder(graph_, behind, update.origin)
        .act(OpKind::Copy, {copy.valid() ? copy : updated, back});
  }

  // The f32 value that the host keeps: the master there is, or a new one.
  ValueId master_of(ValueId updated) {
    const ir::StateEntry& of = step_.state[static_cast<size_t>(entry_of(updated))];
    if (of.role == ir::StateRole::Master) return updated;
    ir::StateEntry entry;
    entry.name = "master." + step_.parameters[static_cast<size_t>(of.parameter)].fqn;
    entry.role = ir::StateRole::Master;
    entry.parameter = of.parameter;
    entry.type = graph_.value(updated).type;
    return values_.of(schedule::add_entry(step_, std::move(entry)));
  }

  void settle(ValueId state) {
    const ir::StateId id = ir::entry_of(graph_.node(graph_.value(state).producer));
    if (step_.state[id.index()].location.space == ir::Space::Host) return;
    ir::StateEntry& entry = step_.state.edit(id.index());
    entry.location.space = ir::Space::Host;
    bytes += analysis::aligned_bytes(analysis::state_bytes(entry).v);
  }

  ValueId brought_back(ValueId value, NodeId before, const ir::Origin& origin) {
    const std::string name = graph_.value(value).name;
    ir::TensorType type = graph_.value(value).type;
    const ValueId started =
        ir::Builder(graph_, before, origin, in_)
            .make(OpKind::ReloadStart, {value}, {"reload." + name, std::move(type)});
    return ir::Builder(graph_, before, origin).wait(started, "reloaded." + name);
  }

  ir::Step& step_;
  const ir::Step before_;
  ir::Graph& graph_;
  const schedule::TimeAxis axis_;  // of `before_`
  schedule::StateValues values_;
  std::vector<int32_t> updates_;  // positions
  int out_ = 0, in_ = 0, host_ = 0;
  std::map<Version, HostCopy> copies_;
};

}  // namespace

base::Result<Change> offload_update(ir::Step& step, const PassContext& context) {
  if (context.options.offload_space.value_or(ir::Space::Host) != ir::Space::Host) {
    return base::Status(base::ErrorKind::Usage, "DC2613",
                        "offload-update updates parameters where their optimizer state lies, and "
                        "nothing is computed on disk; leave out --offload-space, or say host");
  }
  HostUpdates updates(step, context.cost);
  if (!updates.any()) return Change::No;
  updates.move();
  const auto count = static_cast<int64_t>(updates.subjects.size());
  context.remarks.push_back({"offload-update",
                             "updates-on-host",
                             std::move(updates.subjects),
                             {{"updates", count}, {"bytes", updates.bytes}},
                             std::to_string(count) + " parameters are updated on the host, where " +
                                 base::format_bytes(updates.bytes) + " of state live"});
  return Change::Yes;
}

}  // namespace dc::passes
