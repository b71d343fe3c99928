// Where a tensor lies on every rank at once: a range of bytes whose beginning is an affine function
// of the rank. Not for other folders.
#pragma once

#include <cstdint>

#include "runtime/plan/plan.h"

namespace dc::runtime::verify {

// On rank r the bytes [begin + i * stride, begin + i * stride + bytes) of an arena, i being r's
// place in its group along `axes` (runtime/plan/mesh.h); stride >= 0, and all axes where it is 0.
struct Place {
  plan::Space space = plan::Space::Device;
  int64_t begin = 0, bytes = 0, stride = 0;
  uint32_t axes = plan::kAllAxes;

  bool operator==(const Place&) const = default;
  // First byte behind what any of a group of `members` touches.
  int64_t end(int64_t members) const { return begin + (members - 1) * stride + bytes; }
};
int64_t end_of(const plan::Plan& plan, const Place& place);

struct Ranks {  // first to last, inclusive
  int64_t first = 0, last = -1;
  bool empty() const { return last < first; }
};
// The ranks of the plan on which two places share a byte: the first to the last of all, or, where
// only a part of the mesh tells them apart, the first.
Ranks shared_ranks(const plan::Plan& plan, const Place& a, const Place& b);
// The same for two places along the same axes, with places in a group of `members` for ranks. They
// are an interval: r is one of them when
//   1 - a.bytes <= (a.begin - b.begin) + r * (a.stride - b.stride) <= b.bytes - 1,
// and what is between the bounds is monotone in r. Both places must end within 63 bits.
Ranks shared_ranks(const Place& a, const Place& b, int64_t members);

// Of a tensor whose reach does not overflow (check_tensors).
Place place_of(const plan::Plan& plan, int32_t tensor);
Place place_of_slice(const plan::Plan& plan, int32_t slice);
bool same_place(const plan::Plan& plan, int32_t a, int32_t b);

}  // namespace dc::runtime::verify
