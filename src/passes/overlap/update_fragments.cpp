#include "src/passes/overlap/update_fragments.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "src/cost/transfer.h"
#include "src/ir/effects.h"
#include "src/sim/simulate.h"

namespace dc::passes {
namespace {

using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

class FragmentScan {
 public:
  FragmentScan(const ir::Step& step, const schedule::TimeAxis& axis, const cost::CostModel& cost,
               bool before_norm)
      : step_(step),
        graph_(axis.graph),
        axis_(axis),
        cost_(cost),
        before_norm_(before_norm),
        member_of_(axis.graph.node_capacity(), -1) {}

  std::vector<UpdateFragment> run() {
    collect();
    merge_buckets();
    for (size_t f = 0; f < fragments_.size(); ++f) {
      for (const int64_t param : fragments_[f].params) of_param_[param] = static_cast<int>(f);
    }
    find_order();
    follow_views();
    std::vector<UpdateFragment> movable;
    for (size_t f = 0; f < fragments_.size(); ++f) {
      if (fixed_[f] || fragments_[f].update.empty()) continue;
      measure(fragments_[f]);
      movable.push_back(std::move(fragments_[f]));
    }
    return movable;
  }

 private:
  int32_t count() const { return static_cast<int32_t>(axis_.live.order.size()); }
  int64_t key(ValueId value) const { return axis_.storage_key(value); }

  // Collects each optimizer node and the nodes that use its result.
  void collect() {
    for (int32_t i = 0; i < count(); ++i) {
      const ir::Node& node = axis_.node(i);
      if (ir::is_update(node.kind)) {
        open(node);
        continue;
      }
      const int f = stands_on(node);
      if (f < 0) continue;
      UpdateFragment& fragment = fragments_[static_cast<size_t>(f)];
      if (node.kind == OpKind::Cast || node.kind == OpKind::Copy || node.kind == OpKind::Zero) {
        fragment.update.push_back(node.id);
        for (ValueId result : node.results) written_[key(result)] = f;
      } else if (node.kind == OpKind::AllGatherIntoStart) {
        fragment.gathers.push_back(node.id);
        written_[key(node.operands[0])] = f;
      } else if (node.kind == OpKind::AllGatherIntoDone) {
        fragment.gathered.push_back(node.id);
      } else {
        continue;  // left to find_order
      }
      member_of_[node.id.index()] = f;
    }
  }

  void open(const ir::Node& node) {
    const auto f = static_cast<int>(fragments_.size());
    UpdateFragment fragment;
    fragment.params = {static_cast<int>(node.integer(ir::Attr::Param))};
    fragment.update = {node.id};
    fragments_.push_back(std::move(fragment));
    fixed_.push_back(false);
    member_of_[node.id.index()] = f;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (ir::writes(node, i)) written_[key(node.operands[i])] = f;
    }
    gradients_[key(gradient(node))] = f;
  }

  static ValueId gradient(const ir::Node& update) {
    return update.operands[ir::gradient_operand(update.kind).value()];
  }

  // The fragment whose result the node reads or changes, or whose used gradient it clears.
  int stands_on(const ir::Node& node) const {
    if (node.kind == OpKind::AllGatherIntoDone) {
      const int f = member_of_[graph_.value(node.operands[0]).producer.index()];
      return f;
    }
    for (ValueId operand : node.operands) {
      const auto found = written_.find(key(operand));
      if (found != written_.end()) return found->second;
    }
    const auto cleared =
        node.kind == OpKind::Zero ? gradients_.find(key(node.operands[0])) : gradients_.end();
    return cleared == gradients_.end() ? -1 : cleared->second;
  }

