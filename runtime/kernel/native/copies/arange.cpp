// arange: start, start + step, ...
#include "runtime/kernel/native/lanes.h"
#include "runtime/kernel/native/registry.h"
#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel::native {
namespace {

// The elements from number `first` on; integers wrap.
DC_VECTOR_CLONES void count_from(int64_t* values, int64_t start, int64_t step, int64_t first,
                                 int64_t n) {
  const auto each = static_cast<uint64_t>(step);
  uint64_t value = static_cast<uint64_t>(start) + each * static_cast<uint64_t>(first);
  for (int64_t i = 0; i < n; ++i, value += each) values[i] = static_cast<int64_t>(value);
}
DC_VECTOR_CLONES void count_from(double* values, double start, double step, int64_t first,
                                 int64_t n) {
  for (int64_t i = 0; i < n; ++i) values[i] = start + step * static_cast<double>(first + i);
}

template <typename T>
class Arange final : public Kernel {
 public:
  Arange(const BoundTensor& to, T start, T step)
      : data_(static_cast<std::byte*>(to.data)),
        count_(to.numel()),
        stride_(to.sizes.empty() ? 1 : to.strides[0]),
        element_(base::byte_size(to.dtype)),
        start_(start),
        step_(step),
        store_(storer(kLaneOf<T>, to.dtype)) {}
  base::Status launch(device::Stream& stream) override {
    std::byte* to = stream.resolve(data_);
    in_blocks(count_, [&](int64_t first, int64_t n) {
      alignas(64) T values[kBlock];
      count_from(values, start_, step_, first, n);
      store_(to + first * stride_ * element_, stride_, values, n);
    });
    return {};
  }

 private:
  std::byte* data_;
  int64_t count_, stride_, element_;
  T start_, step_;
  StoreLanes store_;
};

Made make_arange(Call& call) {
  const BoundTensor to = call.output(0);
  call.require(to.sizes.size() <= 1, "its result must have one dim");
  // Of integers, start and step are cut to integers first, as PyTorch does.
  if (!base::is_floating(to.dtype))
    return call.finish<Arange<int64_t>>(to, call.scalar<int64_t>("start", 0),
                                        call.scalar<int64_t>("step", 1));
  return call.finish<Arange<double>>(to, call.scalar<double>("start", 0),
                                     call.scalar<double>("step", 1));
}

constexpr Row kRows[] = {
    {"aten.arange.default", make_arange},
    {"aten.arange.start", make_arange},
    {"aten.arange.start_step", make_arange},
};

}  // namespace

std::span<const Row> arange_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
