#include "src/base/shape.h"

#include <gtest/gtest.h>

#include <vector>

namespace dc::base {
namespace {

using List = std::vector<int64_t>;

// The places of all elements, in row-major order.
List places(const List& sizes, const List& strides) {
  List all = {0};
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    List next;
    for (const int64_t place : all) {
      for (int64_t i = 0; i < sizes[dim]; ++i) next.push_back(place + i * strides[dim]);
    }
    all = next;
  }
  return all;
}

// Every shape of up to three dims of 0 to 3 elements, with every choice of strides from a few.
TEST(Shape, AsItsElementsLie) {
  const List some_sizes = {0, 1, 2, 3}, some_strides = {0, 1, 2, 3, 6};
  const size_t each = some_sizes.size() * some_strides.size();
  int contiguous = 0;
  for (size_t dims = 0; dims <= 3; ++dims) {
    size_t count = 1;
    for (size_t dim = 0; dim < dims; ++dim) count *= each;
    for (size_t choice = 0; choice < count; ++choice) {
      List sizes, strides;
      for (size_t dim = 0, rest = choice; dim < dims; ++dim, rest /= each) {
        sizes.push_back(some_sizes[rest % some_sizes.size()]);
        strides.push_back(some_strides[rest % each / some_sizes.size()]);
      }
      const List all = places(sizes, strides);
      EXPECT_EQ(numel(sizes), static_cast<int64_t>(all.size()));
      EXPECT_EQ(extent(sizes, strides), all.empty() ? 0 : all.back() + 1);
      bool in_order = true;
      for (size_t i = 0; i < all.size(); ++i)
        in_order = in_order && all[i] == static_cast<int64_t>(i);
      EXPECT_EQ(is_contiguous(sizes, strides), in_order);
      contiguous += in_order ? 1 : 0;
      const List dense = contiguous_strides(sizes);
      EXPECT_TRUE(is_contiguous(sizes, dense));
    }
  }
  EXPECT_GT(contiguous, 100);
}

TEST(Shape, StridesAreThoseOfPyTorch) {
  EXPECT_EQ(contiguous_strides(List{2, 3, 4}), (List{12, 4, 1}));
  EXPECT_EQ(contiguous_strides(List{2, 0, 4}), (List{4, 4, 1}));
  EXPECT_EQ(contiguous_strides(List{}), List{});
}

}  // namespace
}  // namespace dc::base
