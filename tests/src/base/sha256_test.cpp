#include "src/base/sha256.h"

#include <gtest/gtest.h>

#include <array>

#include "src/base/checked.h"

namespace dc::base {
namespace {

TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(sha256_hex(std::string_view("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex(std::string_view("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, PiecesEqualTheWhole) {
  Sha256 hash;
  hash.update(std::string_view("a"));
  hash.update(std::array<uint8_t, 2>{'b', 'c'});
  EXPECT_EQ(hash.hex(), sha256_hex(std::string_view("abc")));
}

TEST(Checked, NoticesOverflow) {
  EXPECT_EQ(checked_add(2, 3), 5);
  EXPECT_EQ(checked_add(INT64_MAX, 1), std::nullopt);
  EXPECT_EQ(checked_mul(INT64_MAX / 2, 2), INT64_MAX - 1);
  EXPECT_EQ(checked_mul(INT64_MAX / 2 + 1, 2), std::nullopt);
  EXPECT_EQ(checked_product(std::array<int64_t, 3>{2, 3, 4}), 24);
  EXPECT_EQ(checked_product(std::array<int64_t, 2>{INT64_MAX, 3}), std::nullopt);
}

}  // namespace
}  // namespace dc::base
