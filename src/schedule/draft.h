// Draft: the decisions of one program that memory pays for, apart from the program: which
// parameters stay whole between their gathers, and which activations are kept that the program
// makes again. Each is an item that is taken or not; time and bytes of any set are worked out from
// the set before.
//
// The program stands with all of them made and gathered again; taking an item only removes nodes
// and lengthens lives. So every node keeps its place, and a set is as many bits as there are items.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/cost/cost_model.h"
#include "src/ir/step.h"

namespace dc::schedule {

struct DraftItem {
  bool is_parameter = false;  // else what one kernel made
  ir::NodeId node;            // done of the first gather; kernel of the forward phase
  int64_t bytes = 0;          // held while the item is taken
  base::Nanos saved;          // of the kernel made again, of the other gathers alone
  int alike = 0;              // equal for items of the same kernel or the same gathers
  int32_t position = 0;       // in the forward phase
};

class Draft {
 public:
  // False where nodes other than compute's kernels, collectives and copies run concurrently, or
  // where transfers cross the end of the step: nothing of that is a draft yet.
  static bool can_hold(const ir::Program& program);

  // Of a scheduled program, with no item taken. The references must outlive it.
  Draft(const ir::Step& step, const ir::Graph& graph, const cost::CostModel& cost);
  ~Draft();

  const std::vector<DraftItem>& items() const;
  bool is_taken(size_t item) const;
  // Taken, and something reads it: the kernel before one that is kept need not be.
  bool is_kept(size_t item) const;
  // Takes the item, or gives it back.
  void toggle(size_t item);

  // Transients and scratch of the device at the position where most are, as
  // analysis::live_bytes() would count them.
  int64_t most_bytes() const;
  // One run of the program, as sim::simulate() would play it, after the toggles since the last
  // accept().
  base::Nanos time();
  // Kernels, and collectives alone, of what is there.
  base::Nanos work() const;
  void accept();  // after time()
  void reject();  // toggles back

  // Does to the program what the items taken say. `graph` is the draft's, or a clone.
  void carry_out(ir::Graph& graph) const;

 private:
  std::unique_ptr<class DraftProgram> program_;
};

}  // namespace dc::schedule
