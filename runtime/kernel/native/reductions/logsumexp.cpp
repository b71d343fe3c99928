// logsumexp over some dims. Exponentials are of elements less the greatest one, so that none
// overflows, and are summed in blocks as fold.h says, the blocks in f64.
#include <cmath>

#include "runtime/kernel/native/math.h"
#include "runtime/kernel/native/reductions/fold.h"
#include "runtime/kernel/native/reductions/split.h"
#include "runtime/kernel/native/registry.h"
#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel::native {
namespace {

template <typename T>
DC_VECTOR_CLONES void exp_less(T* __restrict to, const T* __restrict from, T less, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = math::exp(from[i] - less);
}

template <typename T>
class LogSumExp final : public Kernel {
 public:
  LogSumExp(const BoundTensor& self, const BoundTensor& to, const DimSplit& split)
      : self_(static_cast<std::byte*>(self.data)),
        to_(static_cast<std::byte*>(to.data)),
        to_element_(base::byte_size(to.dtype)),
        kept_(split.kept()),
        reduced_(split.reduced()),
        reader_(kLaneOf<T>, self.dtype, reduced_.inner_stride(0)),
        store_(storer(kLaneOf<T>, to.dtype)) {}

  base::Status launch(device::Stream& stream) override {
    const std::byte* self = stream.resolve(self_);
    std::byte* to = stream.resolve(to_);
    kept_.for_each_row([&](const Offsets& at) {
      for (int64_t i = 0; i < kept_.inner(); ++i) {
        const T result = of(self + (at[0] + i * kept_.inner_stride(0)) * reader_.element);
        store_(to + (at[1] + i * kept_.inner_stride(1)) * to_element_, 1, &result, 1);
      }
    });
    return {};
  }

 private:
  T of(const std::byte* begin) const {
    T greatest = MaxFold<T>::neutral();
    reduced_.for_each_row([&](const Offsets& row) {
      greatest = fold_row<MaxFold<T>, T>(reader_, begin + row[0] * reader_.element,
                                         reduced_.inner(), greatest);
    });
    const T less = std::isinf(greatest) ? T{} : greatest;
    double sum = 0;
    reduced_.for_each_row([&](const Offsets& row) {
      alignas(64) T buffer[kBlock], exponentials[kBlock];
      for (int64_t first = 0; first < reduced_.inner(); first += kBlock) {
        const int64_t n = std::min(kBlock, reduced_.inner() - first);
        const void* x = reader_.read(buffer, begin + row[0] * reader_.element, first, n);
        exp_less(exponentials, static_cast<const T*>(x), less, n);
        sum += static_cast<double>(fold_chunk<SumFold<T>, T>(exponentials, n));
      }
    });
    return math::log(static_cast<T>(sum)) + less;
  }

  std::byte *self_, *to_;
  int64_t to_element_;
  Iteration kept_, reduced_;
  LaneReader reader_;
  StoreLanes store_;
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
