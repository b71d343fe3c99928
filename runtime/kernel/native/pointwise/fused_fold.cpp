#include "runtime/kernel/native/pointwise/fused_fold.h"

#include <algorithm>

#include "runtime/kernel/native/reductions/reduce.h"

namespace dc::runtime::kernel::native {
namespace {

template <typename Fold, typename T>
class FusedFoldOf final : public FusedFold {
  using Total = typename Fold::Total;

 public:
  FusedFoldOf(double divisor, int64_t count) : divisor_(divisor), many_(count > kRowsInLanes) {}

  void fold_rows(Work& work, int64_t first, const void* lanes, int64_t rows,
                 int64_t n) const override {
    T* results = results_of(work) + first;
    const auto* x = static_cast<const T*>(lanes);
    n <= kFoldLanes / 2 ? fold_few_chunks<Fold, T>(results, x, n, rows, n)
                        : fold_long_chunks<Fold, T>(results, x, n, rows, n);
    finish_all<Fold>(results, rows, divisor_);
  }

  void begin_row(Work& work) const override {
    *totals_of(work) = static_cast<Total>(Fold::neutral());
  }
  void add_to_row(Work& work, const void* lanes, int64_t n) const override {
    Total& total = *totals_of(work);
    total = Fold::join_totals(total, fold_chunk<Fold, T>(static_cast<const T*>(lanes), n));
  }
  void end_row(Work& work, int64_t result) const override {
    results_of(work)[result] = finished<Fold, T>(*totals_of(work), divisor_);
  }

  void begin_columns(Work& work, int64_t n) const override {
    work.rows = 0;
    std::fill_n(results_of(work), n, Fold::neutral());
    if (many_) std::fill_n(totals_of(work), n, static_cast<Total>(Fold::neutral()));
  }
  void add_to_columns(Work& work, const void* lanes, int64_t rows, int64_t n) const override {
    const auto* x = static_cast<const T*>(lanes);
    while (rows > 0) {
      const int64_t some = std::min(rows, kRowsInLanes - work.rows);
      fold_columns<Fold, T>(results_of(work), x, n, some, n);
      x += some * n;
      rows -= some;
      work.rows += some;
      if (work.rows == kRowsInLanes) flush(work, n);
    }
  }
  void end_columns(Work& work, int64_t n) const override {
    flush(work, n);
    T* results = results_of(work);
    if (!many_) return finish_all<Fold>(results, n, divisor_);
    for (int64_t i = 0; i < n; ++i) results[i] = finished<Fold, T>(totals_of(work)[i], divisor_);
  }

 private:
  static T* results_of(Work& work) { return reinterpret_cast<T*>(work.results); }
  static Total* totals_of(Work& work) { return reinterpret_cast<Total*>(work.totals); }
  void flush(Work& work, int64_t n) const {
    if (many_) join_to_totals<Fold, T>(totals_of(work), results_of(work), n);
    work.rows = 0;
  }

  double divisor_;
  bool many_;  // so that totals are needed
};

template <template <typename> class Fold>
std::unique_ptr<FusedFold> fold_in(Lane lane, double divisor, int64_t count) {
  if (lane == Lane::F32) return std::make_unique<FusedFoldOf<Fold<float>, float>>(divisor, count);
  if (lane == Lane::F64) return std::make_unique<FusedFoldOf<Fold<double>, double>>(divisor, count);
  return std::make_unique<FusedFoldOf<Fold<int64_t>, int64_t>>(divisor, count);
}

}  // namespace

std::unique_ptr<FusedFold> fused_fold(std::string_view overload, Lane lane, int64_t count,
                                      base::DType to) {
  if (overload.starts_with("sum.") && to == base::DType::Bool)
    return fold_in<AnyFold>(lane, 1, count);
  if (overload.starts_with("sum.")) return fold_in<SumFold>(lane, 1, count);
  if (overload.starts_with("mean."))
    return fold_in<SumFold>(lane, static_cast<double>(count), count);
  const bool takes_largest = overload.starts_with("amax.");
  return takes_largest ? fold_in<MaxFold>(lane, 1, count) : fold_in<MinFold>(lane, 1, count);
}

}  // namespace dc::runtime::kernel::native
