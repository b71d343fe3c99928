// add-update: the end of the step. The norm of the gradients and the loss are gathered in one small
// table, and the optimizer updates every trainable parameter once, with its copy in the parameter's
// own type; resident copies are gathered and accumulators cleared. Norm and optimizer scale the
// gradients while they read them. Layout of the small tensors: src/base/step_scalars.h.
#include <unordered_map>

#include "src/base/step_scalars.h"
#include "src/ir/builder.h"
#include "src/ir/effects.h"
#include "src/ir/group.h"
#include "src/passes/pass.h"
#include "src/passes/shard/shard_elements.h"
#include "src/schedule/state_values.h"

namespace dc::passes {
namespace {

using base::Result;

class UpdateBuilder {
 public:
  explicit UpdateBuilder(ir::Step& step)
      : step_(step),
        graph_(step.programs.back().graph),
        trainable_(schedule::trainable_count(step)),
        columns_(schedule::trainable_indices(step)),
        state_(step),
        values_(step, graph_),
        own_entries_(step.parameters.size(), -1),
        position_(graph_.node_capacity(), -1) {
    origin_.phase = ir::Phase::Update;
    for (size_t i = step.state.size(); i-- > 0;) {
      const ir::StateEntry& entry = step.state[i];
      const bool own = entry.role == ir::StateRole::Parameter ||
                       (entry.role == ir::StateRole::Shard && entry.range_of < 0);
      if (own) own_entries_[static_cast<size_t>(entry.parameter)] = static_cast<int>(i);
    }
    int position = 0;
    for (ir::NodeId id = graph_.first(); id.valid(); id = graph_.next(id))
      position_[id.index()] = position++;
  }

  void build() {
    add_small_tensors();
    std::vector<ir::ValueId> gradients(step_.parameters.size());
    std::unordered_map<std::string, ir::ValueId> by_fqn;
    for (const ir::Output& output : graph_.outputs) {
      if (output.kind == ir::OutputKind::Gradient) by_fqn[output.fqn] = output.value;
    }
    for (size_t i = 0; i < step_.parameters.size(); ++i) {
      if (!step_.parameters[i].trainable) continue;
      gradients[i] = by_fqn.at(step_.parameters[i].fqn);
      square_sum(static_cast<int>(i), gradients[i]);
    }
    finish_table();
    for (size_t i = 0; i < step_.parameters.size(); ++i) {
      if (!step_.parameters[i].trainable) continue;
      update(static_cast<int>(i), gradients[i]);
      refresh(static_cast<int>(i));
      clear_accumulator(static_cast<int>(i));
    }
    graph_.outputs.erase_if(
        [](const ir::Output& output) { return output.kind != ir::OutputKind::Loss; });
  }

 private:
  ir::ValueId value_of(int entry) { return entry < 0 ? ir::ValueId{} : values_.of(entry); }
  ir::ValueId state_of(int parameter, ir::StateRole role) {
    return value_of(state_.of(parameter, role));
  }

  int small(const char* name, ir::StateRole role, ir::Shape shape, int range_of = -1) {
    ir::StateEntry entry;
    entry.name = name;
    entry.role = role;
    entry.type = ir::contiguous(ir::DType::F64, std::move(shape));
    entry.range_of = range_of;
    return schedule::add_entry(step_, std::move(entry));
  }

  void add_small_tensors() {
    const int64_t columns = trainable_ + base::kTableExtra;
    const auto groups = static_cast<int64_t>(step_.optimizer.groups.size());
    (void)schedule::rng_entry(step_);  // the host writes it whether or not an op draws
    const int hyperparameters = small("hyperparameters", ir::StateRole::Hyperparameters,
                                      {base::kHyperGroups + base::kHyperPerGroup * groups});
    const int scalars =
        small("scalars", ir::StateRole::Scalars, {base::kScalarFinite + trainable_});
    loss_sum_ = small("loss_sum", ir::StateRole::LossSum, {1});
    const int table = small("norm_table", ir::StateRole::NormTable, {step_.mesh.world(), columns});
    const int row = small("norm_row", ir::StateRole::NormTable, {columns}, table);
    hyperparameters_ = values_.of(hyperparameters);
    scalars_ = values_.of(scalars);
    table_ = values_.of(table);
    row_ = values_.of(row);
    for (ir::Program& program : step_.programs) add_loss(program.graph);
  }

