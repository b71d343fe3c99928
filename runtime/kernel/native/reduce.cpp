// add_loss, square_sum, permit, finalize: from gradients and losses to the step's few scalars.
//
// Sums have a fixed order, so every machine and every sharding gets the same bits. The order of
// square_sum is: element i of a rank's range goes to lane i % 16; then the lanes are added in
// order. Ranges start at multiples of 32 elements, so a rank that holds the whole gradient adds up
// its range exactly as a rank that holds only the range.
#include <algorithm>
#include <cmath>

#include "runtime/kernel/native/convert.h"
#include "runtime/kernel/native/registry.h"
#include "runtime/kernel/native/vector_clones.h"
#include "src/base/step_scalars.h"

namespace dc::runtime::native {
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

class SquareSum final : public Kernel {
 public:
  SquareSum(const float* range, int64_t count, double* cell)
      : range_(range), count_(count), cell_(cell) {}
  base::Status launch() override {
    *cell_ = square_sum(range_, count_);
    return {};
  }

 private:
  const float* range_;
  int64_t count_;
  double* cell_;
};

class AddLoss final : public Kernel {
 public:
  AddLoss(Dense sum, Dense loss) : sum_(sum), loss_(loss) {}
  base::Status launch() override {
    double value = 0;
    if (loss_.dtype == DType::F32) value = *loss_.as<float>();
    if (loss_.dtype == DType::F64) value = *loss_.as<double>();
    if (loss_.dtype == DType::BF16) value = widen(*loss_.as<BF16>());
    if (loss_.dtype == DType::F16) value = widen(*loss_.as<F16>());
    *sum_.as<double>() += value;
    return {};
  }

 private:
  Dense sum_, loss_;
};

// Whether a range may be updated before all gradients are known.
class Permit final : public Kernel {
 public:
  Permit(double* allowed, const double* squares, const double* losses, int64_t ranks)
      : allowed_(allowed), squares_(squares), losses_(losses), ranks_(ranks) {}
  base::Status launch() override {
    const bool finite =
        std::isfinite(*squares_) &&
        std::all_of(losses_, losses_ + ranks_, [](double loss) { return std::isfinite(loss); });
    *allowed_ = finite ? 1 : 0;
    return {};
  }

 private:
  double* allowed_;
  const double *squares_, *losses_;
  int64_t ranks_;
};

struct FinalizeOperands {
  double* scalars;
  const double* table;
  const double* slots;
  int64_t ranks, parameters;
  bool clip;

  double column(int64_t index) const {
    const int64_t width = parameters + base::kTableExtra;
    double sum = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) sum += table[rank * width + index];
    return sum;
  }
};

class Finalize final : public Kernel {
 public:
  explicit Finalize(const FinalizeOperands& o) : o_(o) {}

  base::Status launch() override {
    const double loss =
        o_.column(o_.parameters + base::kTableLoss) / o_.slots[base::kSlotLossDivisor];
    const bool loss_finite = std::isfinite(loss);
    double* allowed = o_.scalars + base::kScalarFinite;
    bool all_finite = loss_finite;
    double squares = 0;
    for (int64_t p = 0; p < o_.parameters; ++p) {
      const double column = o_.column(p);
      squares += column;
      all_finite = all_finite && std::isfinite(column);
      allowed[p] = loss_finite && std::isfinite(column) ? 1 : 0;
    }
    if (o_.clip) std::fill_n(allowed, o_.parameters, all_finite ? 1.0 : 0.0);
    const double norm = std::sqrt(squares);
    o_.scalars[base::kScalarNorm] = norm;
    o_.scalars[base::kScalarClip] =
        o_.clip ? std::min(1.0, o_.slots[base::kSlotClipNorm] / (norm + 1e-6)) : 1.0;
    o_.scalars[base::kScalarLoss] = loss;
    o_.scalars[base::kScalarAllFinite] = all_finite ? 1 : 0;
    o_.scalars[base::kScalarStop] = o_.column(o_.parameters + base::kTableStop);
    return {};
  }

 private:
  FinalizeOperands o_;
};

}  // namespace

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
  if (!call.ok()) return call.finish<SquareSum>(nullptr, 0, nullptr);
  const int64_t valid = std::clamp<int64_t>(elements - call.rank() * shard, 0, shard);
  const int64_t start = whole && valid > 0 ? call.rank() * shard : 0;
  call.require(start + valid <= g.count, "the gradient is shorter than this rank's range");
  double* cell = row.as<double>() + param;
  return call.finish<SquareSum>(g.as<float>() + start, valid, cell);
}

Made make_permit(Call& call) {
  const Dense scalars = call.operand(0, DType::F64), row = call.operand(1, DType::F64),
              losses = call.operand(2, DType::F64);
  const int64_t param = call.integer("param");
  call.require(param >= 0 && param < row.count - base::kTableExtra &&
                   base::kScalarFinite + param < scalars.count,
               "'param' is not a column");
  if (!call.ok()) return call.finish<Permit>(nullptr, nullptr, nullptr, 0);
  return call.finish<Permit>(scalars.as<double>() + base::kScalarFinite + param,
                             row.as<double>() + param, losses.as<double>(), losses.count);
}

Made make_finalize(Call& call) {
  const Dense scalars = call.operand(0, DType::F64), table = call.operand(1, DType::F64),
              slots = call.operand(2, DType::F64);
  const int64_t columns = call.columns(1);
  const bool clip = call.integer("clip") != 0;
  call.require(columns >= base::kTableExtra, "the table has too few columns");
  if (!call.ok()) return call.finish<Finalize>(FinalizeOperands{});
  const int64_t parameters = columns - base::kTableExtra;
  call.require(scalars.count >= base::kScalarFinite + parameters, "the scalars are too short");
  call.require(slots.count >= base::kSlotGroups, "the slots are too short");
  return call.finish<Finalize>(FinalizeOperands{scalars.as<double>(), table.as<double>(),
                                                slots.as<double>(), table.count / columns,
                                                parameters, clip});
}

}  // namespace dc::runtime::native
