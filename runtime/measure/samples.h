// Samples of one time and what is kept of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/base/measurements.h"

namespace dc::runtime::measure {

inline int64_t median_of(std::vector<int64_t> samples) {
  if (samples.empty()) return 0;
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

inline base::Timing summarize(const std::vector<int64_t>& samples) {
  base::Timing timing;
  if (samples.empty()) return timing;
  timing.samples = static_cast<int32_t>(samples.size());
  timing.median_ns = median_of(samples);
  timing.fastest_ns = *std::min_element(samples.begin(), samples.end());
  std::vector<int64_t> distances;
  distances.reserve(samples.size());
  for (int64_t sample : samples)
    distances.push_back(sample > timing.median_ns ? sample - timing.median_ns
                                                  : timing.median_ns - sample);
  timing.deviation_ns = median_of(std::move(distances));
  return timing;
}

}  // namespace dc::runtime::measure
