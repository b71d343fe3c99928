#include "runtime/train/saving.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "runtime/checkpoint/state_check.h"
#include "runtime/checkpoint/weights_file.h"
#include "runtime/comm/agreement.h"
#include "runtime/memory/offload_memory.h"
#include "runtime/plan/saved_state.h"
#include "runtime/train/output_places.h"
#include "runtime/train/run_state.h"
#include "src/base/partial_files.h"
#include "src/base/text.h"

namespace dc::runtime::train {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

// Checkpoints are written while the next steps run.
bool keeps_copy(const TrainOptions& options) {
  return options.save_every > 0 && !options.save.empty() && !is_weights_path(options.save);
}

// Parts of the weights file.
std::vector<checkpoint::StatePart> only_weights(std::vector<checkpoint::StatePart> parts) {
  std::erase_if(parts, [](const checkpoint::StatePart& part) {
    const checkpoint::ValueKind kind = part.piece.value.kind;
    return kind != checkpoint::ValueKind::Parameter && kind != checkpoint::ValueKind::Buffer;
  });
  return parts;
}

void warn(const comm::Communicator& control, const std::string& text) {
  std::fprintf(stderr, "dcrun[rank %d]: warning: %s\n", control.rank().v,
               base::printable(text).c_str());
}

Status check_continued(const checkpoint::CheckpointFolder& folder, const std::string& resumed) {
  const std::vector<checkpoint::StoredCheckpoint> all = folder.list();
  std::error_code none;
  if (all.empty() || std::filesystem::equivalent(all.back().path, resumed, none)) return Status();
  return Status(ErrorKind::CannotWrite, "DC6861",
                all.back().path +
                    " is there already and this run does not go on from it; use "
                    "--resume latest to go on, give --save another folder, or "
                    "--overwrite to replace it");
}

}  // namespace

Result<Claim> Saving::claim(const TrainOptions& options, const std::string& resumed, Claim held,
                            std::vector<std::string>& made) {
  if (options.save.empty()) return Claim();
  const bool weights = is_weights_path(options.save);
  const std::string folder = weights ? base::folder_of(options.save) : options.save;
  if (!std::filesystem::exists(folder)) made.push_back(folder);
  DC_RETURN_IF_ERROR(prepare_folder(folder));
  if (weights) {
    DC_RETURN_IF_ERROR(prepare_file(options.save));
    if (!options.overwrite) DC_RETURN_IF_ERROR(refuse_to_replace(options.save, "--save"));
    return Claim::folder(folder);
  }
  const checkpoint::CheckpointFolder checkpoints(folder);
  Claim claim = std::move(held);
  if (claim.descriptor() < 0) {
    DC_ASSIGN_OR_RETURN(claim, Claim::folder(folder));
  }
  if (!options.overwrite) DC_RETURN_IF_ERROR(check_continued(checkpoints, resumed));
  checkpoints.remove_leftovers();
  // A run that was killed between publishing and removing left one too many.
  const std::vector<checkpoint::StoredCheckpoint> all = checkpoints.list();
  const bool goes_on = !all.empty() && check_continued(checkpoints, resumed).ok();
  if (options.keep > 0 && goes_on) checkpoints.keep_newest(options.keep);
  return claim;
}

Status Saving::check_memory(const TrainOptions& options, const plan::Plan& plan, int rank,
                            int ranks_of_host, base::DeviceKind device,
                            std::optional<int64_t> free) {
  if (!keeps_copy(options) || !free) return base::ok_status();
  int64_t arenas = 0;
  for (const plan::Space space : base::kSpaces) {
    const bool is_of_gpu = space == plan::Space::Device && device == base::DeviceKind::Cuda;
    if (space != plan::Space::Disk && !is_of_gpu) arenas += memory::arena_bytes(plan, space);
  }
  const int64_t copy = plan::copy_bytes(plan, rank);
  if (arenas + copy <= *free / ranks_of_host) return base::ok_status();
  return Status(
      ErrorKind::OutOfMemory, "DC6862",
      "a rank needs " + base::format_bytes(arenas) + " for the plan and " +
          base::format_bytes(copy) + " for the copy of the state that --save-every takes, " +
          std::to_string(ranks_of_host) + " ranks are on this host, and " +
          base::format_bytes(*free) +
          " are free; leave out --save-every (checkpoints are then written at the end and "
          "on SIGTERM), free memory, or compile with a smaller --memory");
}

Result<std::unique_ptr<Saving>> Saving::create(const TrainOptions& options, const plan::Plan& plan,
                                               const std::string& digest,
                                               checkpoint::StateMemory memory,
                                               comm::Communicator& control,
                                               std::function<Status()> quiesce) {
  std::unique_ptr<Saving> saving(
      new Saving(options, plan, digest, std::move(memory), control, std::move(quiesce)));
  if (options.save.empty() || is_weights_path(options.save)) return saving;
  const checkpoint::CheckpointSaver::Options how{options.save, options.keep,
                                                 options.save_every > 0};
  DC_ASSIGN_OR_RETURN(saving->saver_,
                      checkpoint::CheckpointSaver::create(how, plan, saving->memory_, control));
  return saving;
}

