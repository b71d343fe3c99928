// How long a draft takes by DisCo's simulator (arXiv 2209.12769, section 5.1): one device that runs
// kernels in the order in which they become ready, one channel that carries buckets in the order in
// which their gradients are complete. No memory, no contention.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "src/fusion/draft.h"

namespace dc::fusion {

// T = C x + D of a collective of x bytes.
struct LinearTime {
  double ns_per_byte = 0, ns = 0;
  base::Nanos time(base::Bytes bytes) const;
};
struct SizeTime {
  base::Bytes bytes;
  base::Nanos time;
};
// By least squares; of one point its time. No coefficient is below 0.
LinearTime fit_line(std::span<const SizeTime> points);

// In which order kernels that are ready run. Several that become ready at once, and those that are
// ready at the start, do so in the order of the first kernel that they own.
// FirstReady: the paper's. Program: of all that are ready the one whose last member comes first in
// the program, as a plan runs them.
enum class Order : uint8_t { FirstReady, Program };

struct Timeline {
  base::Nanos time;                    // when all has ended
  base::Nanos compute, communication;  // each alone
  base::Nanos full_overlap() const { return std::max(compute, communication); }
};

struct Moments {
  std::vector<base::Nanos> begin, end;      // by group
  std::vector<base::Nanos> produced;        // by reduction: its gradient is there
  std::vector<base::Nanos> started, ended;  // by reduction: its bucket
  std::vector<int32_t> order;               // groups as they run
};

// `moments`, if not null, is filled.
Timeline play(const Draft& draft, const LinearTime& collective, Order order,
              Moments* moments = nullptr);

}  // namespace dc::fusion
