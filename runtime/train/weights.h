// --weights: where parameters and buffers come from, and filling a rank's state with them before
// step 1.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/state_memory.h"
#include "runtime/checkpoint/state_parts.h"
#include "runtime/kernel/drawing.h"
#include "runtime/memory/disk_space.h"
#include "runtime/plan/plan.h"
#include "src/base/status.h"

namespace dc::runtime::train {

// The elements of one parameter or buffer, in logical (row-major) order.
class ElementSource {
 public:
  virtual ~ElementSource() = default;
  // Elements [first, first + count), rounded to `through`, then to `to`, side by side at `out`.
  virtual base::Status read(int64_t first, int64_t count, base::DType through, base::DType to,
                            void* out) const = 0;
  // How elements rounded to `through` are drawn; nothing where they are not. Then read() may be
  // called by several threads at once.
  virtual std::optional<kernel::Drawing> drawing(base::DType) const { return std::nullopt; }
};

// One source per parameter and per buffer of the plan; none is missing.
struct WeightSet {
  std::vector<std::unique_ptr<ElementSource>> parameters, buffers;
  std::string unused;  // a sentence about tensors that the plan has not; empty if there are none
  std::string left_behind;  // one about moments that weights do not carry; empty if there are none
};

struct WeightRequest {
  // The ranks of a job share the checksums of an archive among them: this rank checks every
  // world-th entry from its own number on. Rank 0 compares the archive's step with the plan's.
  int rank = 0;
  // Take what has the right name and shape: another step's archive, unused tensors.
  bool only_by_name = false;
};

// `text`: "init:SEED", "FILE.pt2", "FILE.safetensors", "NAME.index.json" or a folder with one of
// the last two. Lists all names that are missing (66), unfit (65), unused (76) or have no rule to
// draw by (65). An archive of another step than the plan's is refused (76).
base::Result<WeightSet> open_weights(const std::string& text, const plan::Plan& plan,
                                     const WeightRequest& request = {});

// The kinds behind open_weights().
base::Result<WeightSet> draw_weights(uint64_t seed, const plan::Plan& plan);
base::Result<WeightSet> open_archive_weights(const std::string& path, const plan::Plan& plan,
                                             const WeightRequest& request);
base::Result<WeightSet> open_tensor_weights(const std::string& path, const plan::Plan& plan,
                                            const WeightRequest& request);

// Fills every state tensor that has a source, and zeros behind a shard's last element; all memory
// is zero elsewhere, which is what the others start with.
base::Status fill_state(const plan::Plan& plan, const WeightSet& weights, int rank,
                        const checkpoint::StateMemory& memory);

// The state that is part of the plan alone.
base::Status fill_constants(const plan::Plan& plan, const checkpoint::StateMemory& memory);

}  // namespace dc::runtime::train
