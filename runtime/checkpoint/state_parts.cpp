#include "runtime/checkpoint/state_parts.h"

#include "runtime/plan/extent.h"
#include "runtime/plan/saved_state.h"
#include "runtime/plan/state_entries.h"

namespace dc::runtime::checkpoint {
namespace {

using base::Result;
using base::Status;
using plan::StateRole;

class PartFinder {
 public:
  PartFinder(const plan::Plan& plan, int rank) : plan_(plan), saved_(plan), rank_(rank) {}

  Result<std::vector<StatePart>> to_load() const {
    std::vector<StatePart> parts;
    for (const plan::StateEntry& entry : plan_.state) {
      DC_RETURN_IF_ERROR(check(entry));
      if (saved_.holds(entry)) parts.push_back(whole_entry(entry));
    }
    return parts;
  }

  Result<std::vector<StatePart>> to_save() const {
    std::vector<StatePart> parts;
    for (const plan::StateEntry& entry : plan_.state) {
      DC_RETURN_IF_ERROR(check(entry));
      if (!saved_.takes(entry)) continue;
      StatePart part = whole_entry(entry);
      const plan::ElementRange range = saved_.range(entry, rank_);
      // In a tensor that holds the whole value the range begins further on.
      part.tensor_first = range.first - part.piece.first;
      part.piece.first = range.first;
      part.piece.count = range.count;
      parts.push_back(std::move(part));
    }
    return parts;
  }

 private:
  static Status check(const plan::StateEntry& entry) {
    if (entry.role != StateRole::Unknown) return base::ok_status();
    return Status(base::ErrorKind::Mismatch, "DC6821",
                  "the plan does not say what its state '" + entry.name +
                      "' is for, so it cannot be saved or resumed; compile it again");
  }

  StatePart whole_entry(const plan::StateEntry& entry) const {
    StatePart part;
    part.tensor = entry.tensor;
    part.piece.value.kind = *saved_.kind(entry);
    part.piece.dtype = plan_.tensors[static_cast<size_t>(entry.tensor)].dtype;
    if (part.piece.value.kind == ValueKind::Buffer) {
      const plan::Buffer& buffer = plan_.buffers[static_cast<size_t>(entry.buffer)];
      part.piece.value.fqn = buffer.fqn;
      part.piece.sizes = buffer.sizes;
      part.is_persistent = buffer.persistent;
      if (saved_.is_per_rank(entry)) part.piece.value.rank = rank_;
      part.piece.count = plan::element_count(buffer.sizes).value();
      return part;
    }
    const plan::Parameter& parameter = plan_.parameters[static_cast<size_t>(entry.parameter)];
    part.piece.value.fqn = parameter.fqn;
    part.piece.sizes = parameter.sizes;
    const plan::ElementRange range =
        plan::held_elements(plan_, entry, plan::element_count(parameter.sizes).value(), rank_);
    part.piece.first = range.first;
    part.piece.count = range.count;
    return part;
  }

  const plan::Plan& plan_;
  plan::SavedState saved_;
  int rank_;
};

}  // namespace

Result<std::vector<StatePart>> parts_to_save(const plan::Plan& plan, int rank) {
  return PartFinder(plan, rank).to_save();
}

Result<std::vector<StatePart>> parts_to_load(const plan::Plan& plan, int rank) {
  return PartFinder(plan, rank).to_load();
}

}  // namespace dc::runtime::checkpoint
