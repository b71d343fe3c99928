#include "src/analysis/repeated_kernels.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "src/ir/effects.h"

namespace dc::analysis {
namespace {

using ir::Node;
using ir::NodeId;
using ir::ValueId;

// Values get numbers; equal ones hold the same. What a node writes in place is new each time.
class Numbers {
 public:
  explicit Numbers(const ir::Graph& graph)
      : graph_(graph),
        repeated_(graph.node_capacity()),
        of_(graph.value_capacity()),
        before_(graph.node_capacity()) {
    latest_.reserve(graph.node_count());
  }

  std::vector<NodeId> run() {
    for (NodeId id = graph_.first(); id.valid(); id = graph_.next(id)) {
      const Node& node = graph_.node(id);
      const NodeId same = earlier(node);
      for (size_t i = 0; i < node.results.size(); ++i) {
        if (!node.results[i].valid()) continue;
        of_[node.results[i].index()] =
            same.valid() ? of_[graph_.node(same).results[i].index()] : ++last_;
      }
      const bool crosses = same.valid() && node.origin.phase == ir::Phase::Backward &&
                           graph_.node(same).origin.phase == ir::Phase::Forward;
      if (crosses && ir::runs(node)) repeated_[id.index()] = same;
    }
    return std::move(repeated_);
  }

 private:
  // The first node that computes the same; invalid if this is the first.
  NodeId earlier(const Node& node) {
    if (node.operands.empty() || node.results.empty()) return {};
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (ir::writes(node, i)) return {};
    }
    NodeId& latest = latest_[key(node)];
    for (NodeId other = latest; other.valid(); other = before_[other.index()]) {
      if (same(graph_.node(other), node)) return other;
    }
    before_[node.id.index()] = latest;
    latest = node.id;
    return {};
  }

  size_t key(const Node& node) const {
    size_t hash =
        std::hash<std::string_view>{}(node.overload.name()) + static_cast<size_t>(node.kind);
    for (ValueId operand : node.operands)
      hash = hash * 1'000'003 + static_cast<size_t>(of_[operand.index()]);
    return hash;
  }

  bool same(const Node& a, const Node& b) const {
    const auto equal = [&](ValueId x, ValueId y) { return of_[x.index()] == of_[y.index()]; };
    return a.kind == b.kind && a.overload == b.overload && a.results.size() == b.results.size() &&
           std::equal(a.operands.begin(), a.operands.end(), b.operands.begin(), b.operands.end(),
                      equal) &&
           same_arguments(a, b);
  }

  // In which bucket a gather travels makes no difference to its value.
  static bool same_arguments(const Node& a, const Node& b) {
    if (a.args.shares_with(b.args)) return true;
    const auto counts = [](const ir::Arg& arg) { return arg.attribute != ir::Attr::Joins; };
    auto x = a.args.begin(), y = b.args.begin();
    while (true) {
      x = std::find_if(x, a.args.end(), counts);
      y = std::find_if(y, b.args.end(), counts);
      if (x == a.args.end() || y == b.args.end()) return x == a.args.end() && y == b.args.end();
      if (*x++ != *y++) return false;
    }
  }

  const ir::Graph& graph_;
  std::vector<NodeId> repeated_;
  std::vector<int32_t> of_;  // by value
  int32_t last_ = 0;
  // Of the first nodes that compute something: the latest by key, and to each the one before it.
  std::unordered_map<size_t, NodeId> latest_;  // only looked up
  std::vector<NodeId> before_;
};

}  // namespace

std::vector<NodeId> repeated_kernels(const ir::Graph& graph) { return Numbers(graph).run(); }

}  // namespace dc::analysis
