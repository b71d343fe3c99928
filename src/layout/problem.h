// Problem: requests as layout algorithms look at them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/layout/request.h"

namespace dc::layout {

// Requests with times renumbered to the positions where something starts: two ranges share a
// position exactly if they share such a one. Those before which nothing has ended since the last
// are enough to tell: what is alive at another is alive at the next of them too.
struct Problem {
  explicit Problem(std::span<const Request> requests);

  size_t size() const { return bytes.size(); }
  int64_t duration(uint32_t i) const { return last[i] - first[i] + 1; }
  // Largest sum of bytes alive at once.
  int64_t peak() const;

  std::vector<int32_t> first, last;  // positions where something starts
  std::vector<int32_t> begin, end;   // of these, moments that tell who shares one
  std::vector<int64_t> bytes;        // rounded up to the alignment
  int32_t moments = 1;
};

}  // namespace dc::layout
