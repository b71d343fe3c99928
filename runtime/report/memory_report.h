// Where a plan's memory goes: the instruction at which most bytes are live, and what lives there.
// For verified plans.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"

namespace dc::runtime::report {

using BytesPerKind = std::array<int64_t, plan::kSliceKinds>;

struct Peak {
  int32_t program = 0;
  int32_t index = 0;           // the first instruction with the most live bytes
  int64_t bytes = 0;           // slices alive there, each rounded up to its alignment
  std::vector<int32_t> alive;  // slices, largest first, then by id
  BytesPerKind by_kind{};      // sums to `bytes`
};

Peak find_peak(const plan::Plan& plan, plan::Space space);
// Bytes that a rank keeps on the device from step to step.
BytesPerKind kept_bytes(const plan::Plan& plan);
// "1.2 GiB live at instruction 7 (aten.mm.default) of program 'step', module m.lm_head"
std::string describe_peak(const plan::Plan& plan, const Peak& peak);
std::string memory_report(const plan::Plan& plan);  // `dcc inspect --as=memory`

}  // namespace dc::runtime::report
