// Touches: which nodes read or write each storage, so that "the next one that does" need not be
// looked for node by node.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/analysis/storage.h"
#include "src/ir/step.h"

namespace dc::schedule {

class Touches {
 public:
  Touches(const ir::Step& step, const ir::Graph& graph, const analysis::StorageMap& storages,
          const std::vector<ir::NodeId>& order);

  // Positions in `order` of the nodes with an operand in the storage, ascending. Square sums are
  // listed apart: all of them write one row, each its own element.
  std::span<const int32_t> by_square_sums(int64_t key) const { return square_sums_.of(slot(key)); }
  std::span<const int32_t> by_others(int64_t key) const { return others_.of(slot(key)); }

 private:
  struct Lists {
    std::vector<size_t> first;  // by storage, and the end
    std::vector<int32_t> positions;
    std::span<const int32_t> of(size_t slot) const {
      return {positions.data() + first[slot], first[slot + 1] - first[slot]};
    }
  };
  size_t slot(int64_t key) const {
    return key < 0 ? static_cast<size_t>(-1 - key) : state_ + static_cast<size_t>(key);
  }

  size_t state_;  // entries
  Lists square_sums_, others_;
};

}  // namespace dc::schedule
