#include "src/base/archive/tensor_record.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "tests/src/archive/temporary_folder.h"
#include "tests/src/archive/zip_builder.h"

namespace dc::base::archive {
namespace {

std::vector<uint8_t> copy(const TensorRecord& record, std::span<const uint8_t> storage) {
  std::vector<uint8_t> out(static_cast<size_t>(*contiguous_bytes(record)));
  EXPECT_TRUE(copy_contiguous(storage, record, out).ok());
  return out;
}

TEST(TensorRecord, CopiesThroughStrides) {
  std::array<uint8_t, 12> storage;
  std::iota(storage.begin(), storage.end(), 0);
  using Bytes = std::vector<uint8_t>;
  EXPECT_EQ(copy({"e", DType::U8, {2, 3}, {3, 1}, 1}, storage), (Bytes{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(copy({"e", DType::U8, {3, 2}, {1, 3}, 0}, storage), (Bytes{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(copy({"e", DType::U8, {2, 2}, {0, 1}, 4}, storage), (Bytes{4, 5, 4, 5}));
  EXPECT_EQ(copy({"e", DType::I16, {2}, {2}, 1}, storage), (Bytes{2, 3, 6, 7}));
  EXPECT_EQ(copy({"e", DType::I32, {}, {}, 2}, storage), (Bytes{8, 9, 10, 11}));
  EXPECT_EQ(copy({"e", DType::F64, {0, 5}, {5, 1}, 99}, storage), Bytes{});
}

TEST(TensorRecord, RefusesWhatDoesNotFit) {
  std::array<uint8_t, 8> storage{};
  std::vector<uint8_t> out(8);
  for (const TensorRecord& record :
       {TensorRecord{"e", DType::U8, {8}, {1}, 1}, TensorRecord{"e", DType::F32, {2}, {2}, 0},
        TensorRecord{"e", DType::U8, {8}, {-1}, 7}, TensorRecord{"e", DType::U8, {8}, {1}, -1},
        TensorRecord{"e", DType::U8, {8}, {}, 0},
        TensorRecord{"e", DType::U8, {8}, {INT64_MAX}, 0}}) {
    EXPECT_EQ(copy_contiguous(storage, record, out).kind(), ErrorKind::BadInput);
  }
  EXPECT_FALSE(contiguous_bytes({"e", DType::F64, {INT64_MAX, 2}, {1, 1}, 0}).ok());
  EXPECT_FALSE(contiguous_bytes({"e", DType::F64, {-2}, {1}, 0}).ok());
}

TEST(TensorRecord, ReadsFromArchives) {
  tests::TemporaryFolder folder;
  tests::ZipBuilder builder;
  builder.add("m/data/w", "abcd").add({.name = "m/data/z", .data = "wxyz", .deflate = true});
  auto archive = ZipArchive::open(folder.write("a.pt2", builder.build()));
  ASSERT_TRUE(archive.ok());
  std::vector<uint8_t> out(2);
  ASSERT_TRUE(copy_contiguous(*archive, {"data/w", DType::U8, {2}, {2}, 0}, out).ok());
  EXPECT_EQ(out, (std::vector<uint8_t>{'a', 'c'}));
  ASSERT_TRUE(copy_contiguous(*archive, {"data/z", DType::U8, {2}, {1}, 2}, out).ok());
  EXPECT_EQ(out, (std::vector<uint8_t>{'y', 'z'}));
  EXPECT_EQ(copy_contiguous(*archive, {"data/none", DType::U8, {2}, {1}, 0}, out).kind(),
            ErrorKind::MissingInput);
}

}  // namespace
}  // namespace dc::base::archive
