#include "runtime/train/resuming.h"

#include <algorithm>
#include <filesystem>

#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/restore.h"
#include "runtime/comm/agreement.h"
#include "runtime/train/train.h"

namespace dc::runtime::train {
namespace {

using base::ErrorKind;
using base::JsonValue;
using base::Result;
using base::Status;

// The newest other checkpoint of the same folder that is whole to the last byte and fits.
std::string last_good(const std::string& path, const plan::Plan& plan,
                      const std::vector<checkpoint::StatePart>& parts) {
  // Whether the path ends in a slash or not.
  const std::string root = (std::filesystem::path(path) / "..").lexically_normal().string();
  const std::vector<checkpoint::StoredCheckpoint> all =
      checkpoint::CheckpointFolder(root.empty() ? "." : root).list();
  for (auto other = all.rbegin(); other != all.rend(); ++other) {
    std::error_code none;
    if (std::filesystem::equivalent(other->path, path, none)) continue;
    auto reader = checkpoint::CheckpointReader::open(other->path);
    const bool good = reader.ok() && checkpoint::check_fits(plan, **reader, parts).ok() &&
                      (*reader)->verify().ok();
    if (good) return other->path;
  }
  return "";
}

Status with_offer(Status status, const std::string& path, const plan::Plan& plan,
                  const std::vector<checkpoint::StatePart>& parts) {
  if (status.ok()) return status;
  const std::string other = last_good(path, plan, parts);
  return std::move(status).add_context(other.empty() ? "its folder has no other checkpoint"
                                                     : "the last good one is " + other +
                                                           ": use --resume " + other);
}

// Rank 0 chooses, so that all take the same.
Result<std::string> choose(const std::string& from, const std::string& save,
                           comm::Communicator& control) {
  std::string path;
  Status status;
  if (control.rank().v == 0) {
    const bool latest = from == kLatest;
    if (latest) {
      const auto all = checkpoint::CheckpointFolder(save).list();
      if (!all.empty()) path = all.back().path;
    } else {
      auto found = checkpoint::find_checkpoint(from);
      if (found.ok()) path = *found;
      if (!found.ok()) status = std::move(found).status();
    }
  }
  DC_RETURN_IF_ERROR(comm::agree(control, std::move(status), "looking for a checkpoint"));
  return comm::broadcast_text(control, path);
}

std::string shown(const JsonValue& value) {
  return value.is_string() ? *value.to_string() : value.dump();
}

}  // namespace

Result<std::unique_ptr<Resuming>> Resuming::open(const std::string& from, const std::string& save,
                                                 const plan::Plan& plan,
                                                 comm::Communicator& control) {
  DC_ASSIGN_OR_RETURN(const std::string path, choose(from, save, control));
  if (path.empty()) return std::unique_ptr<Resuming>();
  auto parts = checkpoint::parts_to_load(plan, control.rank().v);
  DC_RETURN_IF_ERROR(
      comm::agree(control, parts.ok() ? Status() : parts.status(), "looking at the plan's state"));
  auto reader = checkpoint::CheckpointReader::open(path);
  Status status = reader.ok() ? checkpoint::check_fits(plan, **reader, *parts) : reader.status();
  DC_RETURN_IF_ERROR(comm::agree(control, with_offer(std::move(status), path, plan, *parts),
                                 "opening its checkpoint"));
  DC_RETURN_IF_ERROR(
      comm::check_equal(control, std::to_string((*reader)->run().step), "checkpoint"));
  return std::unique_ptr<Resuming>(new Resuming(std::move(*reader), std::move(*parts)));
}

std::string Resuming::differences(const JsonValue& now) const {
  const JsonValue& before = reader_->run().configuration;
  std::string text;
  for (const auto& [key, value] : now.members()) {
    const JsonValue* old = before.find(key);
    if (old == nullptr ||
        old->dump(JsonValue::Order::Sorted) == value.dump(JsonValue::Order::Sorted)) {
      continue;
    }
    text += (text.empty() ? "" : ", ") + key + " " + shown(value) + " instead of " + shown(*old);
  }
  return text;
}

std::string Resuming::moved_buffers(const plan::Plan& plan) const {
  constexpr size_t kNamed = 3;
  const int before = reader_->run().world, now = plan.world();
  if (before == now) return "";
  std::string names;
  size_t count = 0;
  for (const checkpoint::StatePart& part : parts_) {
    const checkpoint::ValueId saved{checkpoint::ValueKind::Buffer, part.piece.value.fqn, 0};
    if (part.piece.value.rank < 0 || reader_->find(saved) == nullptr) continue;
    if (count++ < kNamed) names += (names.empty() ? "" : ", ") + part.piece.value.fqn;
  }
  if (count == 0) return "";
  if (count > kNamed) names += " and " + std::to_string(count - kNamed) + " more";
  names = "buffers that each rank has for itself (" + names + "): ";
  const int first = std::min(before, now), last = std::max(before, now) - 1;
  const std::string ranks =
      std::to_string(first) + (last > first ? " to " + std::to_string(last) : "");
  if (now < before) return names + "those of rank " + ranks + " are dropped";
  return names + "rank " + ranks + " of this run starts with those of rank r modulo " +
         std::to_string(before);
}

Status Resuming::restore(const plan::Plan& plan, const checkpoint::StateMemory& memory) {
  return with_offer(checkpoint::restore_state(plan, *reader_, parts_, memory), reader_->path(),
                    plan, parts_);
}

}  // namespace dc::runtime::train
