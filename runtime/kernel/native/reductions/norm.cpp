// Norms of vectors: the p-th root of the sum of |x|^p; the largest or smallest |x| for an infinite
// p, and how many elements are not 0 for p = 0.
#include <cmath>

#include "runtime/kernel/native/reductions/reduce.h"

namespace dc::runtime::kernel::native {
namespace {

template <typename T>
T magnitude(T x) {
  return x < T{} ? -x : x + T{};  // of -0 it is 0
}

template <typename T>
struct SquareFold : SumFold<T> {
  static void prepare(auto& x) { x = x * x; }
  static typename SumFold<T>::Total finish(typename SumFold<T>::Total total) {
    return std::sqrt(total);
  }
};
template <typename T>
struct MagnitudeFold : SumFold<T> {
  static constexpr bool kChooses = true;
  static void prepare(T& x) { x = magnitude(x); }
};
template <typename T>
struct CountFold : SumFold<T> {
  static constexpr bool kChooses = true;
  static void prepare(T& x) { x = x != T{} ? T{1} : T{}; }
};
template <typename T>
struct LargestFold : MaxFold<T> {
  static T neutral() { return T{}; }
  static void prepare(T& x) { x = magnitude(x); }
};
template <typename T>
struct SmallestFold : MinFold<T> {
  static void prepare(T& x) { x = magnitude(x); }
};

// Any p, an element at a time: sums in f64, in the order of dims.
template <typename T>
class PowerNorm final : public Reduction<T> {
 public:
  PowerNorm(const BoundTensor& self, const BoundTensor& to, const DimSplit& split, double p)
      : Reduction<T>(self, to, split, true), p_(p) {}

 private:
  void reduce(T* results, const std::byte* begin, int64_t n) const override {
    this->each(results, begin, n, [this](const std::byte* one) { return of(one); });
  }

  T of(const std::byte* begin) const {
    double sum = 0;
    this->in_blocks_of(begin, [&](const T* x, int64_t n) {
      for (int64_t i = 0; i < n; ++i) sum += std::pow(std::fabs(static_cast<double>(x[i])), p_);
    });
    return static_cast<T>(std::pow(sum, 1 / p_));
  }

  double p_;
};

template <template <typename> class Fold>
Made norm_by_fold(Call& call, const BoundTensor& self, const BoundTensor& to,
                  const DimSplit& split) {
  return lane_of_reduction(self.dtype, to.dtype) == Lane::F64
             ? call.finish<Reduce<Fold<double>, double>>(self, to, split, 1.0)
             : call.finish<Reduce<Fold<float>, float>>(self, to, split, 1.0);
}

Made norm(Call& call, std::string_view power) {
  const double p = call.number(power, 2);
  const BoundTensor self = call.tensor("self"), to = call.output(0);
  call.require(base::is_floating(self.dtype) && base::is_floating(to.dtype),
               "a norm is of floating-point numbers");
  const DimSplit split(call, self, to, call.integers("dim"));
  if (!call.ok()) return call.made(nullptr);
  if (p == 2) return norm_by_fold<SquareFold>(call, self, to, split);
  if (p == 1) return norm_by_fold<MagnitudeFold>(call, self, to, split);
  if (p == 0) return norm_by_fold<CountFold>(call, self, to, split);
  if (std::isinf(p)) {
    return p > 0 ? norm_by_fold<LargestFold>(call, self, to, split)
                 : norm_by_fold<SmallestFold>(call, self, to, split);
  }
  return lane_of_reduction(self.dtype, to.dtype) == Lane::F64
             ? call.finish<PowerNorm<double>>(self, to, split, p)
             : call.finish<PowerNorm<float>>(self, to, split, p);
}
Made norm_by_order(Call& call) { return norm(call, "ord"); }
Made norm_by_p(Call& call) { return norm(call, "p"); }

constexpr Row kRows[] = {
    {"aten.linalg_vector_norm.default", norm_by_order},
    {"aten.norm.Scalar", norm_by_p},
    {"aten.norm.ScalarOpt_dim", norm_by_p},
};

}  // namespace

std::span<const Row> vector_norm_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
