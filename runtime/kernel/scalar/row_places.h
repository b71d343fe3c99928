// Where rows lie whose numbers are not all equally far apart: in planes, such as the pixels of
// images.
#pragma once

#include "runtime/kernel/scalar/language.h"

namespace dc::runtime::kernel::scalar {

struct RowPlaces {
  int64_t in_plane;  // rows; at least 1
  int64_t plane_stride, stride;

  int64_t at(int64_t row) const { return row / in_plane * plane_stride + row % in_plane * stride; }
};

}  // namespace dc::runtime::kernel::scalar
