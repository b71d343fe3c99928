// add_loss, square_sum, check_finite, clip_and_check: from gradients and losses to the step's few
// scalars.
//
// Sums have a fixed order, so every machine and every sharding gets the same bits. The order of
// square_sum is: element i of a rank's range goes to lane i % 16; then the lanes are added in
// order. Ranges start at multiples of 32 elements, so a rank that holds the whole gradient adds up
// its range exactly as a rank that holds only the range.
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/kernel/native/convert.h"
#include "runtime/kernel/native/gradient.h"
#include "runtime/kernel/native/reduce.h"
#include "runtime/kernel/native/registry.h"
#include "runtime/kernel/native/vector_clones.h"
#include "src/base/checked.h"

namespace dc::runtime::kernel::native {
namespace {

using base::DType;
constexpr int64_t kLanes = 16;

static_assert(kGradientBlock % kLanes == 0);

// `n` is a multiple of the lanes.
DC_VECTOR_CLONES void add_squares(double* __restrict sums, const float* __restrict g, int64_t n) {
  double lanes[kLanes];
#pragma GCC unroll 16
  for (int64_t k = 0; k < kLanes; ++k) lanes[k] = sums[k];
  for (int64_t i = 0; i < n; i += kLanes) {
#pragma GCC unroll 16
    for (int64_t k = 0; k < kLanes; ++k) {
      const double x = static_cast<double>(g[i + k]);
      lanes[k] += x * x;
    }
  }
#pragma GCC unroll 16
  for (int64_t k = 0; k < kLanes; ++k) sums[k] = lanes[k];
}

double square_sum(GradientReader& g, int64_t first, int64_t count) {
  double lanes[kLanes] = {};
  for (int64_t done = 0; done < count; done += kGradientBlock) {
    const int64_t n = std::min(kGradientBlock, count - done), full = n - n % kLanes;
    const float* const block = g.block(first + done, n);
    add_squares(lanes, block, full);
    for (int64_t i = full; i < n; ++i) {
      const double x = static_cast<double>(block[i]);
      lanes[i - full] += x * x;
    }
  }
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

class SquareSum final : public Kernel {
 public:
  explicit SquareSum(const SquareSumOperands& operands) : o_(operands) {}
  base::Status launch(device::Stream& stream) override {
    const auto scale =
        static_cast<float>(o_.hyperparameters.on<double>(stream)[base::kHyperGradScale]);
    GradientReader g(o_.g, stream, scale);
    double sum = square_sum(g, o_.counted.first, o_.counted.count);
    const int64_t behind = o_.counted.first + o_.counted.count;
    const double others = square_sum(g, o_.checked.first, o_.counted.first - o_.checked.first) +
                          square_sum(g, behind, o_.checked.first + o_.checked.count - behind);
    if (!std::isfinite(others)) sum += others;
    o_.row.on<double>(stream)[o_.cell] = sum;
    return {};
  }

 private:
  SquareSumOperands o_;
};

class AddLoss final : public Kernel {
 public:
  explicit AddLoss(const AddLossOperands& operands) : o_(operands) {}
  base::Status launch(device::Stream& stream) override {
    double value = 0;
    if (o_.loss.dtype == DType::F32) value = *o_.loss.on<float>(stream);
    if (o_.loss.dtype == DType::F64) value = *o_.loss.on<double>(stream);
    if (o_.loss.dtype == DType::BF16) value = widen(*o_.loss.on<BF16>(stream));
    if (o_.loss.dtype == DType::F16) value = widen(*o_.loss.on<F16>(stream));
    *o_.sum.on<double>(stream) += value;
    return {};
  }

 private:
  AddLossOperands o_;
};

class CheckFinite final : public Kernel {
 public:
  explicit CheckFinite(const CheckFiniteOperands& operands) : o_(operands) {}
  base::Status launch(device::Stream& stream) override {
    const scalar::CheckFinite check{o_.scalars.on<double>(stream), o_.row.on<const double>(stream),
                                    o_.losses.on<const double>(stream), o_.losses.count, o_.param};
    check.run();
    return {};
  }

 private:
  CheckFiniteOperands o_;
};

class ClipAndCheck final : public Kernel {
 public:
  explicit ClipAndCheck(const ClipAndCheckOperands& operands) : o_(operands) {}
  base::Status launch(device::Stream& stream) override {
    const scalar::ClipAndCheck check{o_.scalars.on<double>(stream),
                                     o_.table.on<const double>(stream),
                                     o_.hyperparameters.on<const double>(stream),
                                     o_.ranks,
                                     o_.parameters,
                                     o_.clip};
    const double loss = check.loss();
    scalar::ClipAndCheck::Found found;
    for (int64_t p = 0; p < o_.parameters; ++p)
      check.add(found, p, check.column(p), scalar::is_finite(loss));
    check.finish(found, loss);
    return {};
  }

 private:
  ClipAndCheckOperands o_;
};

Made make_add_loss(Call& call) { return call.finish<AddLoss>(read_add_loss(call)); }
Made make_square_sum(Call& call) { return call.finish<SquareSum>(read_square_sum(call)); }
Made make_check_finite(Call& call) { return call.finish<CheckFinite>(read_check_finite(call)); }
Made make_clip_and_check(Call& call) {
  return call.finish<ClipAndCheck>(read_clip_and_check(call));
}

constexpr Row kRows[] = {
    {"dc.add_loss", make_add_loss},
    {"dc.clip_and_check", make_clip_and_check},
    {"dc.check_finite", make_check_finite},
    {"dc.square_sum", make_square_sum},
};

}  // namespace

AddLossOperands read_add_loss(Call& call) {
  const Dense sum = call.operand(0, DType::F64), loss = call.operand(1);
  call.require(base::is_floating(loss.dtype), "the loss must be a floating-point number");
  call.require(sum.count == 1 && loss.count == 1, "the loss and its sum must be single numbers");
  return {sum, loss};
}

SquareSumOperands read_square_sum(Call& call) {
  const Dense row = call.operand(0, DType::F64), g = call.operand(1),
              hyperparameters = call.operand(2, DType::F64);
  call.require(base::is_floating(g.dtype), "the gradient must be of a floating type");
  call.require(hyperparameters.count > base::kHyperGradScale, "the hyperparameters are too short");
  const int64_t columns = row.count, param = call.integer("param");
  const int64_t shard = call.integer("shard"), elements = call.integer("elements");
  const bool whole = call.integer("whole") != 0;
  call.require(columns == call.columns(0), "operand 0 must be this rank's row, not the table");
  if (call.ok()) {
    call.require(param >= 0 && param < columns - base::kTableExtra, "'param' is not a column");
    call.require(shard >= 0 && elements >= 0, "'shard' and 'elements' must not be negative");
  }
  if (!call.ok()) return {g, row, hyperparameters, {}, {}, 0};
  // The shards are those of the ranks along some axes; the ranks that hold the same one split it.
  const bool splits = call.has("axes");
  const uint32_t holders = splits ? call.axes("axes") : plan::kAllAxes;
  const int64_t part = splits ? call.integer("part") : shard;
  call.require(part >= 0 && part <= shard, "'part' is larger than a shard");
  if (!call.ok()) return {g, row, hyperparameters, {}, {}, 0};
  // Behind all elements where the product does not fit.
  const int64_t before =
      base::checked_mul(call.place(holders), shard).value_or(std::numeric_limits<int64_t>::max());
  const int64_t skipped =
      std::min(shard, base::checked_mul(call.place(~holders), part).value_or(shard));
  const int64_t valid = std::clamp<int64_t>(elements - before, 0, shard);  // of the shard
  const int64_t begin = valid > 0 && whole ? before : 0;
  const int64_t from = std::min(skipped, valid);
  const ElementRange counted = {begin + from, std::min(part, valid - from)};
  const bool decides = call.has("decides") && call.integer("decides") != 0;
  call.require(begin <= g.count && valid <= g.count - begin,
               "the gradient is shorter than this rank's range");
  return {g, row, hyperparameters, counted, decides ? ElementRange{begin, valid} : counted, param};
}

CheckFiniteOperands read_check_finite(Call& call) {
  const Dense scalars = call.operand(0, DType::F64), row = call.operand(1, DType::F64),
              losses = call.operand(2, DType::F64);
  const int64_t param = call.integer("param");
  call.require(param >= 0 && param < row.count - base::kTableExtra &&
                   param < scalars.count - base::kScalarFinite,
               "'param' is not a column");
  return {scalars, row, losses, param};
}

ClipAndCheckOperands read_clip_and_check(Call& call) {
  const Dense scalars = call.operand(0, DType::F64), table = call.operand(1, DType::F64),
              hyperparameters = call.operand(2, DType::F64);
  const int64_t columns = call.columns(1);
  const bool clip = call.integer("clip") != 0;
  call.require(columns >= base::kTableExtra, "the table has too few columns");
  if (!call.ok()) return {};
  const int64_t parameters = columns - base::kTableExtra;
  call.require(scalars.count - base::kScalarFinite >= parameters, "the scalars are too short");
  call.require(hyperparameters.count >= base::kHyperGroups, "the hyperparameters are too short");
  return {scalars, table, hyperparameters, table.count / columns, parameters, clip};
}

std::span<const Row> reduce_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
