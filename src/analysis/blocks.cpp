#include "src/analysis/blocks.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

namespace dc::analysis {
namespace {

bool is_number(std::string_view word) {
  return !word.empty() &&
         std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Offsets in a module path of its outermost number: where it begins and where it ends. In
// "model.layers.3.mlp" they enclose "3". Both are 0 if the path has no number.
struct Numbered {
  size_t parent = 0, end = 0;
};

Numbered outermost_number(std::string_view path) {
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    if (is_number(path.substr(begin, end - begin))) return {begin, end};
    begin = end + 1;
  }
  return {};
}

// Calls visit(node, parent, child, is_new) for the nodes whose path has a number, with the path of
// its parent and its own. Nodes of one module mostly follow each other: `is_new` where the path is
// another than that of the node before.
template <typename Visit>
void for_each_numbered(const ir::Graph& graph, Visit visit) {
  std::string_view before;
  Numbered number;
  for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const std::string_view path = *graph.node(id).origin.module;
    const bool is_new = path != before;
    if (is_new) number = outermost_number(path);
    before = path;
    if (number.end > 0)
      visit(id, path.substr(0, number.parent), path.substr(0, number.end), is_new);
  }
}

}  // namespace

Blocks blocks(const ir::Graph& graph) {
  using Path = std::string_view;
  Blocks result;
  result.of_node.assign(graph.node_capacity(), -1);
  std::map<Path, std::set<Path>> siblings;  // parent -> paths of children
  for_each_numbered(graph, [&](ir::NodeId, Path parent, Path child, bool is_new) {
    if (is_new) siblings[parent].insert(child);
  });
  size_t longest = 2;
  for (const auto& [parent, children] : siblings) longest = std::max(longest, children.size());
  std::map<Path, int32_t> numbers;
  int32_t block = -1;
  for_each_numbered(graph, [&](ir::NodeId id, Path parent, Path child, bool is_new) {
    if (is_new) {
      block = -1;
      if (siblings[parent].size() >= longest) {
        const auto [found, is_first] = numbers.try_emplace(child, result.count);
        result.count += is_first;
        block = found->second;
      }
    }
    result.of_node[id.index()] = block;
  });
  return result;
}

}  // namespace dc::analysis
