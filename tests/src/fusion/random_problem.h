// Random problems for tests: small DAGs with fusible and other kernels, shared operands and
// reductions.
#pragma once

#include <algorithm>
#include <random>

#include "src/fusion/problem.h"

namespace dc::fusion {

struct RandomShape {
  int kernels = 8, reductions = 3;
  int kinds = 1;        // of fusible kernels; one in five is not
  bool orders = false;  // also kernels that come after others without reading from them
};

class RandomProblem {
 public:
  RandomProblem(uint32_t seed, RandomShape shape) : random_(seed), shape_(shape) {}

  Problem make() {
    for (int i = 0; i < 2; ++i) add_value(-1);
    for (int i = 0; i < shape_.kernels; ++i) add_kernel(i);
    for (int i = 0; i < shape_.reductions; ++i) {
      const auto after = static_cast<int32_t>(up_to(shape_.kernels - 1));
      problem_.reductions.push_back({{after}, {int64_t{64} << up_to(8)}, 0});
    }
    problem_.finish();
    return problem_;
  }

 private:
  int up_to(int most) { return std::uniform_int_distribution<int>(0, most)(random_); }

  int32_t add_value(int32_t maker) {
    const auto index = static_cast<int32_t>(problem_.values.size());
    problem_.values.push_back({maker, index, int64_t{8} << up_to(8), false});
    return index;
  }

  void add_kernel(int number) {
    Kernel kernel;
    kernel.time = {20 + up_to(3000)};
    kernel.kind = up_to(4) == 0 ? -1 : up_to(shape_.kinds - 1);
    for (int i = 0; i <= up_to(2); ++i)
      kernel.reads.push_back(up_to(static_cast<int>(problem_.values.size()) - 1));
    std::ranges::sort(kernel.reads);
    kernel.reads.erase(std::unique(kernel.reads.begin(), kernel.reads.end()), kernel.reads.end());
    if (shape_.orders && number > 0 && up_to(3) == 0) kernel.after.push_back(up_to(number - 1));
    kernel.makes.push_back(add_value(number));
    problem_.kernels.push_back(std::move(kernel));
  }

  std::mt19937 random_;
  RandomShape shape_;
  Problem problem_;
};

inline Problem random_problem(uint32_t seed, RandomShape shape) {
  return RandomProblem(seed, shape).make();
}

}  // namespace dc::fusion