  // Parameters whose gathers travel together are one fragment.
  void merge_buckets() {
    for (int32_t i = 0; i < count(); ++i) {
      const ir::Node& node = axis_.node(i);
      if (node.kind != OpKind::AllGatherIntoStart || cost::joins(node)) continue;
      const std::vector<NodeId> bucket = cost::bucket_of(graph_, node.id);
      const int into = member_of_[node.id.index()];
      for (NodeId start : bucket) {
        const int f = member_of_[start.index()];
        if (f < 0 || into < 0) {  // the bucket carries something else too
          for (const int one : {f, into}) {
            if (one >= 0) fixed_[static_cast<size_t>(one)] = true;
          }
        } else if (f != into) {
          absorb(into, f);
        }
      }
    }
  }

  void absorb(int into, int f) {
    UpdateFragment &to = fragments_[static_cast<size_t>(into)],
                   &from = fragments_[static_cast<size_t>(f)];
    const auto append = [](auto& list, auto& more) {
      list.insert(list.end(), more.begin(), more.end());
      more.clear();
    };
    for (const auto* list : {&from.update, &from.gathers, &from.gathered}) {
      for (NodeId node : *list) member_of_[node.index()] = into;
    }
    append(to.params, from.params);
    append(to.update, from.update);
    append(to.gathers, from.gathers);
    append(to.gathered, from.gathered);
    if (fixed_[static_cast<size_t>(f)]) fixed_[static_cast<size_t>(into)] = true;
  }

  // What a node reads or writes, a done what its start does.
  template <typename Visit>
  void accesses(const ir::Node& node, Visit visit) const {
    if (ir::is_done(node.kind)) {
      accesses(graph_.node(graph_.value(node.operands[0]).producer), visit);
      return;
    }
    for (size_t i = 0; i < node.operands.size(); ++i)
      visit(key(node.operands[i]), ir::writes(node, i));
    for (ValueId result : node.results) {
      if (result.valid()) visit(key(result), true);
    }
  }

  // True if the order of the two does not matter although they touch the same bytes: the scalars,
  // which every check_finite writes for itself, if no update waits for the norm.
  bool is_ignored(const ir::Node& node) const {
    return before_norm_ && node.kind == OpKind::ClipAndCheck;
  }

  struct Touch {
    int fragment;
    int32_t first, last;  // positions of its members that touch the storage
    bool writes;
  };

  // A non-member that conflicts with a member of a fragment restricts the fragment. If it comes
  // before the members, the fragment must stay after it. If it comes after the first member, the
  // fragment cannot move.
  void find_order() {
    std::unordered_map<int64_t, std::vector<Touch>> touched;
    std::unordered_set<int64_t> written;  // by members
    for (int32_t i = 0; i < count(); ++i) {
      const ir::Node& node = axis_.node(i);
      const int f = member_of_[node.id.index()];
      if (f < 0) continue;
      accesses(node, [&](int64_t storage, bool writes) {
        if (writes) written.insert(storage);
        std::vector<Touch>& list = touched[storage];
        if (list.empty() || list.back().fragment != f) {
          list.push_back({f, i, i, writes});
        } else {
          list.back().last = i;
          list.back().writes = list.back().writes || writes;
        }
      });
    }
    for (int32_t i = 0; i < count(); ++i) {
      const ir::Node& node = axis_.node(i);
      if (member_of_[node.id.index()] >= 0 || !ir::runs(node)) continue;
      if (node.kind == OpKind::SquareSum) follow_square_sum(node, i);
      if (node.kind == OpKind::AddLoss && before_norm_) follow_loss(i);
      if (is_ignored(node)) continue;
      accesses(node, [&](int64_t storage, bool writes) {
        const auto found = touched.find(storage);
        if (found == touched.end() || (!writes && !written.contains(storage))) return;
        for (const Touch& touch : found->second) {
          if (!writes && !touch.writes) continue;
          const auto f = static_cast<size_t>(touch.fragment);
          if (i > touch.first) fixed_[f] = true;
          fragments_[f].ready = std::max(fragments_[f].ready, i + 1);
        }
      });
    }
  }

