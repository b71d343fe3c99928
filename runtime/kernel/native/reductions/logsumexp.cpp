// logsumexp over some dims. Exponentials are of elements less the greatest one, so that none
// overflows, and are summed in blocks as fold.h says, the blocks in f64.
#include <cmath>

#include "runtime/kernel/native/math.h"
#include "runtime/kernel/native/reductions/reduction.h"

namespace dc::runtime::kernel::native {
namespace {

template <typename T>
DC_VECTOR_CLONES void exp_less(T* __restrict to, const T* __restrict from, T less, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = math::exp(from[i] - less);
}

template <typename T>
class LogSumExp final : public Reduction<T> {
 public:
  LogSumExp(const BoundTensor& self, const BoundTensor& to, const DimSplit& split)
      : Reduction<T>(self, to, split, true) {}

 private:
  void reduce(T* results, const std::byte* begin, int64_t n) const override {
    this->each(results, begin, n, [this](const std::byte* one) { return of(one); });
  }

  T of(const std::byte* begin) const {
    const T greatest = this->template fold<MaxFold<T>>(begin);
    const T less = std::isinf(greatest) ? T{} : greatest;
    double sum = 0;
    this->in_blocks_of(begin, [&](const T* x, int64_t n) {
      alignas(64) T exponentials[kBlock];
      exp_less(exponentials, x, less, n);
      sum += static_cast<double>(fold_chunk<SumFold<T>, T>(exponentials, n));
    });
    return math::log(static_cast<T>(sum)) + less;
  }
};

Made logsumexp(Call& call) {
  const BoundTensor self = call.tensor("self"), to = call.output(0);
  call.require(base::is_floating(to.dtype), "its result must be floating-point");
  const DimSplit split(call, self, to, call.integers("dim"));
  if (!call.ok()) return call.made(nullptr);
  const bool in_f64 = self.dtype == base::DType::F64 || to.dtype == base::DType::F64;
  return in_f64 ? call.finish<LogSumExp<double>>(self, to, split)
                : call.finish<LogSumExp<float>>(self, to, split);
}

constexpr Row kRows[] = {
    {"aten.logsumexp.default", logsumexp},
};

}  // namespace

std::span<const Row> logsumexp_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
