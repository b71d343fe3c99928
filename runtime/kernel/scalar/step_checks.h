// From sums of squares and losses to the step's few scalars (src/base/step_scalars.h). Sums over
// parameters and ranks have their order.
#pragma once

#include "runtime/kernel/scalar/language.h"
#include "src/base/step_scalars.h"

namespace dc::runtime::kernel::scalar {

inline bool is_finite(double x) { return x - x == 0; }

// Whether a range may be updated before all gradients are known.
struct CheckFinite {
  double* scalars;
  const double *row, *losses;
  int64_t loss_count, param;

  void run() const {
    bool finite = is_finite(row[param]);
    for (int64_t i = 0; i < loss_count; ++i) finite = finite && is_finite(losses[i]);
    scalars[base::kScalarFinite + param] = finite ? 1 : 0;
  }
};

struct ClipAndCheck {
  double* scalars;
  const double *table, *hyperparameters;
  int64_t ranks, parameters;
  bool clip;

  // Sum of a column over the ranks.
  double column(int64_t index) const {
    const int64_t width = parameters + base::kTableExtra;
    double sum = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) sum += table[rank * width + index];
    return sum;
  }
  double loss() const {
    return column(parameters + base::kTableLoss) / hyperparameters[base::kHyperLossDivisor];
  }

  // What a pass over the parameters, in their order, has found.
  struct Found {
    double squares = 0;
    bool all_finite = true;
  };
  // `column`: that of parameter `param`.
  void add(Found& found, int64_t param, double column, bool loss_is_finite) const {
    const bool finite = is_finite(column);
    found.squares += column;
    found.all_finite = found.all_finite && finite;
    scalars[base::kScalarFinite + param] = loss_is_finite && finite ? 1 : 0;
  }
  void finish(const Found& found, double loss) const {
    const bool all_finite = found.all_finite && is_finite(loss);
    if (clip) {
      for (int64_t p = 0; p < parameters; ++p)
        scalars[base::kScalarFinite + p] = all_finite ? 1.0 : 0.0;
    }
    const double norm = sqrt(found.squares);
    const double factor = hyperparameters[base::kHyperClipNorm] / (norm + 1e-6);
    scalars[base::kScalarNorm] = norm;
    scalars[base::kScalarClip] = clip ? (factor < 1.0 ? factor : 1.0) : 1.0;
    scalars[base::kScalarLoss] = loss;
    scalars[base::kScalarAllFinite] = all_finite ? 1 : 0;
    scalars[base::kScalarStop] = column(parameters + base::kTableStop);
  }
};

}  // namespace dc::runtime::kernel::scalar
