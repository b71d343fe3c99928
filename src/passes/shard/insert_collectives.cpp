// insert-collectives: a gathered parameter is made whole before its first use in a phase and
// released after its last real use, seen through views; every gradient is reduced once, in the
// order its placement says. Frozen parameters have no reduction.
#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "src/ir/builder.h"
#include "src/ir/effects.h"
#include "src/ir/group.h"
#include "src/ir/view_copies.h"
#include "src/passes/pass.h"
#include "src/passes/shard/gather_parameters.h"
#include "src/passes/shard/shard_elements.h"
#include "src/schedule/state_values.h"

namespace dc::passes {
namespace {

using base::Result;

// One shard of a parameter, or of what goes with it, as every rank holds it.
ir::TensorType shard_type(const ir::Step& step, const ir::Parameter& parameter, ir::DType dtype) {
  return ir::contiguous(dtype, {parameter.shard},
                        ir::sharding_along(step.mesh.shard_axes(), ir::AxisPlacement::FlatShard));
}

// Of a start among the ranks that hold the shards of a parameter.
std::vector<ir::Arg> shard_args(const ir::Step& step, const ir::Parameter& parameter) {
  return ir::collective_args(step.mesh, parameter.numel(), parameter.shard, step.mesh.shard_axes());
}

// Position of every node in program order; nodes inserted later are not in it.
std::vector<int> positions(const ir::Graph& graph) {
  std::vector<int> position(graph.node_capacity(), -1);
  int at = 0;
  for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) position[id.index()] = at++;
  return position;
}

// Rewrites one gathered parameter in one graph.
class Gatherer {
 public:
  Gatherer(ir::Step& step, ir::Graph& graph, const std::vector<int>& position)
      : step_(step), graph_(graph), position_(position) {}

  void rewrite(int entry_index, ir::ValueId whole) {
    const int parameter_index = step_.state[static_cast<size_t>(entry_index)].parameter;
    parameter_ = &step_.parameters[static_cast<size_t>(parameter_index)];
    const ir::TensorType whole_type = graph_.value(whole).type;
    shard_ = whole;
    gathered_type_ = whole_type;
    std::vector<ir::Use> real = collect(whole);
    const ir::NodeId cast = lone_narrowing_cast(real);
    if (cast.valid()) {
      const ir::ValueId narrow = graph_.node(cast).results[0];
      gathered_type_ = graph_.value(narrow).type;
      real = collect(narrow);
      root_ = narrow;
    } else {
      root_ = whole;
    }
    std::map<ir::Phase, std::vector<ir::Use>> by_phase;
    for (const ir::Use& use : real) by_phase[graph_.node(use.node).origin.phase].push_back(use);
    for (auto& [phase, uses] : by_phase) gather_for(uses);
    erase_old_views(cast);
    graph_.set_type(whole, shard_type(step_, *parameter_, parameter_->dtype));
  }

 private:
  // Uses of `value` by nodes that read its bytes, found through views. Remembers the views.
  std::vector<ir::Use> collect(ir::ValueId value) {
    std::vector<ir::Use> real;
    std::vector<ir::ValueId> work = {value};
    views_.clear();
    while (!work.empty()) {
      const ir::ValueId current = work.back();
      work.pop_back();
      for (const ir::Use& use : graph_.value(current).uses) {
        const ir::Node& node = graph_.node(use.node);
        if (!ir::is_view(node) || use.operand != 0) {
          real.push_back(use);
          continue;
        }
        views_.push_back(use.node);
        for (ir::ValueId result : node.results) {
          if (result.valid()) work.push_back(result);
        }
      }
    }
    return real;
  }

  // The parameter's only reader is a cast to a smaller type: the shard is cast and the cast value
  // travels.
  ir::NodeId lone_narrowing_cast(const std::vector<ir::Use>& real) const {
    if (real.size() != 1) return {};
    const ir::Node& node = graph_.node(real[0].node);
    if (node.overload != "aten._to_copy.default" || node.operands[0] != shard_) return {};
    const ir::TensorType& type = graph_.value(node.results[0]).type;
    const bool narrows = base::is_floating(type.dtype) &&
                         base::byte_size(type.dtype) < base::byte_size(parameter_->dtype) &&
                         type.is_contiguous();
    return narrows ? node.id : ir::NodeId{};
  }

