// overlap-update: parameters are updated while the link works, and gathered while the next step
// begins.
//
// Without clipping an update waits for its own gradient only. Each rank then decides for itself
// whether it applies the update: `check_finite` tests the square sum of the rank's own range, and
// the losses of all ranks, which are gathered early. Ranks that hold replicas of a shard have equal
// sums there, and test all of it, so they decide alike. With clipping all updates wait for the
// norm.
//
// update_places.h chooses the positions. If a gather delays a reduction, the wait for the
// reduction moves later too. If the step exceeds the budget, and with one rank, each update runs
// as early as it may: that frees gradients.
//
// A gather into state then goes on into the next step, whose first program waits for it just
// before the first use (ir/cross_step.h). Kernels, collectives and sums stay the same; so do all
// numbers.
#include <algorithm>

#include "src/base/text.h"
#include "src/cost/transfer.h"
#include "src/ir/builder.h"
#include "src/ir/cross_step.h"
#include "src/ir/group.h"
#include "src/passes/overlap/update_places.h"
#include "src/passes/pass.h"
#include "src/schedule/defer_reductions.h"
#include "src/schedule/join_gathers.h"
#include "src/schedule/join_reductions.h"
#include "src/schedule/reduction_tail.h"
#include "src/schedule/state_values.h"
#include "src/sim/simulate.h"

namespace dc::passes {
namespace {

using base::Nanos;
using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

// A rank may decide for itself if it and those that update the same range know all of its
// gradient: if gradients are shards, of all ranks or of those of a host.
bool decides_alone(const ir::Step& step) {
  if (step.optimizer.clip) return false;
  const ir::Graph& graph = step.programs.back().graph;
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const ir::Node& node = graph.node(id);
    if (node.kind != OpKind::SquareSum) continue;
    const ir::TensorType& gradient = graph.value(node.operands[1]).type;
    const ir::AxisMask axes = ir::axes_with(gradient, ir::AxisPlacement::FlatShard);
    if (!step.mesh.is_world(axes) && axes != step.mesh.shard_axes()) return false;
  }
  return true;
}

// Of shards with replicas the square sums count a part, but decide on the whole.
void decide_on_shards(const ir::Step& step, ir::Graph& graph) {
  if (step.mesh.is_world(step.mesh.shard_axes())) return;
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    if (graph.node(id).kind == OpKind::SquareSum)
      graph.edit(id).args.edit().push_back({ir::Attr::Decides, int64_t{1}});
  }
}

bool has_permits(const ir::Graph& graph) {
  for (NodeId id = graph.last(); id.valid(); id = graph.previous(id)) {
    if (graph.node(id).kind == OpKind::CheckFinite) return true;
  }
  return false;
}

// Carries places out.
class UpdateRewriter {
 public:
  UpdateRewriter(ir::Step& step, const schedule::TimeAxis& axis, const cost::CostModel& cost,
                 const std::vector<FirstUse>& uses, bool before_norm)
      : step_(step),
        graph_(step.programs.back().graph),
        axis_(axis),
        uses_(uses),
        before_norm_(before_norm),
        belongs_(schedule::amortizes_latency(step, graph_, cost, std::nullopt)) {}

  void apply(const std::vector<UpdatePlace>& places) {
    std::vector<NodeId> at;  // before anything moves
    at.reserve(places.size());
    for (const UpdatePlace& place : places)
      at.push_back(place.position < axis_size() ? axis_.node(place.position).id : NodeId{});
    for (size_t i = 0; i < places.size(); ++i) {
      const UpdateFragment& fragment = *places[i].fragment;
      if (places[i].update) {
        if (before_norm_) check_finite(fragment, at[i]);
        for (NodeId node : fragment.update) graph_.move_before(node, at[i]);
      }
      if (!places[i].gather) continue;
      if (at[i].valid()) {
        for (NodeId node : fragment.gathers) graph_.move_before(node, at[i]);
      } else {
        gather_last(fragment.gathers);
      }
      (fragment.needed < INT32_MAX ? crossing_ : staying_).push_back(&fragment);
    }
    end_bucket();
    for (const UpdateFragment* fragment : staying_) {
      for (NodeId node : fragment->gathered) graph_.move_before(node, {});
    }
    cross();
  }

