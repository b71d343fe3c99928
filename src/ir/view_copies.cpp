#include "src/ir/view_copies.h"

#include "src/base/status.h"
#include "src/ir/builder.h"
#include "src/ir/effects.h"

namespace dc::ir {

ValueId ViewCopies::of(ValueId value, NodeId before) { return copy(value, {before, {}}); }

ValueId ViewCopies::of_in(ValueId value, Phase phase) { return copy(value, {{}, phase}); }

ValueId ViewCopies::copy(ValueId value, const Place& place) {
  if (const auto found = known_.find(value.v); found != known_.end()) return found->second;
  const Node& view = graph_->node(graph_->value(value).producer);
  // What an op updated in place is that place: a view of the other bytes, which have the update.
  if (is_view(view) && !is_plain_view(view)) return copy(view.operands[0], place);
  if (!is_plain_view(view)) {
    DC_CHECK(base_.valid());
    return base_;
  }
  auto operands = view.operands;
  operands[0] = copy(operands[0], place);
  Origin origin = view.origin;
  origin.phase = place.phase.value_or(origin.phase);
  const NodeId before =
      place.phase ? graph_->next(graph_->value(operands[0]).producer) : place.before;
  const Node& made = Builder(*graph_, before, std::move(origin)).repeat(view, std::move(operands));
  for (size_t i = 0; i < view.results.size(); ++i) {
    if (view.results[i].valid()) known_[view.results[i].v] = made.results[i];
  }
  return known_.at(value.v);
}

}  // namespace dc::ir
