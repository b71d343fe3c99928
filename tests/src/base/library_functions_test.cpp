#include "src/base/library_functions.h"

#include <gtest/gtest.h>

#include <cstddef>

namespace dc::base {
namespace {

TEST(LibraryFunctions, AreThoseOfTheLibrary) {
  LibraryFunctions library("libc.so.6");
  ASSERT_TRUE(library.opened()) << library.reason();
  size_t (*length)(const char* text) = nullptr;
  library.load(length, "strlen");
  EXPECT_EQ(library.absent(), nullptr);
  EXPECT_EQ(length("four"), 4U);
}

TEST(LibraryFunctions, TheFirstThatIsAbsentIsNamed) {
  LibraryFunctions library("libc.so.6");
  int (*function)() = [] { return 1; };
  library.load(function, "no_function_of_any_libc");
  EXPECT_EQ(function, nullptr);
  library.load(function, "nor_this");
  EXPECT_STREQ(library.absent(), "no_function_of_any_libc");
}

TEST(LibraryFunctions, ALibraryThatIsNotThereSaysWhy) {
  const LibraryFunctions library("libnot_there.so.1");
  EXPECT_FALSE(library.opened());
  EXPECT_NE(library.reason().find("libnot_there.so.1"), std::string::npos) << library.reason();
}

}  // namespace
}  // namespace dc::base
