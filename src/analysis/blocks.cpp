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

}  // namespace

Blocks blocks(const ir::Graph& graph) {
  Blocks result;
  result.of_node.assign(graph.node_capacity(), -1);
  std::map<std::string_view, std::set<std::string_view>> siblings;  // parent -> paths of children
  for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const std::string_view path = *graph.node(id).origin.module;
    const Numbered number = outermost_number(path);
    if (number.end > 0) siblings[path.substr(0, number.parent)].insert(path.substr(0, number.end));
  }
  size_t longest = 2;
  for (const auto& [parent, children] : siblings) longest = std::max(longest, children.size());
  std::map<std::string_view, int32_t> numbers;
  for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const std::string_view path = *graph.node(id).origin.module;
    const Numbered number = outermost_number(path);
    if (number.end == 0 || siblings[path.substr(0, number.parent)].size() < longest) continue;
    const auto [found, is_new] = numbers.try_emplace(path.substr(0, number.end), result.count);
    result.count += is_new;
    result.of_node[id.index()] = found->second;
  }
  return result;
}

}  // namespace dc::analysis
