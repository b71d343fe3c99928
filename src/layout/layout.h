// Arena layout: gives every request an offset so that requests alive at the same position do not
// overlap. Pure functions; equal requests, equal layout.
#pragma once

#include <cstdint>
#include <span>

#include "src/layout/request.h"

namespace dc::layout {

// Largest sum of live bytes, each request rounded up to the alignment: no layout is smaller.
int64_t lower_bound(std::span<const Request> requests);

// Places requests by decreasing size at the lowest offset free throughout their range.
Layout greedy_by_size(std::span<const Request> requests);

// Starts from two orders (by decreasing size, and the last to begin first) and repairs: requests
// that stick out above the lower bound move forward in the order, and all are placed again.
// `rounds` is the number of placements made at most, over both orders; it stops earlier at the
// lower bound, or at the first layout of at most `enough` bytes.
Layout repaired_greedy(std::span<const Request> requests, int rounds, int64_t enough = 0);

// The first of these that takes at most `enough` bytes, or the smallest: by decreasing size;
// repaired, in a number of rounds that follows from the number of requests; the smaller of both
// changed by ejections (ejections.h) to end at ever lower limits, or at `enough`. What is found
// where nothing is enough, for which `enough` is 0, is found where as many bytes or more are. The
// same on every machine.
Layout best_layout(std::span<const Request> requests, int64_t enough = 0);

}  // namespace dc::layout
