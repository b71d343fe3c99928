#include "src/passes/fuse/make_again.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "src/ir/builder.h"
#include "src/ir/effects.h"
#include "src/passes/fuse/elementwise_groups.h"
#include "src/passes/fuse/value_readers.h"

namespace dc::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

// More readers would each make the value.
constexpr size_t kMostReaders = 2, kMostReadersOfChains = 4;

// How a value is made again at one place.
struct Recipe {
  std::vector<NodeId> operators;  // each after those that it reads from
  std::set<ValueId> read, kept;   // storages that it begins with; of them those kept for it
  int64_t bytes_kept = 0;
};

class Remaking {
 public:
  Remaking(Graph& graph, int64_t most_operators)
      : graph_(graph), most_operators_(most_operators), chains_(most_operators > 1) {
    int next = 0;
    position_.resize(graph.node_capacity());
    for (const NodeId id : graph.order()) position_[id.index()] = next++;
    if (!chains_) return;
    int number = 0;
    for (const ElementwiseGroup& group : elementwise_groups(graph)) {
      for (const NodeId member : group.members) group_of_[member] = number;
      ++number;
    }
  }

  std::vector<MadeAgain> run() {
    if (most_operators_ == 0) return {};
    for (const NodeId id : graph_.order()) {
      if (!graph_.contains(id) || !is_fusible(graph_, graph_.node(id))) continue;
      if (const std::optional<Readers> readers = readers_of(id)) remake(id, *readers);
    }
    return std::move(made_);
  }

 private:
  // Uses of a value: those of the backward phase, if it is of the forward phase; those of the
  // same phase that are not of its kernel.
  struct Readers {
    std::vector<ir::Use> late, near;
  };

  bool is_forward(NodeId id) const { return graph_.node(id).origin.phase == ir::Phase::Forward; }

  // Nothing where the value is read by what no fused kernel runs, so that making it again saves
  // nothing.
  std::optional<Readers> readers_of(NodeId id) const {
    const ValueId value = graph_.node(id).results[0];
    if (is_output(graph_, value)) return std::nullopt;
    Readers readers;
    bool late_is_kept = !is_forward(id), near_is_kept = !chains_;
    for (const ir::Use& use : graph_.value(value).uses) {
      const Node& reader = graph_.node(use.node);
      const bool is_view = ir::is_plain_view(reader);
      if (is_view && has_late_reader(reader)) late_is_kept = true;
      const bool is_late = is_forward(id) && !is_forward(use.node);
      if (is_late && !is_view) readers.late.push_back(use);
      if (is_late && !can_join(id, reader)) late_is_kept = true;
      if (is_late || is_of_one_kernel(id, use.node)) continue;
      near_is_kept = near_is_kept || is_view || !can_join(id, reader);
      readers.near.push_back(use);
    }
    if (readers.late.size() > (chains_ ? kMostReadersOfChains : kMostReaders)) late_is_kept = true;
    if (late_is_kept) {
      near_is_kept = near_is_kept || !readers.late.empty();
      readers.late.clear();
    }
    if (near_is_kept || readers.near.size() > kMostReadersOfChains) readers.near.clear();
    if (readers.late.empty() && readers.near.empty()) return std::nullopt;
    return readers;
  }
  // Whether a kernel with both may be: of one shape. Without chains that is seen later.
  bool can_join(NodeId id, const Node& reader) const {
    return is_fusible(graph_, reader) &&
           (!chains_ || shape_of(reader) == shape_of(graph_.node(id)));
  }
  const ir::Shape& shape_of(const Node& node) const {
    return graph_.value(node.results[0]).type.shape;
  }
  bool has_late_reader(const Node& view) const {
    return std::ranges::any_of(view.results, [this](ValueId seen) {
      return seen.valid() &&
             is_read(graph_, seen, [this](NodeId reader) { return !is_forward(reader); });
    });
  }
  bool is_of_one_kernel(NodeId a, NodeId b) const {
    const auto first = group_of_.find(a), second = group_of_.find(b);
    return first != group_of_.end() && second != group_of_.end() && first->second == second->second;
  }

  // May still be taken back.
  bool is_made(NodeId id) const { return id.index() >= position_.size(); }
  int position(NodeId id) const { return position_[id.index()]; }

  // Whether something reads the operand's bytes at `position` or later.
  bool is_there(ValueId operand, int position) const {
    const ValueId root = ir::view_root(graph_, operand);
    const ir::OpKind maker = graph_.node(graph_.value(root).producer).kind;
    if (maker == ir::OpKind::State) return false;
    const auto kept = kept_until_.find(root);
    if (kept != kept_until_.end() && kept->second >= position) return true;
    return maker == ir::OpKind::Input || is_read(graph_, root, [&](NodeId reader) {
             return !is_made(reader) && position_[reader.index()] >= position;
           });
  }

