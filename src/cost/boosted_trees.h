// BoostedTrees: a correction learned from samples: gradient boosting of regression trees (Friedman
// 2001), for some thousands of samples with some tens of features. Plain arithmetic in a fixed
// order: the same on every host.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace dc::cost {

class BoostedTrees {
 public:
  using Features = std::vector<double>;

  // `estimates`: what is to be corrected, as a part of the right value, by sample. Makes factor()
  // such that estimate * factor is near 1 in the mean square; what is farther than a third from it
  // counts as if it were no farther. All samples have equally many features, at least one.
  BoostedTrees(std::span<const Features> samples, std::span<const double> estimates);

  // What to multiply an estimate by; between 1/3 and 3.
  double factor(const Features& features) const;

 private:
  static constexpr int kDepth = 4;
  static constexpr size_t kSplits = (1 << kDepth) - 1, kLeaves = 1 << kDepth;
  // Splits in the order of a binary heap; a sample goes right if its feature is above the
  // threshold.
  struct Tree {
    struct Split {
      size_t feature = 0;
      double threshold = 0;
    };
    std::array<Split, kSplits> splits;
    std::array<double, kLeaves> leaves{};
  };
  class Growth;

  static size_t leaf_of(const Tree& tree, const Features& features);
  std::vector<Tree> trees_;
};

}  // namespace dc::cost
