// Random changes of a short list and of a std::vector: both hold the same.
#include "src/base/small_list.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

namespace dc::base {
namespace {

using List = SmallList<int64_t, 4>;
using Vector = std::vector<int64_t>;

class Pair {
 public:
  explicit Pair(uint32_t seed) : random_(seed) {}

  void change() {
    const int64_t value = static_cast<int64_t>(random_() % 100);
    const size_t at = vector_.empty() ? 0 : random_() % vector_.size();
    const auto place = static_cast<std::ptrdiff_t>(at);
    switch (random_() % 9) {
      case 0:
      case 1:
        list_.push_back(value);
        vector_.push_back(value);
        return;
      case 2:
        list_.insert(list_.begin() + place, size_t{2}, value);
        vector_.insert(vector_.begin() + place, 2, value);
        return;
      case 3:
        if (vector_.empty()) return;
        list_.erase(list_.begin() + place);
        vector_.erase(vector_.begin() + place);
        return;
      case 4:
        if (vector_.empty()) return;
        list_.pop_back();
        vector_.pop_back();
        return;
      case 5:
        if (vector_.empty()) return;
        list_.push_back(list_[at]);  // one of its elements, where it may have to grow
        vector_.push_back(Vector(vector_)[at]);
        return;
      case 6:
        list_.assign(at, value);
        vector_.assign(at, value);
        return;
      case 7: {
        List moved = std::move(list_);
        list_ = List{value};
        list_ = std::move(moved);
        return;
      }
      default: {
        List copy = list_;
        copy.push_back(value);
        list_ = List(copy.begin(), copy.end() - 1);
        return;
      }
    }
  }

  void compare() const {
    EXPECT_EQ(static_cast<Vector>(list_), vector_);
    EXPECT_EQ(list_, List(vector_));
    EXPECT_EQ(list_.size(), vector_.size());
    EXPECT_EQ(Vector(list_.rbegin(), list_.rend()), Vector(vector_.rbegin(), vector_.rend()));
  }

 private:
  std::mt19937 random_;
  List list_;
  Vector vector_;
};

TEST(SmallList, HoldsWhatAVectorHolds) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    Pair pair(seed);
    for (int i = 0; i < 200; ++i) {
      pair.change();
      pair.compare();
    }
  }
}

TEST(SmallList, Compares) {
  const List short_list{1, 2}, long_list{1, 2, 3, 4, 5}, other{1, 3};
  EXPECT_NE(short_list, long_list);
  EXPECT_TRUE(short_list < long_list);
  EXPECT_TRUE(long_list < other);
  EXPECT_FALSE(other < short_list);
  EXPECT_EQ(short_list, (Vector{1, 2}));
}

}  // namespace
}  // namespace dc::base