  // Nothing if it begins with what cannot be kept.
  std::optional<Recipe> recipe(NodeId id, int place) const {
    Recipe found;
    if (!add(id, place, most_operators_, found)) return std::nullopt;
    return found;
  }
  // `longest`: operators of the longest chain that ends with this one.
  bool add(NodeId id, int place, int64_t longest, Recipe& recipe) const {
    if (std::ranges::count(recipe.operators, id) != 0) return true;
    if (longest == 0) return false;
    for (const ValueId operand : graph_.node(id).operands) {
      if (!add_operand(id, operand, place, longest - 1, recipe)) return false;
    }
    recipe.operators.push_back(id);
    return recipe.operators.size() <= static_cast<size_t>(most_operators_);
  }
  // Of keeping it and making it again too, what keeps less.
  bool add_operand(NodeId reader, ValueId operand, int place, int64_t longest,
                   Recipe& recipe) const {
    const ValueId root = ir::view_root(graph_, operand);
    if (recipe.kept.contains(root) || is_there(operand, place)) {
      recipe.read.insert(root);
      return true;
    }
    const NodeId maker = graph_.value(operand).producer;
    if (graph_.node(graph_.value(root).producer).kind == ir::OpKind::State) return false;
    const int64_t bytes = graph_.value(root).type.bytes().v;
    const bool can_be_made = chains_ && root == operand && is_fusible(graph_, graph_.node(maker)) &&
                             graph_.value(operand).type.shape == shape_of(graph_.node(reader));
    Recipe made = recipe;
    if (can_be_made && add(maker, place, longest, made) &&
        made.bytes_kept < recipe.bytes_kept + bytes) {
      recipe = std::move(made);
      return true;
    }
    recipe.read.insert(root);
    recipe.kept.insert(root);
    recipe.bytes_kept += bytes;
    return true;
  }

  void remake(NodeId id, const Readers& readers) {
    const int64_t bytes = graph_.value(graph_.node(id).results[0]).type.bytes().v;
    std::vector<ir::Use> uses = readers.late;
    uses.insert(uses.end(), readers.near.begin(), readers.near.end());
    if (make_for(id, uses, bytes) || readers.late.empty() || readers.near.empty()) return;
    make_for(id, readers.late, bytes);
  }

  // Whether the value was made again for these.
  bool make_for(NodeId id, const std::vector<ir::Use>& uses, int64_t bytes) {
    std::vector<Recipe> recipes;
    std::set<ValueId> kept;
    int64_t moved = 0, bytes_kept = 0;
    for (const ir::Use& use : uses) {
      const std::optional<Recipe> found = recipe(id, position(use.node));
      if (!found) return false;
      for (const ValueId root : found->read) moved += graph_.value(root).type.bytes().v;
      for (const ValueId root : found->kept) {
        if (kept.insert(root).second) bytes_kept += graph_.value(root).type.bytes().v;
      }
      recipes.push_back(*found);
    }
    const auto apart = static_cast<int64_t>(uses.size() + 1) * bytes;  // written and read
    if ((chains_ || bytes_kept > 0) && (bytes_kept >= bytes || moved > apart)) return false;
    for (size_t i = 0; i < uses.size(); ++i) {
      for (const ValueId root : recipes[i].kept) {
        int& until = kept_until_[root];
        until = std::max(until, position(uses[i].node));
      }
      carry_out(recipes[i], uses[i]);
      if (i == 0 && made_.back().is_late) made_.back().bytes_not_kept = bytes - bytes_kept;
    }
    erase_unread_operators(graph_, id);
    return true;
  }

  void carry_out(const Recipe& recipe, const ir::Use& use) {
    std::map<ValueId, ValueId> again;
    for (const NodeId id : recipe.operators) {
      const Node& node = graph_.node(id);
      auto operands = node.operands;
      for (ValueId& operand : operands) {
        if (const auto found = again.find(operand); found != again.end()) operand = found->second;
      }
      ir::Origin origin = graph_.node(use.node).origin;
      origin.accumulates = false;
      const NodeId made = ir::Builder(graph_, use.node, std::move(origin))
                              .repeat(node, std::move(operands), "again.")
                              .id;
      again[graph_.node(id).results[0]] = graph_.node(made).results[0];
      made_.push_back({made, graph_.node(id).results[0], is_forward(id) && !is_forward(use.node)});
    }

    graph_.set_operand(use.node, use.operand, graph_.node(made_.back().node).results[0]);
  }

  Graph& graph_;
  const int64_t most_operators_;
  const bool chains_;
  std::vector<int> position_;          // by node; what is made has none
  std::map<NodeId, int> group_of_;     // nodes that become one kernel as they are
  std::map<ValueId, int> kept_until_;  // position, of what is kept in place of a value
  std::vector<MadeAgain> made_;
};

}  // namespace

std::vector<MadeAgain> make_again(Graph& graph, int64_t most_operators) {
  return Remaking(graph, most_operators).run();
}

void erase_unread_operators(Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (!is_fusible(graph, node) || is_output(graph, node.results[0]) ||
      !graph.value(node.results[0]).uses.empty())
    return;
  const auto operands = node.operands;
  graph.erase(id);
  for (const ValueId operand : operands) {
    const NodeId maker = graph.value(operand).producer;
    if (graph.contains(maker)) erase_unread_operators(graph, maker);
  }
}

bool keep_original(Graph& graph, const MadeAgain& again) {
  if (!graph.contains(again.node)) return true;  // nothing read it any more
  if (!graph.contains(graph.value(again.original).producer)) return false;
  graph.replace_all_uses(graph.node(again.node).results[0], again.original);
  graph.erase(again.node);
  return true;
}

}  // namespace dc::passes