  void gather_for(const std::vector<ir::Use>& uses) {
    ir::NodeId first = uses[0].node, last = uses[0].node;
    for (const ir::Use& use : uses) {
      if (position_[use.node.index()] < position_[first.index()]) first = use.node;
      if (position_[use.node.index()] > position_[last.index()]) last = use.node;
    }
    ir::Builder build(graph_, first, graph_.node(first).origin);
    ir::ValueId source = shard_;
    if (gathered_type_.dtype != parameter_->dtype) {
      source = build.make(
          ir::OpKind::Cast, {shard_},
          {"narrow." + parameter_->fqn, shard_type(step_, *parameter_, gathered_type_.dtype)});
    }
    ir::TensorType type = gathered_type_;
    type.sharding = {};
    const ir::ValueId started =
        build.make(ir::OpKind::AllGatherStart, {source}, {"gather." + parameter_->fqn, type},
                   shard_args(step_, *parameter_));
    const ir::ValueId done = build.wait(started, "whole." + parameter_->fqn);
    ir::ViewCopies views(graph_);  // the phase's own, right after the gather
    views.stand_for(root_, done);
    for (const ir::Use& use : uses) {
      const ir::ValueId old = graph_.node(use.node).operands[static_cast<size_t>(use.operand)];
      graph_.set_operand(use.node, use.operand, views.of(old, first));
    }
    ir::Builder(graph_, graph_.next(last), graph_.node(last).origin)
        .act(ir::OpKind::Release, {done});
  }

  void erase_old_views(ir::NodeId cast) {
    erase_unused(views_);
    if (!cast.valid()) return;
    std::vector<ir::NodeId> before_cast = {cast};
    erase_unused(before_cast);
  }

  void erase_unused(const std::vector<ir::NodeId>& nodes) {
    bool erased = true;
    std::unordered_set<int32_t> gone;
    while (erased) {
      erased = false;
      for (ir::NodeId id : nodes) {
        if (gone.contains(id.v)) continue;
        bool used = false;
        for (ir::ValueId result : graph_.node(id).results) {
          used |= result.valid() && !graph_.value(result).uses.empty();
        }
        if (used) continue;
        graph_.erase(id);
        gone.insert(id.v);
        erased = true;
      }
    }
  }

  ir::Step& step_;
  ir::Graph& graph_;
  const std::vector<int>& position_;
  const ir::Parameter* parameter_ = nullptr;
  ir::ValueId shard_, root_;
  ir::TensorType gathered_type_;
  std::vector<ir::NodeId> views_;
};

}  // namespace

void gather_parameters(ir::Step& step, ir::Graph& graph) {
  const std::vector<int> position = positions(graph);
  Gatherer gatherer(step, graph, position);
  std::vector<ir::NodeId> states;  // rewriting one erases views, never another state node
  for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    if (graph.node(id).kind == ir::OpKind::State) states.push_back(id);
  }
  for (ir::NodeId id : states) {
    const ir::Node& node = graph.node(id);
    const int entry = ir::entry_of(node).v;
    const ir::StateEntry& state = step.state[static_cast<size_t>(entry)];
    if (state.role != ir::StateRole::Shard || state.range_of >= 0 || state.parameter < 0) continue;
    if (ir::is_flat_shard(graph.value(node.results[0]).type)) continue;
    gatherer.rewrite(entry, node.results[0]);
  }
}

namespace {

// Puts the reductions of one gradient right after its producer.
class Reducer {
 public:
  Reducer(ir::Step& step, ir::Graph& graph, bool last)
      : step_(step),
        graph_(graph),
        last_(last),
        replicas_(step.mesh.wide() & ~step.mesh.shard_axes()),
        state_(step),
        values_(step, graph),
        build_(graph) {}

  // Returns the value that norm and update read; invalid in programs before the last.
  ir::ValueId reduce(int parameter_index, ir::ValueId gradient) {
    parameter_ = &step_.parameters[static_cast<size_t>(parameter_index)];
    gradient = sum_in_summand(gradient);
    const ir::DType own = graph_.value(gradient).type.dtype;
    const int entry = state_.of(parameter_index, ir::StateRole::Accumulator);
    const bool accumulates = entry >= 0;
    const bool each = parameter_->gradient == ir::GradientPlacement::ShardedEachMicroBatch;
    if (step_.mesh.world() == 1) return accumulate_alone(entry, gradient);
    if (!accumulates) return reduce_once(gradient, own);
    const ir::ValueId sum = values_.of(entry);
    if (!each) {
      accumulate(sum, gradient);
      return last_ ? reduce_once(sum, own) : ir::ValueId{};
    }
    accumulate(sum, scatter(to_wire(gradient, own)));
    return last_ ? finish(sum) : ir::ValueId{};
  }

