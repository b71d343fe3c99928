// The plan or the profile fixes the threads per rank. The environment variables that OpenMP, MKL
// and OpenBLAS read are overwritten with that number.
#pragma once

#include <cstdlib>
#include <string>

namespace dc::cli {

inline void set_threads(int threads) {
  const std::string text = std::to_string(threads);
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
    setenv(name, text.c_str(), 1);
  }
}

}  // namespace dc::cli
