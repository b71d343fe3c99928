// Contents: which slices of a program hold the same bytes, because the same instruction made them
// from the same bytes: a gather of the same shard, a kernel that runs again, a copy.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/plan.h"

namespace dc::runtime::report {

// Value numbers (A. V. Aho, R. Sethi, J. D. Ullman, "Compilers", 1986, section 9.8) by slice, as
// hashes of 64 bits. `made` is what the first instruction that writes the slice leaves in it; 0: no
// instruction of the program writes it. Gathers of one parameter are equal until it is updated, and
// equal what the step before left gathered.
struct Contents {
  std::vector<uint64_t> made;
  std::vector<int32_t> maker;      // that instruction; -1: none
  std::vector<int32_t> parameter;  // whose shard, or cast of it, the slice holds; -1: of none
};

Contents contents(const plan::Plan& plan, const plan::Program& program);

}  // namespace dc::runtime::report
