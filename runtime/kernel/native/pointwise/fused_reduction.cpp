#include "runtime/kernel/native/pointwise/fused_reduction.h"

#include <algorithm>

namespace dc::runtime::kernel::native {

// The memory of one launch.
struct FusedReduction::Walk {
  Registers registers;
  Block block;
  Bases bases;
  std::array<std::byte*, base::Expression::kMostReductions> results;
  struct Buffer {
    alignas(64) std::byte lanes[kBlock * 8];
  };
  std::array<Buffer, base::Expression::kMostReductions> buffers;
  std::array<FusedFold::Work, base::Expression::kMostReductions> work;
};

// Elements that are computed before anything of them is folded.
struct FusedReduction::Part {
  const Offsets& at;   // of dims of rows but the innermost
  const Offsets& run;  // of dims of columns but the innermost
  int64_t row = 0, rows = 1;
  int64_t first = 0, n = 0;  // of each row
  int64_t to = 0;            // the first lane in the buffers
  bool is_first = false;     // of a row's operands nothing was read yet
};

void FusedReduction::run_from(device::Stream& stream, const Offsets& from) const {
  Walk walk;
  prepare(walk.block, walk.registers);
  walk.bases = resolve(stream, from);
  for (size_t i = 0; i < folds.size(); ++i) {
    const Side& result = folds[i].result;
    walk.results[i] =
        static_cast<std::byte*>(stream.resolve(result.data)) + from[result.tensor] * result.element;
  }
  by_rows ? walk_rows(walk) : walk_columns(walk);
}

void FusedReduction::walk_rows(Walk& walk) const {
  const bool is_short = along.is_row() && along.inner() <= kBlock;
  const int64_t n = along.inner();
  across.for_each_row([&](const Offsets& at) {
    in_blocks(across.inner(), [&](int64_t first, int64_t count) {
      for (int64_t i = 0; i < count; i += rows_at_once) {
        if (!is_short) {
          walk_long_row(walk, at, first + i, i);
          continue;
        }
        const int64_t rows = std::min(rows_at_once, count - i);
        evaluate(walk, {at, Offsets{}, first + i, rows, 0, n, 0, first + i == 0});
        for (size_t f = 0; f < folds.size(); ++f)
          folds[f].fold->fold_rows(walk.work[f], i, walk.buffers[folds[f].folded].lanes, rows, n);
      }
      store(walk, at, first, count);
    });
  });
}

void FusedReduction::walk_long_row(Walk& walk, const Offsets& at, int64_t row,
                                   int64_t result) const {
  int64_t filled = 0;
  const auto fold_buffers = [&] {
    for (size_t f = 0; f < folds.size(); ++f)
      folds[f].fold->add_to_row(walk.work[f], walk.buffers[folds[f].folded].lanes, filled);
    filled = 0;
  };
  for (size_t f = 0; f < folds.size(); ++f) folds[f].fold->begin_row(walk.work[f]);
  along.for_each_row([&](const Offsets& run) {
    for (int64_t first = 0, n = 0; first < along.inner(); first += n) {
      n = std::min(kBlock - filled, along.inner() - first);
      evaluate(walk, {at, run, row, 1, first, n, filled, row == 0 || !along.is_row()});
      filled += n;
      if (filled == kBlock) fold_buffers();
    }
  });
  if (filled > 0) fold_buffers();
  for (size_t f = 0; f < folds.size(); ++f) folds[f].fold->end_row(walk.work[f], result);
}

void FusedReduction::walk_columns(Walk& walk) const {
  along.for_each_row([&](const Offsets& run) {
    in_blocks(along.inner(), [&](int64_t first, int64_t n) {
      for (size_t f = 0; f < folds.size(); ++f) folds[f].fold->begin_columns(walk.work[f], n);
      across.for_each_row([&](const Offsets& at) {
        for (int64_t row = 0; row < across.inner(); row += rows_at_once) {
          const int64_t rows = std::min(rows_at_once, across.inner() - row);
          evaluate(walk, {at, run, row, rows, first, n, 0, row == 0});
          for (size_t f = 0; f < folds.size(); ++f) {
            const std::byte* lanes = walk.buffers[folds[f].folded].lanes;
            folds[f].fold->add_to_columns(walk.work[f], lanes, rows, n);
          }
        }
      });
      for (size_t f = 0; f < folds.size(); ++f) folds[f].fold->end_columns(walk.work[f], n);
      store(walk, run, first, n);
    });
  });
}

void FusedReduction::evaluate(Walk& walk, const Part& part) const {
  Block& block = walk.block;
  place(block, walk.bases, [&](const Side& side) {
    return (part.at[side.tensor] + part.run[side.tensor]) * side.element + part.row * side.step +
           part.first * side.stride;
  });
  for (size_t i = 0; i < folded.size(); ++i)
    block.slots[folded[i].slot] = walk.buffers[i].lanes + part.to * folded[i].lane_bytes;
  block.rows = part.rows;
  block.when = part.is_first ? Move::When::EachPlane : Move::When::EachRow;
  for (int64_t left = part.n; left > 0; left -= length) {
    block.length = std::min(length, left);
    run(block);
    block.when = Move::When::EachBlock;
    for (const Side& side : in_place) block.slots[side.slot] += length * side.stride;
    for (const Folded& value : folded) block.slots[value.slot] += length * value.lane_bytes;
  }
}

// Results from `first` on. `at`: of the dims that are kept.
void FusedReduction::store(const Walk& walk, const Offsets& at, int64_t first, int64_t n) const {
  for (size_t f = 0; f < folds.size(); ++f) {
    const Fold& fold = folds[f];
    std::byte* to =
        walk.results[f] + (at[fold.result.tensor] + first * fold.stride) * fold.result.element;
    fold.store(to, fold.stride, walk.work[f].results, n);
  }
}

}  // namespace dc::runtime::kernel::native
