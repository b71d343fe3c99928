// offload-gradients: gradients that are updated on the host go there when they are reduced, while
// the backward phase goes on, instead of when the updates begin; their device memory is free when
// they have gone. As DeepSpeed's offload_optimizer does it at the last micro-batch.
//
// Comes after the passes that move reductions: it starts a copy where its gradient is complete, and
// waits for it where compute has hidden it. The copies and what they read stay the same.
#include <algorithm>

#include "src/cost/transfer.h"
#include "src/ir/effects.h"
#include "src/passes/movement.h"
#include "src/schedule/reduction_tail.h"
#include "src/schedule/time_axis.h"

namespace dc::passes {
namespace {

using ir::NodeId;

class EarlierCopies {
 public:
  EarlierCopies(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost)
      : step_(step),
        graph_(graph),
        cost_(cost),
        axis_(step, graph, cost),
        may_move_(axis_.live.order.size()) {}

  // Returns how many copies moved.
  int run() {
    std::vector<int32_t> starts;
    for (int32_t i = 0; i < static_cast<int32_t>(may_move_.size()); ++i) {
      const ir::Node& node = axis_.node(i);
      if (node.kind != ir::OpKind::OffloadStart || !is_of_update(node)) continue;
      starts.push_back(i);
      may_move_[static_cast<size_t>(i)] = true;
      may_move_[static_cast<size_t>(axis_.position(done_of(node)))] = true;
    }
    std::vector<Copy> copies;
    for (const int32_t i : starts) {
      const ir::Node& node = axis_.node(i);
      const int32_t made = last_made(node.operands[0], i);
      if (made < 0) continue;  // of what the program only reads
      const int32_t ready = whole_place(axis_.live.known[static_cast<size_t>(made)] + 1, i);
      if (ready < i) copies.push_back({node.id, done_of(node), ready});
    }
    return move(std::move(copies));
  }

 private:
  // Position of what made the value, or last changed it before `end`; -1 if nothing does.
  int32_t last_made(ir::ValueId value, int32_t end) const {
    const ir::Node& producer = graph_.node(graph_.value(value).producer);
    const int32_t made = producer.kind == ir::OpKind::State ? -1 : axis_.position(producer.id);
    return std::max(made, axis_.last_write(value, end));
  }

  struct Copy {
    NodeId start, done;
    int32_t ready;
  };

  int move(std::vector<Copy> copies) {
    std::stable_sort(copies.begin(), copies.end(),
                     [](const Copy& a, const Copy& b) { return a.ready < b.ready; });
    base::Nanos free{INT64_MIN / 2};  // the stream of the copies
    for (const Copy& copy : copies) {
      const auto moved = cost::space_copy_of(step_, graph_, graph_.node(copy.start));
      free = std::max(free, axis_.time_before(copy.ready)) +
             cost_.copy(moved->bytes, moved->from, moved->to).time;
      const auto hidden = std::lower_bound(axis_.at.begin(), axis_.at.end(), free);
      const int32_t end = axis_.position(copy.done);
      const int32_t gone =
          whole_place(std::max(copy.ready, static_cast<int32_t>(hidden - axis_.at.begin())), end);
      graph_.move_before(copy.start, axis_.node(copy.ready).id);
      if (gone < end) graph_.move_before(copy.done, axis_.node(gone).id);
    }
    return static_cast<int>(copies.size());
  }

  NodeId done_of(const ir::Node& start) const {
    return graph_.value(start.results[0]).uses[0].node;
  }

  bool is_of_update(const ir::Node& start) const {
    const auto& uses = graph_.value(graph_.node(done_of(start)).results[0]).uses;
    return std::any_of(uses.begin(), uses.end(), [&](const ir::Use& use) {
      return ir::is_update(graph_.node(use.node).kind);
    });
  }

  // The first position from `position` on, `end` at the latest, whose node stays where it is and
  // which tears no bucket or tail apart.
  int32_t whole_place(int32_t position, int32_t end) const {
    while (position < end && (may_move_[static_cast<size_t>(position)] ||
                              !schedule::splits_no_tail(axis_.node(position))))
      ++position;
    return std::min(position, end);
  }

  const ir::Step& step_;
  ir::Graph& graph_;
  const cost::CostModel& cost_;
  const schedule::TimeAxis axis_;
  std::vector<bool> may_move_;  // by position
};

}  // namespace

base::Result<Change> offload_gradients(ir::Step& step, const PassContext& context) {
  return move_collectives(step, context, "offload-gradients", kGradientsEarlier,
                          [&](ir::Graph& graph, std::optional<int64_t>) {
                            return EarlierCopies(step, graph, context.cost).run();
                          });
}

}  // namespace dc::passes