 private:
  // The gradient of a parameter that the model reads twice is the sum of two values as large as
  // the parameter. If nothing else reads one of them, the other is added to it in place: there are
  // never three of them at once. Returns the gradient; `build_` is then right after what makes it.
  ir::ValueId sum_in_summand(ir::ValueId gradient) {
    const ir::NodeId maker = graph_.value(gradient).producer;
    build_ = ir::Builder(graph_, graph_.next(maker), graph_.node(maker).origin);
    const std::optional<Summands> found = summands(gradient);
    if (!found) return gradient;
    accumulate(found->sum, found->added);
    const ir::Value& value = graph_.value(gradient);
    const ir::ValueId whole =
        build_.make_aten("aten.view.default", {found->sum}, {*value.name, value.type},
                         {{"self", ir::OperandRef{0}}, {"size", value.type.shape}});
    graph_.replace_all_uses(gradient, whole);
    graph_.erase(maker);
    return whole;
  }

  struct Summands {
    ir::ValueId sum, added;
  };
  // Empty if the sum cannot be written in place.
  std::optional<Summands> summands(ir::ValueId gradient) const {
    const ir::Node& add = graph_.node(graph_.value(gradient).producer);
    if (add.kind != ir::OpKind::Aten || add.overload.name() != "aten.add.Tensor") return {};
    const auto is_plain = [](const ir::Arg& arg) {
      return std::holds_alternative<ir::OperandRef>(arg.value);
    };
    if (add.operands.size() != 2 || !std::ranges::all_of(add.args, is_plain)) return {};
    const auto fits = [&](ir::ValueId summand) {
      const ir::TensorType &type = graph_.value(summand).type, &sum = graph_.value(gradient).type;
      return type.dtype == ir::DType::F32 && sum.dtype == type.dtype && sum.shape == type.shape &&
             sum.is_contiguous() && type.is_contiguous() && type.offset == sum.offset &&
             ir::axes_with(type, ir::AxisPlacement::Partial) == 0;
    };
    if (!std::ranges::all_of(add.operands, fits)) return {};
    const ir::ValueId left = add.operands[0], right = add.operands[1];
    if (is_read_once(left)) return Summands{left, right};
    if (is_read_once(right)) return Summands{right, left};
    return {};
  }

  // Whether the storage is a kernel's own result, read by one node, which is no view.
  bool is_read_once(ir::ValueId value) const {
    for (;;) {
      if (graph_.outputs.contains(value) || graph_.value(value).uses.size() != 1) return false;
      const ir::Node& producer = graph_.node(graph_.value(value).producer);
      if (!ir::is_view(producer))
        return ir::runs(producer) && ir::alias_of(producer) == ir::AliasRule::Fresh &&
               !ir::is_start(producer.kind);
      if (!ir::is_plain_view(producer)) return false;
      value = producer.operands[0];
    }
  }

  ir::ValueId accumulate_alone(int entry, ir::ValueId gradient) {
    if (entry >= 0) {
      const ir::ValueId sum = values_.of(entry);
      accumulate(sum, gradient);
      return last_ ? sum : ir::ValueId{};
    }
    graph_.edit(gradient).type.sharding = {};  // one rank: its summand is the sum
    // State may be updated before its other readers come: they get a copy.
    const ir::ValueId root = ir::view_root(graph_, gradient);
    const bool is_made = ir::runs(graph_.node(graph_.value(root).producer));
    return is_made ? gradient : cast(gradient, ir::DType::F32);
  }

  ir::ValueId reduce_once(ir::ValueId whole, ir::DType own) {
    const ir::ValueId wire = to_wire(whole, own);
    const bool at_once = parameter_->state == ir::StatePlacement::Replicated && replicas_ == 0;
    return at_once ? all_reduce(wire) : finish(scatter(wire));
  }

  // From the sum over the ranks that hold the shards to the sum over all ranks: the replicas of a
  // shard meet only now.
  ir::ValueId finish(ir::ValueId shard) {
    const ir::ValueId sum = replicas_ == 0 ? shard : sum_in_place(shard);
    return parameter_->state == ir::StatePlacement::Sharded ? sum : gather_sums(sum);
  }

  // Rounds once, to the dtype that travels: the gradient's own unless the user chose another.
  ir::ValueId to_wire(ir::ValueId value, ir::DType own) {
    const ir::DType wire = step_.reduce_dtype.value_or(own);
    return wire == graph_.value(value).type.dtype ? value : cast(value, wire);
  }

  ir::ValueId cast(ir::ValueId value, ir::DType dtype) {
    return build_.cast(value, dtype,
                       *graph_.value(value).name + "_" + std::string(base::name(dtype)));
  }

  void accumulate(ir::ValueId sum, ir::ValueId value) {
    build_.act(ir::OpKind::Accumulate, {sum, value});
  }

