// dropout: a mask that depends only on seed, step, micro-batch, rank, op and element, never on the
// order in which anything runs.
//
// Philox 4x32-10 with key = seed and counter = (element / 4, op, step, micro-batch << 16 | rank);
// element % 4 picks the word. An element is kept when the word's upper 24 bits, read as a fraction
// u in [0, 1), are at least p; it is then divided by 1 - p.
#include <algorithm>
#include <cmath>

#include "runtime/kernel/native/convert.h"
#include "runtime/kernel/native/philox.h"
#include "runtime/kernel/native/registry.h"
#include "runtime/kernel/native/vector_clones.h"
#include "src/base/step_scalars.h"

namespace dc::runtime::kernel::native {
namespace {

using base::DType;
constexpr int kWidth = 16;          // counters per batch
constexpr int kBatch = 4 * kWidth;  // elements per batch

struct Draws {
  uint64_t key;
  uint32_t op, step, place;  // counter words 1 to 3
};

// keep[i] = 1 if element first + i is kept. `first` is a multiple of 4; `threshold` is p in units
// of 2^-24.
DC_VECTOR_CLONES void draw_batch(const Draws& draws, int64_t first, uint32_t threshold,
                                 uint8_t* __restrict keep) {
  uint32_t words[4][kWidth];
  for (int lane = 0; lane < kWidth; ++lane) {
    words[0][lane] = static_cast<uint32_t>(first / 4) + static_cast<uint32_t>(lane);
    words[1][lane] = draws.op;
    words[2][lane] = draws.step;
    words[3][lane] = draws.place;
  }
  philox_10(words, draws.key);
  for (int lane = 0; lane < kWidth; ++lane) {
    for (int word = 0; word < 4; ++word)
      keep[4 * lane + word] = (words[word][lane] >> 8) >= threshold;
  }
}

// Multiplying by 0 instead of selecting keeps a NaN visible, as PyTorch does.
template <typename T>
void apply(T* __restrict y, const T* __restrict x, const uint8_t* __restrict keep, float scale,
           int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float factor = keep[i] != 0 ? scale : 0.0f;
    y[i] = store<T>(load(x[i]) * factor);
  }
}

template <typename T>
class Dropout final : public Kernel {
 public:
  Dropout(Dense x, Dense rng, Dense y, Dense mask, double p, int64_t op)
      : x_(x),
        y_(y),
        mask_(mask),
        rng_(rng),
        op_(static_cast<uint32_t>(op)),
        threshold_(static_cast<uint32_t>(std::ceil(p * 0x1p24))),
        scale_(p < 1 ? static_cast<float>(1 / (1 - p)) : 0.0f) {}

  base::Status launch(device::Stream& stream) override {
    const auto* rng = rng_.on<const uint64_t>(stream);
    const Draws draws{
        rng[base::kRngSeed], op_, static_cast<uint32_t>(rng[base::kRngStep]),
        static_cast<uint32_t>(rng[base::kRngMicroBatch] << 16 | (rng[base::kRngRank] & 0xffff))};
    const auto* x = x_.on<const T>(stream);
    auto* y = y_.on<T>(stream);
    auto* mask = mask_.on<uint8_t>(stream);
    uint8_t keep[kBatch];
    for (int64_t first = 0; first < x_.count; first += kBatch) {
      const int64_t n = std::min<int64_t>(kBatch, x_.count - first);
      draw_batch(draws, first, threshold_, keep);
      apply(y + first, x + first, keep, scale_, n);
      if (mask != nullptr) std::copy_n(keep, n, mask + first);
    }
    return {};
  }

 private:
  Dense x_, y_, mask_, rng_;
  uint32_t op_, threshold_;
  float scale_;
};

Made make_dropout(Call& call) {
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
  if (x.dtype == DType::F32) return call.finish<Dropout<float>>(x, rng, y, mask, p, op);
  if (x.dtype == DType::BF16) return call.finish<Dropout<BF16>>(x, rng, y, mask, p, op);
  if (x.dtype == DType::F16) return call.finish<Dropout<F16>>(x, rng, y, mask, p, op);
  call.require(false, "x must be f32, bf16 or f16");
  return call.finish<Dropout<float>>(x, rng, y, mask, p, op);
}

constexpr Row kRows[] = {
    {"dc.dropout", make_dropout},
};

}  // namespace

std::span<const Row> dropout_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
