// What of a plan's state a checkpoint holds, and which part of it each rank saves: every element of
// a value once over all ranks (several ranks with the same elements save a part of them each),
// buffers that the step writes once for each rank.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_set>

#include "runtime/plan/plan.h"
#include "runtime/plan/state_entries.h"

namespace dc::runtime::plan {

// What kind of value of the training state a checkpoint holds.
enum class ValueKind : uint8_t { Parameter, Master, Moment1, Moment2, Momentum, Buffer };
// The flat shard of `rank`, of a value of `elements` elements with shards of `shard` (0: the whole
// is rank 0's).
ElementRange own_range(int64_t elements, int64_t shard, int32_t rank);

class SavedState {
 public:
  explicit SavedState(const Plan& plan);

  // What the entry's value is to a checkpoint; nothing where none has it, because it follows from
  // the rest: carried copies, accumulated gradients, constants, scalars. A master of the
  // parameter's own dtype is a copy of the parameter.
  std::optional<ValueKind> kind(const StateEntry& entry) const;
  // Whether the entry has a value that a checkpoint holds: it has a kind() and is no constant.
  bool holds(const StateEntry& entry) const;
  // Whether a checkpoint saves the value from this entry. If a parameter has both a whole entry
  // and a shard entry, the shard is saved, because the whole value may be older than the shard; a
  // copy of the parameter is not.
  bool takes(const StateEntry& entry) const;
  // Whether each rank has a value for itself: a buffer that the step writes.
  bool is_per_rank(const StateEntry& entry) const;
  // What `rank` saves of an entry that takes() accepts.
  ElementRange range(const StateEntry& entry, int32_t rank) const;

 private:
  bool is_written(const StateEntry& entry) const;
  bool is_copy(const StateEntry& entry) const;
  const Plan& plan_;
  ParameterStates states_;
  std::unordered_set<int32_t> written_;  // slices; looked up only
};

// Bytes of the copy that `dcrun --save-every` keeps of what `rank` saves, so as to write it while
// the next steps run. What is on disk is not copied. Rank 0's is the largest.
int64_t copy_bytes(const Plan& plan, int32_t rank);
// Of each part of that copy.
inline constexpr int64_t kCopyAlignment = 64;

}  // namespace dc::runtime::plan