  ir::ValueId scatter(ir::ValueId wire) {
    ir::TensorType type = shard_type(step_, *parameter_, ir::DType::F32);
    for (size_t axis = 0; axis < ir::kMaxAxes; ++axis) {
      if ((replicas_ >> axis & 1) != 0) type.sharding[axis].placement = ir::AxisPlacement::Partial;
    }
    return collective(ir::OpKind::ReduceScatterStart, wire, {"reduce", type},
                      shard_args(step_, *parameter_));
  }

  ir::ValueId all_reduce(ir::ValueId wire) {
    const ir::TensorType type = ir::contiguous(ir::DType::F32, graph_.value(wire).type.shape);
    return collective(ir::OpKind::AllReduceStart, wire, {"reduce", type},
                      ir::collective_args(step_.mesh, type.numel(), parameter_->shard));
  }

  // Over the replicas of an f32 shard, which may be the accumulator.
  ir::ValueId sum_in_place(ir::ValueId shard) {
    ir::TensorType type = graph_.value(shard).type;
    for (size_t axis = 0; axis < ir::kMaxAxes; ++axis) {
      if ((replicas_ >> axis & 1) != 0) type.sharding[axis] = {};
    }
    const int64_t part = shard_elements(type.numel(), step_.mesh.size(replicas_));
    return collective(ir::OpKind::AllReduceInPlaceStart, shard, {"reduce", type},
                      ir::collective_args(step_.mesh, type.numel(), part, replicas_));
  }

  ir::ValueId gather_sums(ir::ValueId sum) {
    return collective(ir::OpKind::AllGatherStart, sum,
                      {"gather", ir::contiguous(ir::DType::F32, parameter_->shape)},
                      shard_args(step_, *parameter_));
  }

  // Both halves, one after the other; `result` has the start's name before the parameter's.
  ir::ValueId collective(ir::OpKind start, ir::ValueId wire, const ir::NewValue& result,
                         std::vector<ir::Arg> args) {
    const ir::ValueId started = build_.make(
        start, {wire}, {result.name + "." + parameter_->fqn, result.type}, std::move(args));
    return build_.wait(started, "reduced." + parameter_->fqn);
  }

  ir::Step& step_;
  ir::Graph& graph_;
  bool last_;
  ir::AxisMask replicas_;  // along which every shard has replicas
  const schedule::StateIndex state_;
  schedule::StateValues values_;
  const ir::Parameter* parameter_ = nullptr;
  ir::Builder build_;  // right after the gradient's producer
};

void reduce_gradients(ir::Step& step, ir::Graph& graph, bool last) {
  std::unordered_map<std::string, int> by_fqn;
  for (size_t i = 0; i < step.parameters.size(); ++i)
    by_fqn[step.parameters[i].fqn] = static_cast<int>(i);
  Reducer reducer(step, graph, last);
  ir::OutputList kept;
  for (const ir::Output& output : graph.outputs) {
    if (output.kind != ir::OutputKind::Gradient) {
      kept.push_back(output);
      continue;
    }
    const ir::ValueId reduced = reducer.reduce(by_fqn.at(output.fqn), output.value);
    if (last) kept.push_back({output.kind, output.fqn, reduced});
  }
  graph.outputs = std::move(kept);
}

// A gathered parameter whose readers still see it whole, or a gradient that is still one rank's
// summand.
bool has_work(const ir::Step& step) {
  for (const ir::StateEntry& entry : step.state) {
    const bool gathered = entry.role == ir::StateRole::Shard && entry.range_of < 0;
    if (gathered && !ir::is_flat_shard(entry.type)) return true;
  }
  for (const ir::Program& program : step.programs) {
    for (const ir::Output& output : program.graph.outputs) {
      if (output.kind != ir::OutputKind::Gradient) continue;
      if (ir::axes_with(program.graph.value(output.value).type, ir::AxisPlacement::Partial) != 0)
        return true;
    }
  }
  return false;
}

}  // namespace

Result<Change> insert_collectives(ir::Step& step, const PassContext&) {
  if (!has_work(step)) return Change::No;
  for (size_t i = 0; i < step.programs.size(); ++i) {
    ir::Graph& graph = step.programs[i].graph;
    gather_parameters(step, graph);
    reduce_gradients(step, graph, i + 1 == step.programs.size());
  }
  for (size_t i = 0; i < step.state.size(); ++i) {
    const ir::StateEntry& shard = step.state[i];
    if (shard.role != ir::StateRole::Shard || shard.parameter < 0 || shard.range_of >= 0) continue;
    const ir::Parameter& parameter = step.parameters[static_cast<size_t>(shard.parameter)];
    ir::StateEntry& entry = step.state.edit(i);
    entry.type = shard_type(step, parameter, parameter.dtype);
    entry.storage_elements = parameter.shard;
  }
  return Change::Yes;
}

}  // namespace dc::passes
