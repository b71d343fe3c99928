#include "src/base/cache_directory.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace dc::base {
namespace {

TEST(CacheDirectory, FollowsTheEnvironment) {
  setenv("DCC_CACHE_DIR", "/a", 1);
  setenv("XDG_CACHE_HOME", "/b", 1);
  const std::string home = getenv("HOME") ? getenv("HOME") : "";
  setenv("HOME", "/c", 1);
  EXPECT_EQ(cache_directory(), "/a");
  unsetenv("DCC_CACHE_DIR");
  EXPECT_EQ(cache_directory(), "/b/dcc");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(cache_directory(), "/c/.cache/dcc");
  unsetenv("HOME");
  EXPECT_EQ(cache_directory(), "");
  setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace dc::base