  size_t crossed() const {
    size_t gathers = 0;
    for (const UpdateFragment* fragment : crossing_) gathers += fragment->gathers.size();
    return gathers;
  }

 private:
  int32_t axis_size() const { return static_cast<int32_t>(axis_.live.order.size()); }

  // Gathers at the end of the program. Gathers too small for a collective join the
  // bucket of the next ones.
  void gather_last(const std::vector<NodeId>& gathers) {
    if (gathers.empty()) return;
    base::Bytes bytes;
    for (NodeId start : gathers) bytes += cost::transfer_of(graph_, graph_.node(start))->bytes();
    const ir::Node& next = graph_.node(gathers[0]);
    const bool fits = !bucket_.empty() &&
                      ir::group_of(graph_.node(bucket_[0])) == ir::group_of(next) &&
                      belongs_(graph_.node(bucket_[0]), next, bucket_bytes_);
    if (!fits) end_bucket();
    bucket_.insert(bucket_.end(), gathers.begin(), gathers.end());
    bucket_bytes_ += bytes;
  }

  void end_bucket() {
    for (NodeId start : bucket_) {
      if (start != bucket_[0] && !cost::joins(graph_.node(start)))
        graph_.edit(start).args.edit().push_back({ir::Attr::Joins, int64_t{1}});
      graph_.move_before(start, {});
    }
    bucket_.clear();
    bucket_bytes_ = {};
  }

  ir::Origin update_origin() const { return {"", ir::Phase::Update, false}; }

  void check_finite(const UpdateFragment& fragment, NodeId before) {
    if (!losses_.valid()) meet_losses(before);
    ir::Builder at(graph_, before, update_origin());
    for (const int param : fragment.params)
      at.act(OpKind::CheckFinite, {scalars_, row_, losses_}, {{ir::Attr::Param, int64_t{param}}});
  }

  ValueId value(int entry) { return schedule::state_value(step_, graph_, entry); }

  int add_losses(const std::string& name, int64_t count, int range_of) {
    ir::StateEntry entry;
    entry.name = name;
    entry.role = ir::StateRole::Losses;
    entry.type = ir::contiguous(ir::DType::F64, {count});
    entry.range_of = range_of;
    return schedule::add_entry(step_, std::move(entry));
  }

  // Adds an all-gather of the ranks' losses. It starts right after the last micro-batch's loss is
  // added, and is waited for right before `first`, the first node that needs the losses.
  void meet_losses(NodeId first) {
    const int64_t world = step_.mesh.world();
    const int all = add_losses("losses", world, -1);
    const int own = add_losses("own_loss", 1, all);
    const schedule::StateIndex state(step_);
    losses_ = value(all);
    scalars_ = value(state.of(-1, ir::StateRole::Scalars));
    row_ = value(schedule::range_of(step_, state.of(-1, ir::StateRole::NormTable)));
    const ValueId mine = value(own);
    NodeId added = graph_.last();
    while (graph_.node(added).kind != OpKind::AddLoss) added = graph_.previous(added);
    ir::Builder after(graph_, graph_.next(added), update_origin());
    after.act(OpKind::Copy, {mine, value(state.of(-1, ir::StateRole::LossSum))});
    if (world == 1) return;
    const ValueId started =
        after.on(stream_of_gathers())
            .make_in_place(OpKind::AllGatherIntoStart, {losses_, mine}, "gather.losses",
                           ir::collective_args(step_.mesh, world, 1));
    ir::Builder(graph_, first, update_origin()).wait(started, "gathered.losses");
  }

  int stream_of_gathers() const {
    for (NodeId id = graph_.last(); id.valid(); id = graph_.previous(id)) {
      if (cost::transfer_of(graph_, graph_.node(id))) return graph_.node(id).stream;
    }
    return 0;
  }

