// gather-again-by-block: the third gather of FSDP under activation checkpointing, as with Hugging
// Face's gradient_checkpointing_enable() before wrapping (PyTorch,
// torch/distributed/fsdp/_runtime_utils.py): a block's forward runs again inside its checkpoint,
// frees its parameters after it, and the block's gradients gather them once more.
//
// In the backward phase each bucket that kernels of recomputation and gradients read becomes two.
// The second starts when the block runs again, the next block's when this one's gradients begin
// (BACKWARD_PRE); all parameters of the block travel in both, needed or not, being one flat
// parameter there. Without recomputation nothing changes. No budget is considered.
#include <algorithm>

#include "src/analysis/repeated_kernels.h"
#include "src/cost/transfer.h"
#include "src/ir/builder.h"
#include "src/ir/effects.h"
#include "src/ir/view_copies.h"
#include "src/passes/movement.h"
#include "src/schedule/gather_moves.h"
#include "src/schedule/time_axis.h"

namespace dc::passes {
namespace {

using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

// A gather of a bucket and who reads its value, in program order: repeated kernels, then others.
struct Member {
  NodeId start, done, release;
  std::vector<NodeId> again, gradients;
};

class BlockRegatherer {
 public:
  BlockRegatherer(const ir::Step& step, ir::Graph& graph)
      : graph_(graph), axis_(step, graph), repeated_(analysis::repeated_kernels(graph)) {}

  // Returns how many gathers were added.
  int run() {
    for (NodeId id : axis_.live.order) {
      if (!graph_.contains(id)) continue;  // a view that was read no more
      const ir::Node& node = graph_.node(id);
      if (node.kind != OpKind::AllGatherStart || cost::joins(node)) continue;
      if (node.origin.phase != ir::Phase::Backward) continue;
      const std::vector<NodeId> bucket = cost::bucket_of(graph_, id);
      if (done_before_.valid()) start_behind_gradients(bucket);
      done_before_ = gather_again(bucket);
    }
    return added_;
  }

 private:
  // Returns the first done of the second bucket; invalid if there is none.
  NodeId gather_again(const std::vector<NodeId>& bucket) {
    std::vector<Member> members;
    int32_t first_done = INT32_MAX, first_gradient = INT32_MAX;
    bool again = false;
    for (NodeId start : bucket) {
      members.push_back(member(start));
      const Member& one = members.back();
      first_done = std::min(first_done, axis_.position(one.done));
      again = again || !one.again.empty();
      if (!one.gradients.empty())
        first_gradient = std::min(first_gradient, axis_.position(one.gradients[0]));
    }
    if (!again || first_gradient == INT32_MAX || !may_start(bucket, first_done + 1)) return {};
    gradient_before_ = first_gradient;
    const NodeId gradient = axis_.live.order[static_cast<size_t>(first_gradient)];
    const NodeId behind = graph_.next(axis_.live.order[static_cast<size_t>(first_done)]);
    NodeId first;
    std::vector<ValueId> started = starts(members, behind);
    for (size_t i = 0; i < members.size(); ++i) {
      if (!started[i].valid()) continue;
      const NodeId done = read_again(members[i], started[i], gradient);
      if (members[i].gradients[0] == gradient) first = done;
      ++added_;
    }
    return first;
  }

  Member member(NodeId start) const {
    Member member;
    member.start = start;
    member.done = graph_.value(graph_.node(start).results[0]).uses[0].node;
    add_readers(member, graph_.node(member.done).results[0]);
    const auto earlier = [&](NodeId a, NodeId b) { return axis_.position(a) < axis_.position(b); };
    for (std::vector<NodeId>* readers : {&member.again, &member.gradients}) {
      std::sort(readers->begin(), readers->end(), earlier);
      readers->erase(std::unique(readers->begin(), readers->end()), readers->end());
    }
    return member;
  }

  void add_readers(Member& member, ValueId value) const {
    for (const ir::Use& use : graph_.value(value).uses) {
      const ir::Node& node = graph_.node(use.node);
      if (node.kind == OpKind::Release) {
        member.release = node.id;
      } else if (ir::is_plain_view(node)) {
        for (ValueId result : node.results) add_readers(member, result);
      } else {
        (repeated_[node.id.index()].valid() ? member.again : member.gradients).push_back(node.id);
      }
    }
  }

