#include "src/schedule/reduction_tail.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <span>

#include "src/cost/transfer.h"
#include "src/ir/effects.h"
#include "src/ir/group.h"

namespace dc::schedule {
namespace {

using ir::NodeId;
using ir::OpKind;

// What a tail makes or changes, and what travels. Square sums and check_finite access
// different elements of one row: those of different parameters do not conflict.
class Touched {
 public:
  explicit Touched(const Positions& axis) : axis_(axis) {}

  void add(const ir::Node& member) {
    const bool sums = member.kind == OpKind::SquareSum;
    if (sums) params_.insert(member.integer(ir::Attr::Param));
    const ir::ValueId made = member.results.empty() ? member.operands[0] : member.results[0];
    const auto [entry, is_new] = only_sums_.try_emplace(axis_.storage_key(made), sums);
    entry->second = entry->second && sums;
  }
  void add_travelling(ir::ValueId value) { travelling_.insert(axis_.storage_key(value)); }

  bool meets(const ir::Node& node) const {
    for (ir::ValueId operand : node.operands) {
      const auto found = only_sums_.find(axis_.storage_key(operand));
      if (found == only_sums_.end()) continue;
      if (!(found->second && is_elsewhere(node))) return true;
    }
    return std::any_of(travelling_.begin(), travelling_.end(),
                       [&](int64_t storage) { return axis_.writes(node, storage); });
  }

  // Position of the first node in [begin, end) for which meets() is true; `end` if there is none.
  // Looks only at nodes that touch one of the storages of this set.
  int32_t first_meeting(int32_t begin, int32_t end) const {
    for (const auto& [storage, sums] : only_sums_) {
      const auto meets = [&, sums = sums](int32_t i) {
        return !sums || !is_elsewhere(axis_.node(i));
      };
      end = next(axis_.touches.by_others(storage), begin, end, meets);
      if (!sums) end = next(axis_.touches.by_square_sums(storage), begin, end, {});
    }
    for (int64_t storage : travelling_) {
      const auto writes = [&](int32_t i) { return axis_.writes(axis_.node(i), storage); };
      end = next(axis_.touches.by_others(storage), begin, end, writes);
      end = next(axis_.touches.by_square_sums(storage), begin, end, writes);
    }
    return end;
  }

 private:
  // In the row of square sums. A view of the row reads nothing yet.
  bool is_elsewhere(const ir::Node& node) const {
    return node.kind == OpKind::SquareSum || ir::is_plain_view(node) ||
           (node.kind == OpKind::CheckFinite && !params_.contains(node.integer(ir::Attr::Param)));
  }

  // The first position from `begin` on and before `end` that counts, `end` if none.
  static int32_t next(std::span<const int32_t> positions, int32_t begin, int32_t end,
                      const std::function<bool(int32_t)>& counts) {
    auto at = std::lower_bound(positions.begin(), positions.end(), begin);
    for (; at != positions.end() && *at < end; ++at) {
      if (!counts || counts(*at)) return *at;
    }
    return end;
  }

  const Positions& axis_;
  std::map<int64_t, bool> only_sums_;
  std::set<int64_t> travelling_;
  std::set<int64_t> params_;  // of square sums
};

}  // namespace

bool is_reduction(OpKind start) {
  return start == OpKind::ReduceScatterStart || start == OpKind::AllReduceStart ||
         start == OpKind::AllReduceInPlaceStart;
}

bool splits_no_tail(const ir::Node& node) {
  // Replicas of a shard are summed right behind the sums that made it.
  const bool may_go_on = is_reduction(node.kind) && ir::group_of(node) != ir::kAllAxes &&
                         node.kind != OpKind::ReduceScatterStart;
  const bool ends_one = ir::is_done(node.kind) && is_reduction(ir::start_of(node.kind));
  return !ir::is_tail(node.kind) && !ends_one && !may_go_on && !cost::joins(node);
}

namespace {

// The bucket of reductions that starts here, if one of them takes up what the tail made; else
// empty.
std::vector<NodeId> goes_on(const Positions& axis, const Touched& touched, const ir::Node& node) {
  if (!is_reduction(node.kind) || cost::joins(node)) return {};
  std::vector<NodeId> bucket = cost::bucket_of(axis.graph, node.id);
  const bool takes_up = std::any_of(bucket.begin(), bucket.end(), [&](NodeId start) {
    return touched.meets(axis.graph.node(start));
  });
  return takes_up ? bucket : std::vector<NodeId>();
}

}  // namespace

std::vector<NodeId> reduction_tail(const Positions& axis, const std::vector<NodeId>& bucket) {
  std::vector<NodeId> dones;
  const auto await = [&](NodeId start) {
    const ir::ValueId started = axis.graph.node(start).results[0];
    dones.push_back(axis.graph.value(started).uses[0].node);
  };
  for (NodeId start : bucket) await(start);
  std::vector<NodeId> tail;
  Touched touched(axis);
  const auto count = static_cast<int32_t>(axis.live.order.size());
  for (int32_t i = axis.position(dones[0]); i < count; ++i) {
    const ir::Node& node = axis.node(i);
    const std::vector<NodeId> next = goes_on(axis, touched, node);
    for (NodeId start : next) {
      await(start);
      tail.push_back(start);
      touched.add(axis.graph.node(start));
    }
    if (!next.empty()) {
      i += static_cast<int32_t>(next.size()) - 1;
      continue;
    }
    const bool is_done = std::find(dones.begin(), dones.end(), node.id) != dones.end();
    if (!is_done && !(ir::is_tail(node.kind) && touched.meets(node))) break;
    tail.push_back(node.id);
    touched.add(node);
  }
  return tail;
}

int32_t latest_tail(const Positions& axis, const std::vector<NodeId>& bucket,
                    const std::vector<NodeId>& tail, int32_t end, int32_t begin) {
  Touched touched(axis);
  for (NodeId id : tail) touched.add(axis.graph.node(id));
  for (NodeId start : bucket) touched.add_travelling(axis.graph.node(start).operands[0]);
  return touched.first_meeting(std::max(begin, axis.position(tail.back()) + 1), end);
}

}  // namespace dc::schedule
