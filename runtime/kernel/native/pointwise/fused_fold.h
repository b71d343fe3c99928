// FusedFold: what a reduction of a fused kernel does with the lanes of its blocks. The functions
// and their order are those of reductions/fold.h and reduce.h, so the bits are those of the native
// kernel of its overload over a row-major tensor.
#pragma once

#include <memory>
#include <string_view>

#include "runtime/kernel/native/lanes.h"

namespace dc::runtime::kernel::native {

class FusedFold {
 public:
  // Of at most kBlock results at once. `results`: lanes.
  struct Work {
    alignas(64) std::byte results[kBlock * 8];
    alignas(64) std::byte totals[kBlock * 8];
    int64_t rows = 0;  // of columns, that were added to `results` since the last totals
  };

  virtual ~FusedFold() = default;

  // Results from `first` on, each of one of `rows` rows of n <= kBlock lanes.
  virtual void fold_rows(Work& work, int64_t first, const void* lanes, int64_t rows,
                         int64_t n) const = 0;

  // One result of a longer row, kBlock lanes after the other, at last n < kBlock.
  virtual void begin_row(Work& work) const = 0;
  virtual void add_to_row(Work& work, const void* lanes, int64_t n) const = 0;
  virtual void end_row(Work& work, int64_t result) const = 0;

  // n results of as many columns, some rows after the other.
  virtual void begin_columns(Work& work, int64_t n) const = 0;
  virtual void add_to_columns(Work& work, const void* lanes, int64_t rows, int64_t n) const = 0;
  virtual void end_columns(Work& work, int64_t n) const = 0;
};

// Of an overload that is base::is_reduction(), in lanes that are F32, F64 or I64, of `count`
// elements for each result, which has the type `to`.
std::unique_ptr<FusedFold> fused_fold(std::string_view overload, Lane lane, int64_t count,
                                      base::DType to);

}  // namespace dc::runtime::kernel::native