  // The loss of every micro-batch is added where it is produced.
  void add_loss(ir::Graph& graph) {
    const ir::ValueId sum =
        &graph == &graph_ ? values_.of(loss_sum_) : schedule::state_value(step_, graph, loss_sum_);
    for (const ir::Output& output : graph.outputs) {
      if (output.kind != ir::OutputKind::Loss) continue;
      const ir::Node& producer = graph.node(graph.value(output.value).producer);
      ir::Builder(graph, graph.next(producer.id), producer.origin)
          .act(ir::OpKind::AddLoss, {sum, output.value});
    }
    graph.outputs.erase_if([&](const ir::Output& output) {
      return output.kind == ir::OutputKind::Gradient && &graph != &graph_;
    });
  }

  // Of this rank's range of the gradient, right after it is complete.
  void square_sum(int index, ir::ValueId gradient) {
    const ir::Parameter& parameter = step_.parameters[static_cast<size_t>(index)];
    const ir::NodeId producer = graph_.value(gradient).producer;
    const bool is_state =
        graph_.node(producer).kind == ir::OpKind::State;  // an accumulator: after its last change
    const ir::NodeId before = graph_.next(is_state ? last_user(gradient) : producer);
    const int64_t column = columns_[static_cast<size_t>(index)];
    ir::Builder(graph_, before, {graph_.node(producer).origin.module, ir::Phase::Update})
        .act(ir::OpKind::SquareSum, {row_, gradient, hyperparameters_},
             square_sum_args(parameter, column, !ir::is_flat_shard(graph_.value(gradient).type)));
  }

  // Where ranks hold replicas of a shard, each counts a part of it, so that every element is
  // counted once.
  std::vector<ir::Arg> square_sum_args(const ir::Parameter& parameter, int64_t column,
                                       bool whole) const {
    std::vector<ir::Arg> args = {{ir::Attr::Param, column},
                                 {ir::Attr::Shard, parameter.shard},
                                 {ir::Attr::Elements, parameter.numel()},
                                 {ir::Attr::Whole, int64_t{whole}}};
    const ir::AxisMask holders = step_.mesh.shard_axes();
    if (step_.mesh.is_world(holders)) return args;
    const int replicas = step_.mesh.size(ir::kAllAxes & ~holders);
    args.push_back({ir::Attr::Axes, ir::axes_in(step_.mesh, holders)});
    args.push_back({ir::Attr::Part, shard_elements(parameter.shard, replicas)});
    return args;
  }

  // The last node that reads or writes the accumulator; this pass has added none.
  ir::NodeId last_user(ir::ValueId accumulator) const {
    ir::NodeId last = graph_.value(accumulator).producer;
    for (const ir::Use& use : graph_.value(accumulator).uses) {
      if (position_[use.node.index()] > position_[last.index()]) last = use.node;
    }
    return last;
  }

  void finish_table() {
    const int64_t column = trainable_ + base::kTableLoss;
    ir::TensorType cell = ir::contiguous(ir::DType::F64, {1});
    cell.offset = column;
    const ir::ValueId loss_cell = at_end().make_aten(
        "aten.slice.Tensor", {row_}, {"loss_cell", cell},
        {{"self", ir::OperandRef{0}}, {"dim", int64_t{0}}, {"start", column}, {"end", column + 1}});
    append(ir::OpKind::Copy, {loss_cell, values_.of(loss_sum_)}, {});
    if (step_.mesh.world() > 1) {
      const int64_t columns = trainable_ + base::kTableExtra;
      gather_into(table_, row_,
                  ir::collective_args(step_.mesh, columns * step_.mesh.world(), columns),
                  "norm_table");
    }
    append(ir::OpKind::ClipAndCheck, {scalars_, table_, hyperparameters_},
           {{ir::Attr::Clip, int64_t{step_.optimizer.clip}}});
  }

  ir::Builder at_end() { return ir::Builder(graph_, {}, origin_); }

  void append(ir::OpKind kind, const std::vector<ir::ValueId>& operands,
              std::vector<ir::Arg> args) {
    at_end().act(kind, operands, std::move(args));
  }

  void gather_into(ir::ValueId whole, ir::ValueId shard, std::vector<ir::Arg> args,
                   const std::string& name) {
    const ir::ValueId started = at_end().make_in_place(
        ir::OpKind::AllGatherIntoStart, {whole, shard}, "gather." + name, std::move(args));
    at_end().wait(started, "gathered." + name);
  }

  // The f32 value the optimizer changes: the master if there is one, else this rank's shard, else
  // the whole parameter.
  ir::ValueId updated_value(int index) {
    if (const ir::ValueId master = state_of(index, ir::StateRole::Master); master.valid())
      return master;
    if (const ir::ValueId shard = state_of(index, ir::StateRole::Shard); shard.valid())
      return shard;
    return parameter_value(index);
  }

  ir::ValueId parameter_value(int index) {
    const int entry = own_entries_[static_cast<size_t>(index)];
    return entry < 0 ? ir::ValueId{} : values_.of(entry);
  }

