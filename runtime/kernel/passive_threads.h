// How threads of OpenMP wait for each other, in libraries that are opened later.
#pragma once

#include <cstdlib>

namespace dc::runtime::kernel {

// Threads that spin while they wait starve the other ranks of a shared machine. OpenMP reads these
// once, when it is loaded.
inline void make_threads_sleep() {
  setenv("OMP_WAIT_POLICY", "passive", 0);
  setenv("GOMP_SPINCOUNT", "0", 0);
}

}  // namespace dc::runtime::kernel
