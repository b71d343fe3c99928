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
#include "runtime/kernel/native/registry.h"
#include "runtime/kernel/native/vector_clones.h"
#include "src/base/checked.h"
#include "src/base/step_scalars.h"

namespace dc::runtime::kernel::native {
namespace {

using base::DType;
constexpr int64_t kLanes = 16;

DC_VECTOR_CLONES double square_sum(const float* g, int64_t n) {
  double lanes[kLanes] = {};
  const int64_t full = n - n % kLanes;
  for (int64_t i = 0; i < full; i += kLanes) {
#pragma GCC unroll 16
    for (int64_t k = 0; k < kLanes; ++k) {
      const double x = static_cast<double>(g[i + k]);
      lanes[k] += x * x;
    }
  }
  for (int64_t i = full; i < n; ++i) {
    const double x = static_cast<double>(g[i]);
    lanes[i - full] += x * x;
  }
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

struct ElementRange {
  int64_t first = 0, count = 0;
};

class SquareSum final : public Kernel {
 public:
  // `counted` is what the sum is of; in `checked`, which holds it, no element may be infinite or
  // NaN, or the sum is neither finite.
  SquareSum(Dense g, ElementRange counted, ElementRange checked, Dense row, int64_t cell)
      : g_(g), row_(row), counted_(counted), checked_(checked), cell_(cell) {}
  base::Status launch(device::Stream& stream) override {
    const auto* g = g_.on<const float>(stream);
    double sum = square_sum(g + counted_.first, counted_.count);
    const int64_t behind = counted_.first + counted_.count;
    const double others = square_sum(g + checked_.first, counted_.first - checked_.first) +
                          square_sum(g + behind, checked_.first + checked_.count - behind);
    if (!std::isfinite(others)) sum += others;
    row_.on<double>(stream)[cell_] = sum;
    return {};
  }

 private:
  Dense g_, row_;
  ElementRange counted_, checked_;
  int64_t cell_;
};

class AddLoss final : public Kernel {
 public:
  AddLoss(Dense sum, Dense loss) : sum_(sum), loss_(loss) {}
  base::Status launch(device::Stream& stream) override {
    double value = 0;
    if (loss_.dtype == DType::F32) value = *loss_.on<float>(stream);
    if (loss_.dtype == DType::F64) value = *loss_.on<double>(stream);
    if (loss_.dtype == DType::BF16) value = widen(*loss_.on<BF16>(stream));
    if (loss_.dtype == DType::F16) value = widen(*loss_.on<F16>(stream));
    *sum_.on<double>(stream) += value;
    return {};
  }

 private:
  Dense sum_, loss_;
};

// Whether a range may be updated before all gradients are known.
class CheckFinite final : public Kernel {
 public:
  CheckFinite(Dense scalars, Dense row, Dense losses, int64_t param)
      : scalars_(scalars), row_(row), losses_(losses), param_(param) {}
  base::Status launch(device::Stream& stream) override {
    const auto* losses = losses_.on<const double>(stream);
    const bool finite = std::isfinite(row_.on<const double>(stream)[param_]) &&
                        std::all_of(losses, losses + losses_.count,
                                    [](double loss) { return std::isfinite(loss); });
    scalars_.on<double>(stream)[base::kScalarFinite + param_] = finite ? 1 : 0;
    return {};
  }

 private:
  Dense scalars_, row_, losses_;
  int64_t param_;
};

struct ClipAndCheckOperands {
  Dense scalars, table, hyperparameters;
  int64_t ranks = 0, parameters = 0;
  bool clip = false;
};

class ClipAndCheck final : public Kernel {
 public:
  explicit ClipAndCheck(const ClipAndCheckOperands& o) : o_(o) {}

  base::Status launch(device::Stream& stream) override {
    const auto* table = o_.table.on<const double>(stream);
    const auto* hyperparameters = o_.hyperparameters.on<const double>(stream);
    auto* scalars = o_.scalars.on<double>(stream);
    const double loss =
        column(table, o_.parameters + base::kTableLoss) / hyperparameters[base::kHyperLossDivisor];
    const bool loss_finite = std::isfinite(loss);
    double* allowed = scalars + base::kScalarFinite;
    bool all_finite = loss_finite;
    double squares = 0;
    for (int64_t p = 0; p < o_.parameters; ++p) {
      const double column = this->column(table, p);
      squares += column;
      all_finite = all_finite && std::isfinite(column);
      allowed[p] = loss_finite && std::isfinite(column) ? 1 : 0;
    }
    if (o_.clip) std::fill_n(allowed, o_.parameters, all_finite ? 1.0 : 0.0);
    const double norm = std::sqrt(squares);
    scalars[base::kScalarNorm] = norm;
    scalars[base::kScalarClip] =
        o_.clip ? std::min(1.0, hyperparameters[base::kHyperClipNorm] / (norm + 1e-6)) : 1.0;
    scalars[base::kScalarLoss] = loss;
    scalars[base::kScalarAllFinite] = all_finite ? 1 : 0;
    scalars[base::kScalarStop] = column(table, o_.parameters + base::kTableStop);
    return {};
  }

 private:
  double column(const double* table, int64_t index) const {
    const int64_t width = o_.parameters + base::kTableExtra;
    double sum = 0;
    for (int64_t rank = 0; rank < o_.ranks; ++rank) sum += table[rank * width + index];
    return sum;
  }

  ClipAndCheckOperands o_;
};

Made make_add_loss(Call& call) {
  const Dense sum = call.operand(0, DType::F64), loss = call.operand(1);
  call.require(base::is_floating(loss.dtype), "the loss must be a floating-point number");
  call.require(sum.count == 1 && loss.count == 1, "the loss and its sum must be single numbers");
  return call.finish<AddLoss>(sum, loss);
}

Made make_square_sum(Call& call) {
  const Dense row = call.operand(0, DType::F64), g = call.operand(1, DType::F32);
  const int64_t columns = row.count, param = call.integer("param");
  const int64_t shard = call.integer("shard"), elements = call.integer("elements");
  const bool whole = call.integer("whole") != 0;
  call.require(columns == call.columns(0), "operand 0 must be this rank's row, not the table");
  if (call.ok()) {
    call.require(param >= 0 && param < columns - base::kTableExtra, "'param' is not a column");
    call.require(shard >= 0 && elements >= 0, "'shard' and 'elements' must not be negative");
  }
  if (!call.ok()) return call.finish<SquareSum>(g, ElementRange{}, ElementRange{}, row, 0);
  // The shards are those of the ranks along some axes; the ranks that hold the same one split it.
  const bool splits = call.has("axes");
  const uint32_t holders = splits ? call.axes("axes") : plan::kAllAxes;
  const int64_t part = splits ? call.integer("part") : shard;
  call.require(part >= 0 && part <= shard, "'part' is larger than a shard");
  if (!call.ok()) return call.finish<SquareSum>(g, ElementRange{}, ElementRange{}, row, 0);
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
  return call.finish<SquareSum>(g, counted, decides ? ElementRange{begin, valid} : counted, row,
                                param);
}

Made make_check_finite(Call& call) {
  const Dense scalars = call.operand(0, DType::F64), row = call.operand(1, DType::F64),
              losses = call.operand(2, DType::F64);
  const int64_t param = call.integer("param");
  call.require(param >= 0 && param < row.count - base::kTableExtra &&
                   param < scalars.count - base::kScalarFinite,
               "'param' is not a column");
  return call.finish<CheckFinite>(scalars, row, losses, param);
}

Made make_clip_and_check(Call& call) {
  const Dense scalars = call.operand(0, DType::F64), table = call.operand(1, DType::F64),
              hyperparameters = call.operand(2, DType::F64);
  const int64_t columns = call.columns(1);
  const bool clip = call.integer("clip") != 0;
  call.require(columns >= base::kTableExtra, "the table has too few columns");
  if (!call.ok()) return call.finish<ClipAndCheck>(ClipAndCheckOperands{});
  const int64_t parameters = columns - base::kTableExtra;
  call.require(scalars.count - base::kScalarFinite >= parameters, "the scalars are too short");
  call.require(hyperparameters.count >= base::kHyperGroups, "the hyperparameters are too short");
  return call.finish<ClipAndCheck>(ClipAndCheckOperands{scalars, table, hyperparameters,
                                                        table.count / columns, parameters, clip});
}

constexpr Row kRows[] = {
    {"dc.add_loss", make_add_loss},
    {"dc.clip_and_check", make_clip_and_check},
    {"dc.check_finite", make_check_finite},
    {"dc.square_sum", make_square_sum},
};

}  // namespace

std::span<const Row> reduce_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