  void update(int index, ir::ValueId gradient) {
    const ir::Parameter& parameter = step_.parameters[static_cast<size_t>(index)];
    origin_.module = parameter.fqn.substr(
        0, parameter.fqn.rfind('.') == std::string::npos ? 0 : parameter.fqn.rfind('.'));
    const ir::ValueId value = updated_value(index);
    const int64_t column = columns_[static_cast<size_t>(index)];
    const int64_t clip = step_.optimizer.clip;
    std::vector<ir::Arg> args = {{ir::Attr::Param, column},
                                 {ir::Attr::Group, int64_t{parameter.group}},
                                 {ir::Attr::Clip, clip}};
    ir::OpKind kind = ir::OpKind::AdamW;
    std::vector<ir::ValueId> operands;
    switch (step_.optimizer.kind) {
      case ir::OptimizerKind::AdamW:
        operands = {value, state_of(index, ir::StateRole::Moment1),
                    state_of(index, ir::StateRole::Moment2)};
        break;
      case ir::OptimizerKind::Sgd: {
        const ir::OptimizerGroup& group =
            step_.optimizer.groups[static_cast<size_t>(parameter.group)];
        const ir::ValueId momentum = state_of(index, ir::StateRole::Momentum);
        args.push_back({ir::Attr::Momentum, int64_t{momentum.valid()}});
        args.push_back({ir::Attr::Nesterov, int64_t{group.nesterov}});
        kind = ir::OpKind::Sgd;
        operands = {value, momentum.valid() ? momentum : value};
        break;
      }
    }
    operands.insert(operands.end(), {gradient, scalars_, hyperparameters_});
    if (const ir::ValueId copy = copy_of_master(index); copy.valid()) operands.push_back(copy);
    append(kind, operands, std::move(args));
  }

  // This rank's part of what the model reads, where it is not updated itself.
  ir::ValueId copy_of_master(int index) {
    if (!state_of(index, ir::StateRole::Master).valid()) return {};
    const ir::ValueId shard = state_of(index, ir::StateRole::Shard);
    return shard.valid() ? shard : parameter_value(index);
  }

  // Resident copies of sharded state are made whole again.
  void refresh(int index) {
    const ir::Parameter& parameter = step_.parameters[static_cast<size_t>(index)];
    const ir::ValueId range = state_of(index, ir::StateRole::Shard);
    const ir::ValueId resident = parameter_value(index);
    if (!range.valid() || range == resident) return;
    const ir::AxisMask holders = step_.mesh.shard_axes();
    gather_into(resident, range,
                ir::collective_args(step_.mesh, parameter.numel(), parameter.shard, holders),
                parameter.fqn);
  }

  void clear_accumulator(int index) {
    const ir::ValueId sum = state_of(index, ir::StateRole::Accumulator);
    if (sum.valid()) append(ir::OpKind::Zero, {sum}, {});
  }

  ir::Step& step_;
  ir::Graph& graph_;
  int64_t trainable_;
  std::vector<int> columns_;          // by parameter
  const schedule::StateIndex state_;  // of parameters
  schedule::StateValues values_;
  std::vector<int> own_entries_;  // by parameter
  std::vector<int> position_;     // by node, of those that were there before
  ir::Origin origin_;
  int loss_sum_ = -1;
  ir::ValueId hyperparameters_, scalars_, table_, row_;
};

// New values of buffers (batch-norm statistics) are written back at the end of every micro-batch,
// after the last reader of the old ones.
void write_buffers(ir::Step& step, ir::Graph& graph) {
  std::unordered_map<std::string, int> entries;
  for (size_t i = 0; i < step.state.size(); ++i) {
    const int buffer = step.state[i].buffer;
    if (buffer >= 0) entries[step.buffers[static_cast<size_t>(buffer)].fqn] = static_cast<int>(i);
  }
  schedule::StateValues values(step, graph);
  for (const ir::Output& output : graph.outputs) {
    if (output.kind != ir::OutputKind::BufferUpdate) continue;
    const ir::ValueId target = values.of(entries.at(output.fqn));
    if (ir::view_root(graph, output.value) == target) continue;  // unchanged
    const ir::Origin origin = graph.node(graph.value(output.value).producer).origin;
    ir::Builder(graph, {}, origin).act(ir::OpKind::Copy, {target, output.value});
  }
  graph.outputs.erase_if(
      [](const ir::Output& output) { return output.kind == ir::OutputKind::BufferUpdate; });
}

}  // namespace

Result<Change> add_update(ir::Step& step, const PassContext&) {
  for (ir::Program& program : step.programs) write_buffers(step, program.graph);
  UpdateBuilder(step).build();
  return Change::Yes;
}

}  // namespace dc::passes