Status Saving::after_step(int64_t steps, const checkpoint::DataPosition& position) {
  if (!saver_) return base::ok_status();
  if (saver_->is_under_way()) {
    DC_RETURN_IF_ERROR(saver_->look());
    if (saver_->has_failed()) DC_RETURN_IF_ERROR(settle_periodic());
  }
  if (options_.save_every <= 0 || steps % options_.save_every != 0) return base::ok_status();
  DC_RETURN_IF_ERROR(settle_periodic());
  DC_RETURN_IF_ERROR(quiesce_());
  return saver_->begin(run_state(plan_, digest_, options_, steps, position));
}

Status Saving::settle_periodic() {
  if (!saver_->is_under_way()) return base::ok_status();
  DC_ASSIGN_OR_RETURN(const checkpoint::SaveResult result, saver_->settle());
  const std::string step = std::to_string(result.step);
  if (result.saved()) {
    newest_ = checkpoint::CheckpointFolder(options_.save).path_of(result.step);
    return base::ok_status();
  }
  if (!result.refused.empty()) {
    return Status(ErrorKind::NonFinite, "DC6552",
                  "after step " + step + refused(result.refused).sentence +
                      "; try a lower learning rate, clipping, or other data");
  }
  if (!comm::is_reported_elsewhere(result.failure) && result.failure.code() != "DC6851") {
    std::string why = result.failure.sentence();
    for (const std::string& context : result.failure.context()) why += "; " + context;
    warn(control_,
         "step " + step + " was not saved: " + why + "; training goes on" + newest_text());
  }
  return base::ok_status();
}

std::string Saving::newest_text() const {
  return newest_.empty() ? ", and there is no checkpoint yet"
                         : ", and the newest whole checkpoint is " + newest_;
}

Saved Saving::refused(const std::string& value) const {
  return {true, ", the state is not finite (" + value + "), so nothing was written to " +
                    options_.save + " and what was there stays"};
}

Result<Saved> Saving::finish(int64_t steps, const checkpoint::DataPosition& position,
                             std::vector<std::string> updated) {
  if (options_.save.empty()) return Saved();
  if (!saver_) return finish_weights(options_.save, steps, std::move(updated));
  DC_RETURN_IF_ERROR(settle_periodic());
  if (updated.empty()) return finish_checkpoint(steps, position);
  // The optimizer state is partly updated: some moments include this step, others do not. No run
  // can resume from it, so only the weights are written.
  const std::string path =
      options_.save + "/partly-applied-step-" + std::to_string(steps + 1) + ".safetensors";
  DC_ASSIGN_OR_RETURN(Saved saved, finish_weights(path, steps, std::move(updated)));
  saved.sentence += newest_text();
  return saved;
}

Result<Saved> Saving::finish_checkpoint(int64_t steps, const checkpoint::DataPosition& position) {
  const std::string path = checkpoint::CheckpointFolder(options_.save).path_of(steps);
  // It may have been saved just now, or be where the run began, whose path the user wrote. Rank 0
  // looks, so that all decide alike.
  std::error_code none;
  const bool is_newest = control_.rank().v == 0 && std::filesystem::equivalent(newest_, path, none);
  DC_ASSIGN_OR_RETURN(const bool is_saved, comm::any_rank(control_, is_newest));
  if (!is_saved) {
    DC_RETURN_IF_ERROR(saver_->begin(run_state(plan_, digest_, options_, steps, position)));
    DC_ASSIGN_OR_RETURN(const checkpoint::SaveResult result, saver_->settle());
    if (!result.refused.empty()) return refused(result.refused);
    if (!result.failure.ok()) {
      return Status(result.failure)
          .add_context("while saving step " + std::to_string(steps) + newest_text())
          .add_context("make room there, or give --save another folder and --resume that one");
    }
    newest_ = path;
  }
  return Saved{false, ", and the state after step " + std::to_string(steps) + " is in " + path};
}

Result<Saved> Saving::finish_weights(const std::string& path, int64_t steps,
                                     std::vector<std::string> updated) {
  auto all = checkpoint::parts_to_save(plan_, control_.rank().v);
  DC_RETURN_IF_ERROR(
      comm::agree(control_, all.ok() ? Status() : all.status(), "looking at the plan's state"));
  const std::vector<checkpoint::StatePart> parts = only_weights(std::move(*all));
  auto found = checkpoint::find_non_finite(parts, memory_);
  DC_RETURN_IF_ERROR(
      comm::agree(control_, found.ok() ? Status() : found.status(), "checking the state"));
  DC_ASSIGN_OR_RETURN(const bool is_refused, comm::any_rank(control_, !found->empty()));
  if (is_refused) return refused(found->empty() ? "on another rank" : *found);
  const bool partly = !updated.empty();
  DC_RETURN_IF_ERROR(checkpoint::save_weights(path, plan_, parts, memory_,
                                              {digest_, steps, std::move(updated)}, control_));
  return Saved{false,
               (partly ? ", and the partly updated parameters with their names are in "
                       : ", and the parameters after step " + std::to_string(steps) + " are in ") +
                   path};
}

}  // namespace dc::runtime::train
