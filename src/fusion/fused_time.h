// How long a fused kernel takes. An interface, so that a closed form, what was measured and what
// was learned stand in each other's place.
#pragma once

#include <cstdint>
#include <span>

#include "src/fusion/problem.h"

namespace dc::fusion {

// Kernels as one: it reads `operands` and writes `results`; what else its members make never lies
// in memory. All ascending.
struct Region {
  const Problem& problem;
  std::span<const int32_t> members;            // kernels
  std::span<const int32_t> operands, results;  // values
};

class FusedTime {
 public:
  virtual ~FusedTime() = default;
  virtual base::Nanos time(const Region& region) const = 0;
};

// From the members' own times: one start of a kernel, the bytes of operands and results once, and
// what each member took beyond its own start and bytes. Never more than the members apart.
class ClosedFormTime final : public FusedTime {
 public:
  // To start a kernel; bytes per second read and written, at least 1.
  ClosedFormTime(base::Nanos launch, int64_t bytes_per_s)
      : launch_(launch), bytes_per_s_(bytes_per_s) {}
  base::Nanos time(const Region& region) const override;

 private:
  base::Nanos launch_;
  int64_t bytes_per_s_;
};

}  // namespace dc::fusion
