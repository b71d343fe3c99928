// A cache for the kernels of GPUs that the tests of a program compile: each is compiled once, and
// the user's own cache is left alone.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/src/archive/temporary_folder.h"

namespace dc::tests {

class KernelCache : public ::testing::Environment {
 public:
  void SetUp() override { setenv("DCC_CACHE_DIR", (folder_ / "cache").c_str(), 1); }

 private:
  TemporaryFolder folder_;
};
[[maybe_unused]] inline const auto* const kKernelCache =
    ::testing::AddGlobalTestEnvironment(new KernelCache());

}  // namespace dc::tests
