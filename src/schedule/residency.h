// Residency: parameters that are gathered several times in a step, and how to gather one once and
// keep it whole. Which ones is the business of the passes that use this.
#pragma once

#include <algorithm>
#include <vector>

#include "src/base/remark.h"
#include "src/schedule/time_axis.h"

namespace dc::schedule {

struct Gather {
  ir::NodeId cast, start, done, release;  // cast: of the shard, if it travels in a smaller type
};

// A parameter with more than one gather per step.
struct ResidencyCandidate {
  int entry = -1;                            // of the shard
  std::vector<std::vector<Gather>> gathers;  // by program, in the order of their dones
  int64_t bytes = 0;                         // of the whole value
  base::Nanos time;                          // of all its gathers, per step
  base::Nanos saved;                         // if it is gathered once
};

class Residency {
 public:
  Residency(ir::Step& step, const cost::CostModel& cost);

  const std::vector<ResidencyCandidate>& candidates() const { return candidates_; }
  int64_t kept_bytes() const { return kept_bytes_; }  // by an earlier pass
  std::vector<TimeAxis>& axes() { return axes_; }     // by program

  // Calls visit(axis, position) wherever the value would be alive but is not yet.
  template <typename Visit>
  void for_each_new_position(const ResidencyCandidate& candidate, Visit visit) {
    for (size_t p = 0; p < axes_.size(); ++p) {
      TimeAxis& axis = axes_[p];
      const std::vector<Gather>& gathers = candidate.gathers[p];
      const bool carried = step_.accumulation > 1;
      int32_t at = carried || gathers.empty() ? 0 : axis.position(gathers[0].start);
      const auto count = static_cast<int32_t>(axis.live.order.size());
      for (const Gather& gather : gathers) {
        for (; at < axis.position(gather.start); ++at) visit(axis, at);
        at = std::max(at, axis.position(gather.release) + 1);
      }
      for (; carried && at < count; ++at) visit(axis, at);
    }
  }

  // Gathers each of them once. With one program the first gather lives until the last use. With
  // micro-batches the whole value becomes carried state: the first micro-batch, a program of its
  // own from now on, gathers into it, the others read it. Call it once.
  void keep(const std::vector<const ResidencyCandidate*>& chosen);

 private:
  void find_candidates();
  int shard_entry(size_t program, const ir::Node& start) const;
  bool is_carried(size_t program, const ir::Node& start) const;
  int64_t whole_bytes(const ir::Graph& graph, const ir::Node& start) const;
  bool peel_first_micro_batch();
  void keep_in_one_program(const ResidencyCandidate& candidate);
  void carry(const std::vector<const ResidencyCandidate*>& chosen, bool peeled);
  int add_carried(const ResidencyCandidate& candidate);

  ir::Step& step_;
  const cost::CostModel& cost_;
  std::vector<TimeAxis> axes_;
  std::vector<ResidencyCandidate> candidates_;  // by entry
  int64_t kept_bytes_ = 0;
};

// The parameters that candidates are copies of, as a remark names them.
std::vector<base::RemarkSubject> parameters_of(
    const ir::Step& step, const std::vector<const ResidencyCandidate*>& candidates);

}  // namespace dc::schedule
