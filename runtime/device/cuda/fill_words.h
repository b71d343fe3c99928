// The parameter of the kernel that recordings have in place of fills, for the kernel too.
#pragma once

namespace dc::runtime::device::cuda {

struct FillWords {
  unsigned* to;
  unsigned long long count;  // of words of 4 bytes
  unsigned value;
};

}  // namespace dc::runtime::device::cuda
