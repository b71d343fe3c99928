#include "src/base/text.h"

#include <gtest/gtest.h>

#include <array>

namespace dc::base {
namespace {

TEST(Text, EditDistance) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("zreo", "zero"), 1);  // neighbours swapped
}

TEST(Text, DidYouMean) {
  constexpr std::array<std::string_view, 3> kKnown = {"lr", "weight_decay", "betas"};
  EXPECT_EQ(did_you_mean("weight_decy", kKnown), "; did you mean 'weight_decay'?");
  EXPECT_EQ(did_you_mean("momentum", kKnown), "");
}

TEST(Text, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(35127296), "33.5 MiB");
  EXPECT_EQ(format_bytes(1048575), "1.0 MiB");
  EXPECT_EQ(format_bytes(INT64_MAX), "8.0 EiB");
  EXPECT_EQ(format_bytes(-2048), "-2.0 KiB");
}

TEST(Text, Durations) {
  EXPECT_EQ(format_duration(850), "850 ns");
  EXPECT_EQ(format_duration(1200000), "1.20 ms");
  EXPECT_EQ(format_duration(999999), "1.00 ms");
  EXPECT_EQ(format_duration(59990000000), "59.99 s");
  EXPECT_EQ(format_duration(125000000000), "2 min 05 s");
  EXPECT_EQ(format_duration(3660000000000), "1 h 01 min");
}

TEST(Text, Counts) {
  EXPECT_EQ(count_of(1, "plan"), "1 plan");
  EXPECT_EQ(count_of(0, "plan"), "0 plans");
  EXPECT_EQ(count_of(-3, "native kernel"), "-3 native kernels");
  EXPECT_EQ(count_of(2, "copy"), "2 copies");
  EXPECT_EQ(count_of(1, "copy"), "1 copy");
  EXPECT_EQ(count_of(2, "array"), "2 arrays");
  EXPECT_EQ(count_of(2, "micro-batch"), "2 micro-batches");
  EXPECT_EQ(count_of(2, "bus"), "2 buses");
}

TEST(Text, WhatIsNoTextBecomesQuestionMarks) {
  EXPECT_EQ(printable("plain, ü, 漢, 😀\nnext"), "plain, ü, 漢, 😀\nnext");
  EXPECT_EQ(printable("a\x1b[31mb\x7f\tc"), "a?[31mb??c");
  EXPECT_EQ(printable("\xaf x \xc3"), "? x ?");
  EXPECT_EQ(printable("\xc0\xaf"), "??");            // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "???");       // surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "????");  // beyond the last code point
  EXPECT_EQ(printable("\xe6\xbc"), "??");            // cut
  EXPECT_EQ(printable(""), "");
}

TEST(Text, Globs) {
  EXPECT_TRUE(glob_match("*norm*", "model.layers.0.input_layernorm.weight"));
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("a?c", "abc"));
  EXPECT_TRUE(glob_match("*.bias", "a.bias.bias"));
  EXPECT_FALSE(glob_match("*.bias", "a.bias.weight"));
  EXPECT_FALSE(glob_match("a?c", "ac"));
  EXPECT_FALSE(glob_match("", "a"));
  EXPECT_TRUE(glob_match("a\\*.weight", "a*.weight"));
  EXPECT_FALSE(glob_match("a\\*.weight", "ab.weight"));
  EXPECT_FALSE(glob_match("a\\*.weight", "a\\*.weight"));
  EXPECT_TRUE(glob_match("*\\?\\\\", "a*b?\\"));
  EXPECT_FALSE(glob_match("*\\?", "ab"));
  EXPECT_TRUE(glob_match("[a]?", "[a]b"));
  EXPECT_TRUE(glob_match("*a\\*b", "aa*aa*b"));
}

}  // namespace
}  // namespace dc::base
