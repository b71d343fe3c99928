#include "src/search/known_steps.h"

#include <algorithm>

namespace dc::search {
namespace {

// Of all steps that are known; as many as two of the latest, if those are more. Chains are tried
// again with a change near their end: Llama-3-70B for 32 ranks takes a fifth less time with twice
// as many nodes, and nothing less with four times. A large step alone takes hundreds of megabytes:
// with half as many of them 200 000 nodes take 1.4 GB in place of 1.7, and a tenth more time.
constexpr int64_t kMostNodes = 3'000'000, kMostOfLarge = 700'000;
constexpr int64_t kLeastSteps = 2;

}  // namespace

int64_t node_count(const ir::Step& step) {
  int64_t nodes = 0;
  for (const ir::Program& program : step.programs)
    nodes += static_cast<int64_t>(program.graph.node_count());
  return nodes;
}

SharedStep KnownSteps::find(const std::string& key) {
  const auto found = known_.find(key);
  if (found == known_.end()) return nullptr;
  found->second.used = ++clock_;
  return found->second.step;
}

void KnownSteps::keep(const std::string& key, const SharedStep& step) {
  const int64_t nodes = node_count(*step);
  if (!known_.emplace(key, Known{step, nodes, ++clock_}).second) return;
  nodes_ += nodes;
  const int64_t most = nodes > kLarge ? std::max(kMostOfLarge, kLeastSteps * nodes) : kMostNodes;
  while (nodes_ > most) {
    const auto oldest = std::min_element(
        known_.begin(), known_.end(),
        [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    nodes_ -= oldest->second.nodes;
    known_.erase(oldest);
  }
}

}  // namespace dc::search
