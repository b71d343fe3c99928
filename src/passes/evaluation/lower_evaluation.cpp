#include "src/passes/evaluation/lower_evaluation.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/analysis/storage.h"
#include "src/base/units.h"
#include "src/cost/transfer.h"
#include "src/ir/builder.h"
#include "src/ir/effects.h"
#include "src/layout/allocate.h"
#include "src/passes/offload/copy_writer.h"
#include "src/passes/pass_manager.h"
#include "src/passes/shard/gather_parameters.h"
#include "src/schedule/state_values.h"
#include "src/schedule/time_axis.h"

namespace dc::passes {
namespace {

using base::Result;
using base::Status;

Status run_pass(std::string_view name, ir::Step& step, const PassContext& context) {
  return find_pass(name)->run(step, context).status();
}

// The tables of the training with the evaluation as the one program.
ir::Step unlowered(const ir::Step& trained) {
  ir::Step step = trained;
  step.name = "evaluation";
  step.accumulation = 1;
  step.inputs = trained.evaluation->inputs;
  step.programs.clear();
  step.programs.push_back({trained.evaluation->graph, 1});
  step.evaluation = nullptr;
  for (ir::Parameter& parameter : step.parameters.edit()) parameter.trainable = false;
  return step;
}

// The end of the inputs that several training programs share, which lie above the state in the
// device's arena. 0 with one program.
base::Bytes end_of_shared_inputs(const ir::Step& trained) {
  base::Bytes end;
  if (trained.programs.size() < 2) return end;
  for (const ir::Program& program : trained.programs) {
    for (const ir::NodeId id : program.graph.order()) {
      const ir::Node& node = program.graph.node(id);
      if (node.kind != ir::OpKind::Input) continue;
      const ir::Location& location = program.graph.storage(node.results[0]).location;
      end.v = std::max(end.v, base::round_up(location.offset + location.bytes, base::kAlignment));
    }
  }
  return end;
}

void add_loss(ir::Step& step, ir::Graph& graph) {
  const ir::ValueId loss = graph.outputs.front().value;
  const ir::ValueId sum =
      schedule::state_value(step, graph, schedule::StateIndex(step).of(-1, ir::StateRole::LossSum));
  const ir::Node& producer = graph.node(graph.value(loss).producer);
  ir::Builder(graph, graph.next(producer.id), producer.origin)
      .act(ir::OpKind::AddLoss, {sum, loss});
}

// Streams have the numbers that they have in the training.
Status schedule_as(const std::vector<std::string>& streams, ir::Step& step,
                   const PassContext& context) {
  DC_RETURN_IF_ERROR(run_pass("schedule", step, context));
  const size_t used = step.streams.size();
  if (streams.size() < used) return base::ok_status();
  DC_CHECK(std::equal(step.streams.begin(), step.streams.end(), streams.begin()));
  step.streams = streams;
  return base::ok_status();
}

// Copies of state that lies outside the device, each right before its first reader.
void reload_state(ir::Step& step, ir::Graph& graph) {
  const schedule::Positions axis(step, graph);
  std::vector<std::pair<ir::ValueId, int32_t>> outside;  // and its first reader; -1: none
  std::map<ir::ValueId, size_t> known;
  for (int32_t i = 0; i < static_cast<int32_t>(axis.live.order.size()); ++i) {
    const ir::Node& node = axis.node(i);
    const int entry = node.kind == ir::OpKind::State ? analysis::state_entry_of(step, node) : -1;
    if (entry >= 0 && step.state[static_cast<size_t>(entry)].location.space != ir::Space::Device) {
      known.emplace(node.results[0], outside.size());
      outside.emplace_back(node.results[0], -1);
    }
    if (!ir::runs(node)) continue;
    for (const ir::ValueId operand : node.operands) {
      const auto found = known.find(axis.storages.root(operand));
      if (found != known.end() && outside[found->second].second < 0)
        outside[found->second].second = i;
    }
  }
  std::erase_if(outside, [](const auto& one) { return one.second < 0; });
  if (outside.empty()) return;
  CopyWriter writer(step, graph, axis);
  for (const auto& [value, first] : outside) writer.add(CopyWriter::In{value, first, first});
  writer.write();
}

// Refuses a forward that draws random numbers: the validation loss must depend on parameters and
// data only.
Status check_draws_nothing(const ir::Graph& graph) {
  for (const ir::NodeId id : graph.order()) {
    const ir::Node& node = graph.node(id);
    if (node.kind != ir::OpKind::Dropout) continue;
    return Status(base::ErrorKind::Unsupported, "DC2603",
                  "dropout in module '" + *node.origin.module +
                      "' stays on in eval mode; an evaluation draws no random numbers: turn it off "
                      "with the module's mode (training=self.training) and export again");
  }
  return base::ok_status();
}

Status lower(const ir::Step& trained, ir::Step& step, const PassContext& context) {
  ir::Graph& graph = step.programs[0].graph;
  const size_t entries = step.state.size();
  DC_RETURN_IF_ERROR(run_pass("normalize-graph", step, context));
  DC_RETURN_IF_ERROR(run_pass("fuse-elementwise", step, context));
  DC_CHECK(step.state.size() == entries);
  DC_RETURN_IF_ERROR(check_draws_nothing(graph));
  gather_parameters(step, graph);
  add_loss(step, graph);
  DC_RETURN_IF_ERROR(schedule_as(trained.streams, step, context));
  reload_state(step, graph);
  step.stage = ir::Stage::Scheduled;
  DC_RETURN_IF_ERROR(ir::verify(step, step.stage));
  DC_RETURN_IF_ERROR(layout::allocate(step, context.cost, context.options.budgets, nullptr,
                                      end_of_shared_inputs(trained)));
  return ir::verify(step, step.stage);
}

}  // namespace

Result<ir::Step> lower_evaluation(const ir::Step& trained, const PassContext& context) {
  DC_CHECK(trained.stage == ir::Stage::Allocated && trained.evaluation != nullptr);
  ir::Step step = unlowered(trained);
  std::vector<Remark> unsaid;
  PassContext own{context.cost, context.options, unsaid};
  own.collect_remarks = false;
  if (Status status = lower(trained, step, own); !status.ok()) {
    return std::move(status).add_context("in the evaluation");
  }
  return step;
}

}  // namespace dc::passes
