// Dual: the best weights and prices of a relaxation, by subgradient steps (N. Z. Shor,
// "Minimization methods for non-differentiable functions", 1985).
#pragma once

#include <optional>
#include <vector>

#include "src/base/units.h"
#include "src/bound/limits.h"
#include "src/bound/relaxation.h"

namespace dc::bound {

// Weights that keep the limits, prices in ns per byte, of all runs of an instant together.
struct Prices {
  Work weights;
  std::vector<double> of_byte;  // by instant
};

struct DualBound {
  double ns = 0;
  Prices prices;
  int evaluations = 0;
};

// The best bound found by a scan and so many steps; with none by the scan alone. Steps end early
// above `enough`, and where more find little. `from`: prices to begin with; the scan follows only
// where steps from these find little and are not enough.
DualBound ascend(const Relaxation& relaxation, std::optional<base::Bytes> budget,
                 const Limits& limits, Weighing weighing, int steps, double enough,
                 const Prices* from = nullptr);

}  // namespace dc::bound
