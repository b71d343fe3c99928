// Threads per rank are a fact of the plan or the profile: libraries that read the environment must
// not decide.
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
