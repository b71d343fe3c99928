#include "runtime/checkpoint/restore.h"

#include <algorithm>
#include <set>

#include "runtime/plan/names.h"
#include "src/base/shape.h"

namespace dc::runtime::checkpoint {
namespace {

using base::ErrorKind;
using base::Status;

constexpr size_t kShown = 6;

// The value of the checkpoint that a part is filled from.
ValueId source_of(const CheckpointReader& checkpoint, const ValueId& wanted) {
  ValueId id = wanted;
  if (id.rank >= 0) id.rank %= checkpoint.run().world;
  if (id.kind != ValueKind::Buffer || checkpoint.find(id) != nullptr) return id;
  // A plan that writes the buffer saves one per rank; a plan that only reads it saves one for all.
  id.rank = id.rank < 0 ? 0 : -1;
  return id;
}

// Whether the checkpoint records which model it is of. One converted from PyTorch's state has no
// digest: names, types and shapes decide then, as for a file of weights.
bool names_a_model(const RunState& run) {
  return !run.model_digest.empty() || !run.step_digest.empty();
}

Status foreign(const CheckpointReader& checkpoint, const std::string& what) {
  return Status(ErrorKind::Mismatch, "DC6841",
                checkpoint.path() + " cannot be resumed by this plan: " + what +
                    "; start from its parameters alone with --weights " + checkpoint.path() + "/" +
                    std::string(kWeightsName) + ", or give the plan of its model");
}

Status fill(CheckpointReader& checkpoint, const StatePart& part, int64_t elements,
            const StateMemory& memory) {
  const ValueId id = source_of(checkpoint, part.piece.value);
  const int64_t bytes = base::byte_size(part.piece.dtype);
  std::vector<std::byte> chunk(static_cast<size_t>(StateMemory::kChunkElements * bytes));
  for (int64_t done = 0; done < part.piece.count; done += StateMemory::kChunkElements) {
    const int64_t count = std::min(StateMemory::kChunkElements, part.piece.count - done);
    DC_RETURN_IF_ERROR(checkpoint.read(id, part.piece.first + done, count, chunk.data()));
    DC_RETURN_IF_ERROR(memory.write(part.tensor, done, count, chunk.data()));
  }
  std::fill(chunk.begin(), chunk.end(), std::byte{0});
  for (int64_t done = part.piece.count; done < elements; done += StateMemory::kChunkElements) {
    const int64_t count = std::min(StateMemory::kChunkElements, elements - done);
    DC_RETURN_IF_ERROR(memory.write(part.tensor, done, count, chunk.data()));
  }
  return base::ok_status();
}

}  // namespace

Status check_fits(const plan::Plan& plan, const CheckpointReader& checkpoint,
                  const std::vector<StatePart>& parts) {
  const RunState& run = checkpoint.run();
  const bool same_archive = !plan.step_digest.empty() && plan.step_digest == run.step_digest;
  if (names_a_model(run) && plan.model_digest != run.model_digest && !same_archive) {
    return foreign(checkpoint, "it is of another model (" + run.model_digest.substr(0, 12) +
                                   ", the plan's is " + plan.model_digest.substr(0, 12) + ")");
  }
  if (run.optimizer != plan::name(plan.optimizer.kind)) {
    return foreign(checkpoint, "its optimizer is " + run.optimizer + ", the plan's " +
                                   std::string(plan::name(plan.optimizer.kind)));
  }
  std::set<std::string> wrong;
  for (const StatePart& part : parts) {
    if (part.piece.numel() == 0) continue;  // no piece can hold it
    const ValueId& wanted = part.piece.value;
    const CheckpointReader::Value* value = checkpoint.find(source_of(checkpoint, wanted));
    if (value == nullptr) {
      wrong.insert("it lacks " + describe(wanted));
    } else if (value->dtype != part.piece.dtype || value->sizes != part.piece.sizes) {
      wrong.insert(describe(wanted) + " is " + std::string(base::name(value->dtype)) +
                   base::shape_text(value->sizes) + " where the plan has " +
                   std::string(base::name(part.piece.dtype)) + base::shape_text(part.piece.sizes));
    }
  }
  if (wrong.empty()) return base::ok_status();
  std::string text;
  size_t shown = 0;
  for (const std::string& one : wrong) {
    if (shown++ < kShown) text += (text.empty() ? "" : "; ") + one;
  }
  if (wrong.size() > kShown) text += "; and " + std::to_string(wrong.size() - kShown) + " more";
  return foreign(checkpoint, text);
}

Status restore_state(const plan::Plan& plan, CheckpointReader& checkpoint,
                     const std::vector<StatePart>& parts, const StateMemory& memory) {
  for (const StatePart& part : parts) {
    int64_t elements = 1;
    for (const int64_t size : plan.tensors[static_cast<size_t>(part.tensor)].sizes) {
      elements *= size;
    }
    Status status = fill(checkpoint, part, elements, memory);
    if (!status.ok()) {
      return std::move(status).add_context("while resuming " + describe(part.piece.value));
    }
  }
  return base::ok_status();
}

}  // namespace dc::runtime::checkpoint
