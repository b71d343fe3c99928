#include "src/ir/types.h"

#include <gtest/gtest.h>

namespace dc::ir {
namespace {

TEST(TensorType, ContiguousStrides) {
  EXPECT_EQ(contiguous_strides(Shape{2, 3, 4}), (Strides{12, 4, 1}));
  EXPECT_EQ(contiguous_strides(Shape{}), Strides{});
  EXPECT_EQ(contiguous_strides(Shape{2, 0, 4}), (Strides{4, 4, 1}));
}

TEST(TensorType, CountsElementsAndBytes) {
  const TensorType type = contiguous(DType::BF16, {2, 3});
  EXPECT_EQ(type.numel(), 6);
  EXPECT_EQ(type.bytes().v, 12);
  EXPECT_EQ(contiguous(DType::F32, {}).numel(), 1);
}

TEST(TensorType, StridesOfSingleElementsDoNotMatter) {
  TensorType type = contiguous(DType::F32, {1, 4});
  type.strides = {77, 1};
  EXPECT_TRUE(type.is_contiguous());
  type.shape = {2, 4};
  EXPECT_FALSE(type.is_contiguous());
}

TEST(TensorType, StorageReachesTheLastElement) {
  TensorType type = contiguous(DType::F32, {4, 8});
  EXPECT_EQ(type.storage_elements(), 32);
  type.strides = {1, 4};
  type.offset = 3;
  EXPECT_EQ(type.storage_elements(), 3 + 1 + 3 * 1 + 7 * 4);
  type.strides = {0, 1};
  EXPECT_EQ(type.storage_elements(), 3 + 1 + 7);
  type.shape = {0, 8};
  EXPECT_EQ(type.storage_elements(), 0);
}

TEST(Mesh, WorldIsTheProductOfItsAxes) {
  EXPECT_EQ(Mesh{}.world(), 1);
  EXPECT_EQ((Mesh{{{"dp", 3}, {"tp", 2}}}).world(), 6);
}

}  // namespace
}  // namespace dc::ir
