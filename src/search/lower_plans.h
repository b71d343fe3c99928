// LowerPlans: how a chain is made to fit. For how many bytes its passes plan, one number after
// another, until what they make keeps the budget.
//
// Passes count live bytes, and a pass may take a little more than it was given; addresses may need
// more than the live bytes. What this rule does not make fit the chain's smallest plan may
// (smallest_plan.h). The driver applies both to a chain that the user names, the search to every
// named chain, so that it finds each plan that a user finds.
#pragma once

#include <cstdint>
#include <optional>

#include "src/base/units.h"

namespace dc::search {

// By how much a schedule exceeds its budget.
struct Excess {
  int64_t bytes = 0;
  bool is_in_layout = false;  // the live bytes keep the budget, the addresses do not
};

class LowerPlans {
 public:
  explicit LowerPlans(base::Bytes budget) : budget_(budget.v), planned_(budget.v) {}
  // The same for a schedule that was planned for less than the budget.
  LowerPlans(base::Bytes budget, base::Bytes planned) : budget_(budget.v), planned_(planned.v) {}

  // Less than before, after what was made exceeds the budget by `excess`. Empty: no more tries.
  std::optional<base::Bytes> next(const Excess& excess);

 private:
  int64_t budget_, planned_;
  int tried_ = 0;
  int64_t before_ = INT64_MAX;  // bytes of the excess
};

}  // namespace dc::search