  // A view that a member reads does nothing, but must come before it: where a gradient comes back
  // from the host, right before the update.
  void follow_views() {
    std::vector<int32_t> first(fragments_.size(), INT32_MAX);  // members' positions
    for (int32_t i = 0; i < count(); ++i) {
      const ir::Node& node = axis_.node(i);
      const int member = member_of_[node.id.index()];
      if (member < 0) continue;
      const auto f = static_cast<size_t>(member);
      first[f] = std::min(first[f], i);
      for (ValueId operand : node.operands) {
        const NodeId producer = graph_.value(operand).producer;
        if (!producer.valid() || ir::runs(graph_.node(producer))) continue;
        const int32_t position = axis_.position(producer);
        if (position > first[f]) fixed_[f] = true;
        fragments_[f].ready = std::max(fragments_[f].ready, position + 1);
      }
    }
  }

  // A check_finite reads it.
  void follow_square_sum(const ir::Node& node, int32_t position) {
    const auto found = of_param_.find(node.integer(ir::Attr::Param));
    if (found == of_param_.end()) return;
    int32_t& ready = fragments_[static_cast<size_t>(found->second)].ready;
    ready = std::max(ready, position + 1);
  }

  // check_finite reads the losses of all ranks, which meet once this rank's is complete.
  void follow_loss(int32_t position) {
    for (UpdateFragment& fragment : fragments_)
      fragment.ready = std::max(fragment.ready, position + 1);
  }

  void measure(UpdateFragment& fragment) const {
    for (NodeId id : fragment.update)
      fragment.update_time += sim::node_time(step_, graph_, graph_.node(id), cost_);
    if (!fragment.gathers.empty())
      fragment.gather_time = sim::node_time(step_, graph_, graph_.node(fragment.gathers[0]), cost_);
  }

  const ir::Step& step_;
  const ir::Graph& graph_;
  const schedule::TimeAxis& axis_;
  const cost::CostModel& cost_;
  bool before_norm_;
  std::vector<int> member_of_;  // by node: fragment, or -1
  std::vector<UpdateFragment> fragments_;
  std::vector<bool> fixed_;                   // by fragment
  std::unordered_map<int64_t, int> written_;  // by storage; only looked up, as those below
  std::unordered_map<int64_t, int> gradients_, of_param_;
};

// Where the next step first needs what a fragment makes.
void find_needs(const ir::Step& step, const schedule::TimeAxis& last,
                const std::vector<FirstUse>& uses, std::vector<UpdateFragment>& fragments) {
  for (UpdateFragment& fragment : fragments) {
    for (NodeId id : fragment.update) {
      for (ValueId operand : last.graph.node(id).operands) {
        const int owner = last.storages.owner(operand);
        const bool is_parameter =
            owner >= 0 &&
            (step.state[static_cast<size_t>(owner)].role == ir::StateRole::Parameter ||
             step.state[static_cast<size_t>(owner)].role == ir::StateRole::Shard);
        if (is_parameter)
          fragment.needed = std::min(fragment.needed, uses[static_cast<size_t>(owner)].position);
      }
    }
  }
}

}  // namespace

std::vector<FirstUse> first_uses(const ir::Step& step) {
  const ir::Graph& graph = step.programs.front().graph;
  const analysis::StorageMap storages(step, graph);
  std::vector<FirstUse> uses(step.state.size());
  int32_t position = 0;
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id), ++position) {
    const ir::Node& node = graph.node(id);
    if (!ir::runs(node)) continue;
    for (ValueId operand : node.operands) {
      const int owner = storages.owner(operand);
      if (owner >= 0 && !uses[static_cast<size_t>(owner)].node.valid())
        uses[static_cast<size_t>(owner)] = {id, position};
    }
  }
  return uses;
}

std::vector<UpdateFragment> update_fragments(const ir::Step& step, const schedule::TimeAxis& axis,
                                             const cost::CostModel& cost,
                                             const std::vector<FirstUse>& uses, bool before_norm) {
  std::vector<UpdateFragment> fragments = FragmentScan(step, axis, cost, before_norm).run();
  find_needs(step, axis, uses, fragments);
  return fragments;
}

}  // namespace dc::passes
