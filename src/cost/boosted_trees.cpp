#include "src/cost/boosted_trees.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace dc::cost {
namespace {

constexpr int kTrees = 400;
constexpr double kShrinkage = 0.08;
constexpr size_t kBins = 64;         // of a feature
constexpr double kFewestInLeaf = 8;  // samples
constexpr double kMostError = 1.0 / 3, kMostFactor = 3;

// Of one bin of one feature: of the samples of a node.
struct Sum {
  double weight = 0, target = 0, count = 0;
  void add(const Sum& other) {
    weight += other.weight;
    target += other.target;
    count += other.count;
  }
  // How much the squared error falls if these samples get their mean.
  double gain() const { return weight > 0 ? target * target / weight : 0; }
};

}  // namespace

// Features as numbers of bins, and one tree after another from them.
class BoostedTrees::Growth {
 public:
  Growth(std::span<const Features> samples, std::span<const double> estimates)
      : samples_(samples), estimates_(estimates), factors_(samples.size(), 1.0) {
    const size_t features = samples[0].size();
    edges_.resize(features);
    bins_.resize(features, std::vector<uint8_t>(samples.size()));
    for (size_t f = 0; f < features; ++f) bin(f);
  }

  Tree grow() {
    Tree tree;
    node_.assign(samples_.size(), 0);
    residuals_.clear();
    for (size_t i = 0; i < samples_.size(); ++i) {
      const double error = 1 - estimates_[i] * factors_[i];
      residuals_.push_back(std::clamp(error, -kMostError, kMostError));
    }
    for (int depth = 0; depth < kDepth; ++depth) split_level(tree, depth);
    set_leaves(tree);
    return tree;
  }

 private:
  // Edges at quantiles, each a value of a sample: bin b has what is above edge b - 1, up to edge b.
  void bin(size_t feature) {
    std::vector<double> values;
    for (const Features& sample : samples_) values.push_back(sample[feature]);
    std::ranges::sort(values);
    std::vector<double>& edges = edges_[feature];
    for (size_t b = 1; b < kBins; ++b) {
      const double value = values[b * (values.size() - 1) / kBins];
      if (value < values.back() && (edges.empty() || value > edges.back())) edges.push_back(value);
    }
    for (size_t i = 0; i < samples_.size(); ++i) {
      const auto at = std::ranges::lower_bound(edges, samples_[i][feature]);
      bins_[feature][i] = static_cast<uint8_t>(at - edges.begin());
    }
  }

  void split_level(Tree& tree, int depth) {
    const size_t nodes = size_t{1} << depth;
    std::vector<double> best(nodes, 1e-12);
    std::vector<Tree::Split> chosen(nodes, {0, std::numeric_limits<double>::infinity()});
    for (size_t f = 0; f < edges_.size(); ++f) {
      std::vector<std::array<Sum, kBins>> sums(nodes);
      for (size_t i = 0; i < samples_.size(); ++i) {
        const double u = estimates_[i];
        sums[node_[i]][bins_[f][i]].add({u * u, u * residuals_[i], 1});
      }
      for (size_t n = 0; n < nodes; ++n) {
        Sum all, left;
        for (const Sum& sum : sums[n]) all.add(sum);
        for (size_t b = 0; b < edges_[f].size(); ++b) {
          left.add(sums[n][b]);
          const Sum right{all.weight - left.weight, all.target - left.target,
                          all.count - left.count};
          if (left.count < kFewestInLeaf || right.count < kFewestInLeaf) continue;
          const double gain = left.gain() + right.gain() - all.gain();
          if (gain <= best[n]) continue;
          best[n] = gain;
          chosen[n] = {f, edges_[f][b]};
        }
      }
    }
    for (size_t n = 0; n < nodes; ++n) tree.splits[nodes - 1 + n] = chosen[n];
    for (size_t i = 0; i < samples_.size(); ++i) {
      const Tree::Split& split = chosen[node_[i]];
      node_[i] = 2 * node_[i] + (samples_[i][split.feature] > split.threshold ? 1 : 0);
    }
  }

  void set_leaves(Tree& tree) {
    std::array<Sum, kLeaves> sums;
    for (size_t i = 0; i < samples_.size(); ++i) {
      const double u = estimates_[i];
      sums[node_[i]].add({u * u, u * residuals_[i], 1});
    }
    for (size_t n = 0; n < kLeaves; ++n) {
      if (sums[n].weight > 0) tree.leaves[n] = kShrinkage * sums[n].target / sums[n].weight;
    }
    for (size_t i = 0; i < samples_.size(); ++i) factors_[i] += tree.leaves[node_[i]];
  }

  const std::span<const Features> samples_;
  const std::span<const double> estimates_;
  std::vector<double> factors_, residuals_;  // by sample
  std::vector<size_t> node_;
  std::vector<std::vector<double>> edges_;  // by feature
  std::vector<std::vector<uint8_t>> bins_;  // by feature and sample
};

BoostedTrees::BoostedTrees(std::span<const Features> samples, std::span<const double> estimates) {
  Growth growth(samples, estimates);
  for (int i = 0; i < kTrees; ++i) trees_.push_back(growth.grow());
}

size_t BoostedTrees::leaf_of(const Tree& tree, const Features& features) {
  size_t node = 0;
  for (int depth = 0; depth < kDepth; ++depth) {
    const Tree::Split& split = tree.splits[(size_t{1} << depth) - 1 + node];
    node = 2 * node + (features[split.feature] > split.threshold ? 1 : 0);
  }
  return node;
}

double BoostedTrees::factor(const Features& features) const {
  double factor = 1;
  for (const Tree& tree : trees_) factor += tree.leaves[leaf_of(tree, features)];
  return std::clamp(factor, 1 / kMostFactor, kMostFactor);
}

}  // namespace dc::cost
