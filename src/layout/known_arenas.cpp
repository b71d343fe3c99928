#include "src/layout/known_arenas.h"

#include <algorithm>

namespace dc::layout {

std::optional<int64_t> KnownArenas::find(std::span<const Request> requests, int64_t enough) {
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& one) {
    const bool answers = one.bytes <= enough && !one.is_of_ejections;
    return (answers || one.enough == enough) &&
           std::equal(one.requests.begin(), one.requests.end(), requests.begin(), requests.end());
  });
  if (found == known_.end()) return std::nullopt;
  std::rotate(known_.begin(), found, found + 1);
  return known_.front().bytes;
}

void KnownArenas::add(std::vector<Request> requests, int64_t enough, const Layout& layout) {
  placed_ += layout.rounds * static_cast<int64_t>(requests.size());
  requests_ += requests.size();
  for (; !known_.empty() && requests_ > kMostRequests; known_.pop_back())
    requests_ -= known_.back().requests.size();
  known_.insert(known_.begin(),
                {std::move(requests), enough, layout.bytes, layout.algorithm == kEjections});
}

}  // namespace dc::layout