  bool may_start(const std::vector<NodeId>& bucket, int32_t place) const {
    return std::all_of(bucket.begin(), bucket.end(), [&](NodeId id) {
      const ir::Node& start = graph_.node(id);
      return schedule::earliest_start(axis_, start, std::max(place, axis_.position(id))) <= place;
    });
  }

  // Starts the second bucket before `before`; invalid for what no gradient reads.
  std::vector<ValueId> starts(const std::vector<Member>& members, NodeId before) {
    std::vector<ValueId> shards, started;
    for (const Member& member : members) {
      const ir::Node& start = graph_.node(member.start);
      const NodeId cast = schedule::cast_of(graph_, start);
      const bool copies_cast = cast.valid() && !member.gradients.empty();
      shards.push_back(copies_cast ? repeat(cast, graph_.node(cast).operands, before)
                                   : start.operands[0]);
    }
    bool joins = false;
    for (size_t i = 0; i < members.size(); ++i) {
      started.emplace_back();
      if (members[i].gradients.empty()) continue;
      started.back() = repeat(members[i].start, {shards[i]}, before);
      std::vector<ir::Arg>& args = graph_.edit(graph_.value(started.back()).producer).args.edit();
      std::erase_if(args, [](const ir::Arg& arg) { return arg.attribute == ir::Attr::Joins; });
      if (joins) args.push_back({ir::Attr::Joins, int64_t{1}});
      joins = true;
    }
    return started;
  }

  ValueId repeat(NodeId id, const std::vector<ValueId>& operands, NodeId before) {
    const ir::Node& node = graph_.node(id);
    return ir::Builder(graph_, before, node.origin).repeat(node, operands).results[0];
  }

  // Gradients read the second gather's value; the first one's is released before. `gradient`: the
  // first reader of the bucket. Returns the done.
  NodeId read_again(const Member& member, ValueId started, NodeId gradient) {
    const ValueId before = graph_.node(member.done).results[0];
    if (member.again.empty()) graph_.move_before(member.done, gradient);
    const ValueId whole = ir::Builder(graph_, member.gradients[0], graph_.node(member.done).origin)
                              .wait(started, graph_.value(before).name);
    ir::ViewCopies views(graph_, whole);
    for (NodeId reader : member.gradients) {
      for (size_t i = 0; i < graph_.node(reader).operands.size(); ++i) {
        const ValueId operand = graph_.node(reader).operands[i];
        if (ir::view_root(graph_, operand) == ir::view_root(graph_, before) && operand != whole)
          graph_.set_operand(reader, static_cast<int>(i), views.of(operand, reader));
      }
    }
    erase_unread(before);
    if (member.release.valid()) graph_.set_operand(member.release, 0, whole);
    const NodeId last = member.again.empty() ? member.done : member.again.back();
    ir::Builder(graph_, graph_.next(last), graph_.node(last).origin).act(OpKind::Release, {before});
    return graph_.value(whole).producer;
  }

  // Views of the value that are read no more.
  void erase_unread(ValueId value) {
    const auto uses = graph_.value(value).uses;
    for (const ir::Use& use : uses) {
      if (!ir::is_plain_view(graph_.node(use.node))) continue;
      const auto results = graph_.node(use.node).results;
      for (ValueId result : results) erase_unread(result);
      if (std::all_of(results.begin(), results.end(),
                      [&](ValueId result) { return graph_.value(result).uses.empty(); }))
        graph_.erase(use.node);
    }
  }

  // The bucket started when the one before it did; now it starts when that one's gradients begin.
  void start_behind_gradients(const std::vector<NodeId>& bucket) {
    const bool is_ahead = axis_.position(bucket[0]) < gradient_before_ &&
                          std::all_of(bucket.begin(), bucket.end(), [&](NodeId start) {
                            return axis_.position(member(start).done) > gradient_before_;
                          });
    if (is_ahead) schedule::move_gathers(graph_, bucket, graph_.next(done_before_));
  }

  ir::Graph& graph_;
  schedule::Positions axis_;
  std::vector<NodeId> repeated_;  // by node id, of those before the pass
  NodeId done_before_;            // first of the bucket added last, and the first reader it is for
  int32_t gradient_before_ = 0;
  int added_ = 0;
};

}  // namespace

base::Result<Change> gather_again_by_block(ir::Step& step, const PassContext& context) {
  return move_collectives(
      step, context, "gather-again-by-block", kGathersAgain,
      [&](ir::Graph& graph, std::optional<int64_t>) { return BlockRegatherer(step, graph).run(); });
}

}  // namespace dc::passes