  // Gathers lose their dones; the first program waits where the values are first used.
  void cross() {
    ir::Graph& first = step_.programs.front().graph;
    schedule::StateValues values(step_, first);
    for (const UpdateFragment* fragment : crossing_) {
      for (NodeId done : fragment->gathered) graph_.erase(done);
      for (NodeId start : fragment->gathers) {
        graph_.edit(start).args.edit().push_back({ir::Attr::SpansSteps, int64_t{1}});
        const int entry = analysis::state_entry_of(
            step_, graph_.node(graph_.value(graph_.node(start).operands[0]).producer));
        const NodeId before = uses_[static_cast<size_t>(entry)].node;
        ir::Builder(first, before, first.node(before).origin)
            .act(OpKind::AllGatherWaitPreviousStep, {values.of(entry)});
      }
    }
  }

  ir::Step& step_;
  ir::Graph& graph_;
  const schedule::TimeAxis& axis_;
  const std::vector<FirstUse>& uses_;
  bool before_norm_;
  schedule::BucketPolicy belongs_;
  std::vector<NodeId> bucket_;  // starts that are not placed yet
  base::Bytes bucket_bytes_;
  ValueId losses_, scalars_, row_;  // once the first update is permitted
  std::vector<const UpdateFragment*> crossing_, staying_;
};

// The parameters that fragments update; they count trainable ones only.
std::vector<base::RemarkSubject> parameters_of(const ir::Step& step,
                                               const std::vector<UpdateFragment>& fragments) {
  std::vector<int32_t> trainable;
  for (size_t i = 0; i < step.parameters.size(); ++i) {
    if (step.parameters[i].trainable) trainable.push_back(static_cast<int32_t>(i));
  }
  std::vector<base::RemarkSubject> subjects;
  for (const UpdateFragment& fragment : fragments) {
    for (const int column : fragment.params)
      subjects.push_back({base::SubjectKind::Parameter, trainable[static_cast<size_t>(column)]});
  }
  return subjects;
}

}  // namespace

base::Result<Change> overlap_update(ir::Step& step, const PassContext& context) {
  const ir::Graph& graph = step.programs.back().graph;
  if (!ir::cross_step_gathers(step).empty() || has_permits(graph))
    return Change::No;  // done before
  const schedule::TimeAxis axis(step, graph, context.cost);
  const bool before_norm = decides_alone(step);
  const std::vector<FirstUse> uses = first_uses(step);
  const std::vector<UpdateFragment> fragments =
      update_fragments(step, axis, context.cost, uses, before_norm);
  if (fragments.empty()) return Change::No;
  const auto time = [&] { return sim::simulate(step, context.cost).time; };
  const Nanos before = context.collect_remarks ? time() : Nanos{};
  const std::optional<int64_t> limit = schedule::transient_limit(step, context.options.memory());
  const base::Bytes state = analysis::state_bytes(step, ir::Space::Device);
  const int64_t most = *std::max_element(axis.bytes.begin(), axis.bytes.end()) + state.v;
  const bool too_large = context.options.memory() && most > context.options.memory()->v;
  const std::vector<UpdatePlace> places =
      place_updates(step, axis, context.cost, fragments, too_large || step.mesh.world() == 1);
  if (before_norm) decide_on_shards(step, step.programs.back().graph);
  UpdateRewriter mover(step, axis, context.cost, uses, before_norm);
  mover.apply(places);
  (void)schedule::defer_reductions(step, step.programs.back().graph, context.cost, limit);
  if (!context.collect_remarks) return Change::Yes;
  const Nanos after = time();
  context.remarks.push_back({"overlap-update",
                             before_norm ? "updates-before-norm" : "updates-overlapped",
                             parameters_of(step, fragments),
                             {{"updates", static_cast<int64_t>(fragments.size())},
                              {"crossing_gathers", static_cast<int64_t>(mover.crossed())},
                              {"step_before_ns", before.v},
                              {"step_after_ns", after.v}},
                             std::to_string(fragments.size()) + " updates " +
                                 (before_norm ? "wait for their own gradients only"
                                              : "follow the norm in order of need") +
                                 ", " + std::to_string(mover.crossed()) +
                                 " gathers go on into the next step: the step takes " +
                                 base::format_duration(after.v) + " instead of " +
                                 base::format_duration(before.v)});
  return Change::Yes;
}

}  // namespace dc::passes
