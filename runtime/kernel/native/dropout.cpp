// dropout: loops over what runtime/kernel/scalar/dropout.h says of an element.
#include "runtime/kernel/native/dropout.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernel/native/registry.h"
#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel::native {
namespace {

using base::DType;
constexpr int kWidth = 16;          // counters per batch
constexpr int kBatch = 4 * kWidth;  // elements per batch

// keep[i] = 1 if element first + i is kept.
DC_VECTOR_CLONES void draw_batch(const scalar::Draws& draws, int64_t first, uint32_t threshold,
                                 uint8_t* __restrict keep) {
  uint32_t words[4][kWidth];
  scalar::draw(draws, first, words);
  for (int lane = 0; lane < kWidth; ++lane) {
    for (int word = 0; word < 4; ++word)
      keep[4 * lane + word] = scalar::is_kept(words[word][lane], threshold);
  }
}

template <typename T>
void apply(T* __restrict y, const T* __restrict x, const uint8_t* __restrict keep, float scale,
           int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = scalar::dropped(x[i], keep[i] != 0, scale);
}

template <typename T>
class Dropout final : public Kernel {
 public:
  explicit Dropout(const DropoutOperands& operands) : o_(operands) {}

  base::Status launch(device::Stream& stream) override {
    const scalar::Draws draws = scalar::draws_of(o_.rng.on<const uint64_t>(stream), o_.op);
    const auto* x = o_.x.on<const T>(stream);
    auto* y = o_.y.on<T>(stream);
    auto* mask = o_.mask.on<uint8_t>(stream);
    uint8_t keep[kBatch];
    for (int64_t first = 0; first < o_.x.count; first += kBatch) {
      const int64_t n = std::min<int64_t>(kBatch, o_.x.count - first);
      draw_batch(draws, first, o_.threshold, keep);
      apply(y + first, x + first, keep, o_.scale, n);
      if (mask != nullptr) std::copy_n(keep, n, mask + first);
    }
    return {};
  }

 private:
  DropoutOperands o_;
};

Made make_dropout(Call& call) {
  const DropoutOperands operands = read_dropout(call);
  if (operands.x.dtype == DType::BF16) return call.finish<Dropout<BF16>>(operands);
  if (operands.x.dtype == DType::F16) return call.finish<Dropout<F16>>(operands);
  return call.finish<Dropout<float>>(operands);
}

constexpr Row kRows[] = {
    {"dc.dropout", make_dropout},
};

}  // namespace

DropoutOperands read_dropout(Call& call) {
  const Dense x = call.operand(0), rng = call.operand(1), y = call.result(0);
  const Dense mask = call.has_result(1) ? call.result(1) : Dense{nullptr, DType::Bool, x.count};
  const double p = call.number("p");
  const int64_t op = call.integer("op_id");
  call.require(rng.count >= 4 && base::byte_size(rng.dtype) == 8,
               "the random state must be u64[4]");
  call.require(y.dtype == x.dtype && y.count == x.count, "operand and result differ");
  call.require(mask.dtype == DType::Bool && mask.count == x.count,
               "the mask must be bool and as long as x");
  call.require(p >= 0 && p <= 1, "'p' must be between 0 and 1");
  call.require(op >= 0 && op <= UINT32_MAX, "'op_id' must fit 32 bits");
  call.require(x.count <= (int64_t{1} << 34), "more than 2^34 elements");
  call.require(x.dtype == DType::F32 || x.dtype == DType::BF16 || x.dtype == DType::F16,
               "x must be f32, bf16 or f16");
  if (!call.ok()) return {};
  return {x,
          rng,
          y,
          mask,
          static_cast<uint32_t>(op),
          static_cast<uint32_t>(std::ceil(p * 0x1p24)),
          p < 1 ? static_cast<float>(1 / (1 - p)) : 0.0f};
}

std::span<const Row> dropout_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
