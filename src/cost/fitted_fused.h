// FittedFused: the time of fused kernels from others that were measured. A sum of what the parts of
// a kernel take (its start, its blocks, each kind of operation for each element, each kind of
// tensor for each byte), with prices that are not negative and fit the samples best in the relative
// mean square, times a correction by boosted trees: parts overlap, caches have sizes, and how fast
// memory is read depends on how many operands an operation waits for.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "src/cost/boosted_trees.h"
#include "src/cost/fused_kernel.h"

namespace dc::cost {

struct FusedSample {
  FusedKernel kernel;
  base::Nanos time;  // above 0
};

class FittedFused final : public FusedEstimator {
 public:
  // Of fewer many operators are in none.
  static constexpr size_t kFewestSamples = 200;

  explicit FittedFused(std::span<const FusedSample> samples);  // at least one
  base::Nanos time(const FusedKernel& kernel) const override;

 private:
  // What is counted, and how many of it.
  struct Part {
    size_t what;
    double count;
  };
  struct Counts {
    std::vector<Part> parts;
    double time;
  };
  void fit(std::span<const Counts> rows);
  static std::vector<Part> parts_of(const FusedKernel& kernel);
  double sum(const std::vector<Part>& parts) const;
  // What is counted in no sample takes what is like it takes on average.
  void fill_prices(const std::vector<bool>& is_priced);
  struct Reading;
  static Reading reading(const FusedKernel& kernel);
  BoostedTrees::Features features_of(const FusedKernel& kernel, double sum) const;

  std::vector<double> prices_;  // ns
  std::optional<BoostedTrees> correction_;
};

}  // namespace dc::cost
