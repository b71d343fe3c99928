// ProgramMemory: where the values of one program must be alive, as instants of the relaxation.
#pragma once

#include <vector>

#include "src/bound/program_view.h"
#include "src/bound/relaxation.h"
#include "src/bound/spine.h"

namespace dc::bound {

// Instants of one program at most.
inline constexpr int32_t kMostInstants = 300;

class ProgramMemory {
 public:
  // The program's instants are numbered from `offset` on. With `instants` 0 there are none.
  ProgramMemory(const ProgramView& program, int32_t offset, int32_t most_instants);

  const ProgramView& program;
  const Spine spine;

  int32_t begin() const { return offset_; }
  int32_t end() const { return offset_ + spine.count(); }
  // By the root of their bytes: nodes that read or write them, views and releases left out.
  const std::vector<ir::NodeId>& uses(ir::ValueId root) const { return uses_[root.index()]; }
  // Instants at which a kernel reads or makes the value, ascending.
  const std::vector<int32_t>& touches(ir::ValueId root) const { return touches_[root.index()]; }

  // The last instant of a kernel of the forward phase; before begin() if there is none.
  int32_t end_of_forward() const { return offset_ + last_forward_; }

  // First instant that comes after the node, last that comes before it, in every order.
  int32_t after(ir::NodeId node) const { return offset_ + spine.first_after(node); }
  int32_t before(ir::NodeId node) const { return offset_ + spine.last_before(node); }
  // Charges for the instants first ... last, without those that touch the root.
  void charge(std::vector<Charge>& charges, int32_t first, int32_t last, ir::ValueId root,
              double bytes) const;

 private:
  static std::vector<double> weights(const ProgramView& program);

  int32_t offset_, last_forward_ = -1;
  std::vector<std::vector<ir::NodeId>> uses_;  // by root
  std::vector<std::vector<int32_t>> touches_;  // by root
};

}  // namespace dc::bound
