// Elements of any type, one at a time or many: conversions round to nearest even, once.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/kernel/kernel.h"
#include "src/base/dtype.h"

namespace dc::runtime::kernel {

double load_real(base::DType dtype, const void* element);
int64_t load_integer(base::DType dtype, const void* element);  // of an integer or bool type
void store_real(base::DType dtype, void* element, double value);
void store_integer(base::DType dtype, void* element, int64_t value);

// `count` neighbouring elements, rounded to `through` on the way where that is narrower.
void convert(base::DType from, const void* src, base::DType through, base::DType to, void* dst,
             int64_t count);

// Walks the elements of a strided tensor in logical (row-major) order. Allocates nothing: sizes and
// strides must outlive it.
class ElementWalk {
 public:
  ElementWalk(std::span<const int64_t> sizes, std::span<const int64_t> strides);
  int64_t numel() const { return numel_; }
  bool contiguous() const { return contiguous_; }
  int64_t offset(int64_t index) const;  // in elements, of logical element `index`

 private:
  std::span<const int64_t> sizes_, strides_;
  int64_t numel_;
  bool contiguous_;
};

}  // namespace dc::runtime::kernel
