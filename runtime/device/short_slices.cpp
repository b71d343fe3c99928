#include "runtime/device/short_slices.h"

#include <linux/sched.h>
#include <linux/sched/types.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace dc::runtime::device {

void prefer_short_slices() {
  constexpr unsigned kSliceNs = 100'000;
  sched_attr attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.sched_policy != SCHED_NORMAL) return;
  attributes.sched_runtime = kSliceNs;
  syscall(SYS_sched_setattr, 0, &attributes, 0);  // a wish: nothing depends on it
}

}  // namespace dc::runtime::device
