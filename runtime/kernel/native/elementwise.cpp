// copy, zero, accumulate: one pass over contiguous memory, element by element.
#include "runtime/kernel/native/elementwise.h"

#include "runtime/kernel/native/convert.h"
#include "runtime/kernel/native/registry.h"
#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel::native {
namespace {

using base::DType;

DC_VECTOR_CLONES void accumulate_f32(float* __restrict sum, const float* __restrict g, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += g[i];
}
DC_VECTOR_CLONES void accumulate_bf16(float* __restrict sum, const BF16* __restrict g, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += widen(g[i]);
}
DC_VECTOR_CLONES void accumulate_f16(float* __restrict sum, const F16* __restrict g, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += widen(g[i]);
}

class Copy final : public Kernel {
 public:
  Copy(Dense to, Dense from) : to_(to), from_(from) {}
  base::Status launch(device::Stream& stream) override {
    if (to_.data != from_.data) stream.copy(to_.address(), from_.address(), to_.bytes());
    return {};
  }

 private:
  Dense to_, from_;
};

class Zero final : public Kernel {
 public:
  explicit Zero(Dense x) : x_(x) {}
  base::Status launch(device::Stream& stream) override {
    stream.fill(x_.address(), std::byte{0}, x_.bytes());
    return {};
  }

 private:
  Dense x_;
};

class Accumulate final : public Kernel {
 public:
  Accumulate(Dense sum, Dense g) : sum_(sum), g_(g) {}
  base::Status launch(device::Stream& stream) override {
    auto* sum = sum_.on<float>(stream);
    if (g_.dtype == DType::F32) accumulate_f32(sum, g_.on<float>(stream), sum_.count);
    if (g_.dtype == DType::BF16) accumulate_bf16(sum, g_.on<BF16>(stream), sum_.count);
    if (g_.dtype == DType::F16) accumulate_f16(sum, g_.on<F16>(stream), sum_.count);
    return {};
  }

 private:
  Dense sum_, g_;
};

Made make_copy(Call& call) {
  const Dense to = call.operand(0), from = call.operand(1);
  call.require(to.dtype == from.dtype && to.count == from.count,
               "source and destination differ in element type or count");
  return call.finish<Copy>(to, from);
}

Made make_zero(Call& call) {
  const Dense x = call.operand(0);
  return call.finish<Zero>(x);
}

Made make_accumulate(Call& call) {
  const AccumulateOperands operands = read_accumulate(call);
  return call.finish<Accumulate>(operands.sum, operands.g);
}

constexpr Row kRows[] = {
    {"dc.accumulate", make_accumulate},
    {"dc.copy", make_copy},
    {"dc.zero", make_zero},
};

}  // namespace

AccumulateOperands read_accumulate(Call& call) {
  const Dense sum = call.operand(0, DType::F32), g = call.operand(1);
  call.require(g.dtype == DType::F32 || g.dtype == DType::BF16 || g.dtype == DType::F16,
               "a gradient must be f32, bf16 or f16");
  call.require(sum.count == g.count, "the gradient and its sum differ in element count");
  return {sum, g};
}

std::span<const Row> elementwise_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
