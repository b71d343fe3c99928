// The dims of a tensor, split into those that a reduction keeps and those that it folds.
#pragma once

#include <vector>

#include "runtime/kernel/native/call.h"
#include "runtime/kernel/native/iteration.h"

namespace dc::runtime::kernel::native {

class DimSplit {
 public:
  // `dims` may count from the end; none: all dims are reduced. `to` has the kept dims, and the
  // reduced ones with size 1 or not at all; refuses anything else.
  DimSplit(Call& call, const BoundTensor& self, const BoundTensor& to, std::vector<int64_t> dims);

  Iteration kept() const;     // over self, then the result
  Iteration reduced() const;  // over self
  int64_t reduced_count() const;
  // Whether the elements of one result lie next to each other, or closer than those of two.
  bool reduces_neighbours() const;

 private:
  std::vector<int64_t> kept_sizes_, kept_self_, kept_to_, reduced_sizes_, reduced_self_;
};

}  // namespace dc::runtime::kernel::native
