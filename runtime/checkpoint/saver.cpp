#include "runtime/checkpoint/saver.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/checkpoint/state_check.h"
#include "runtime/comm/agreement.h"
#include "runtime/plan/saved_state.h"

namespace dc::runtime::checkpoint {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

}  // namespace

// What a rank tells the others of its writing.
struct CheckpointSaver::Verdict {
  enum State : int32_t { Writing, Written, Refused, Failed };
  int32_t state = Writing;
  int32_t code = 0;                 // exit code of the failure
  std::array<char, 64> manifest{};  // SHA-256
};

Result<std::unique_ptr<CheckpointSaver>> CheckpointSaver::create(Options options,
                                                                 const plan::Plan& plan,
                                                                 StateMemory memory,
                                                                 comm::Communicator& control) {
  std::unique_ptr<CheckpointSaver> saver(
      new CheckpointSaver(std::move(options), std::move(memory), control));
  saver->plan_ = &plan;
  DC_ASSIGN_OR_RETURN(saver->parts_, parts_to_save(plan, control.rank().v));
  saver->copy_offset_.assign(saver->parts_.size(), -1);
  if (!saver->options_.copies) return saver;
  int64_t bytes = 0;  // plan::copy_bytes()
  for (size_t i = 0; i < saver->parts_.size(); ++i) {
    if (saver->memory_.is_on_disk(saver->parts_[i].tensor)) continue;
    saver->copy_offset_[i] = bytes;
    bytes += base::round_up(saver->parts_[i].piece.bytes(), plan::kCopyAlignment);
  }
  DC_CHECK(bytes == plan::copy_bytes(plan, control.rank().v));
  DC_ASSIGN_OR_RETURN(saver->copy_, memory::HostSpace::create(saver->memory_.device(), bytes));
  std::fill_n(saver->copy_.base(), bytes, std::byte{0xFF});
  return saver;
}

CheckpointSaver::~CheckpointSaver() { join(); }

void CheckpointSaver::join() {
  if (thread_.joinable()) thread_.join();
}

Status CheckpointSaver::begin(const RunState& run) {
  DC_CHECK(!under_way_);
  under_way_ = true;
  all_done_ = false;
  run_ = run;
  status_ = Status();
  result_ = SaveResult();
  result_.step = run.step;
  refused_.clear();
  files_.clear();
  done_.store(false);
  Status laid_out = lay_out(run);
  if (laid_out.ok()) take_state();
  if (!laid_out.ok()) status_ = std::move(laid_out);
  const bool copied = std::any_of(copy_offset_.begin(), copy_offset_.end(),
                                  [](int64_t offset) { return offset >= 0; });
  if (copied && status_.ok() && refused_.empty()) {
    thread_ = std::thread([this] {
      write_copies();
      complete();
    });
  } else {
    complete();
  }
  return base::ok_status();
}

// Every rank says each time how it fared, so that none waits for a file that is not made.
Status CheckpointSaver::lay_out(const RunState& run) {
  const int rank = control_.rank().v;
  const std::string folder = folder_.partial_of(run.step);
  DC_RETURN_IF_ERROR(
      comm::agree(control_, rank == 0 ? folder_.begin(run.step) : Status(), "making " + folder));
  auto files =
      RankFiles::create(folder, parts_, weight_metadata(*plan_, {run.plan_digest, run.step, {}}),
                        rank, control_.size());
  DC_RETURN_IF_ERROR(comm::agree(control_, files.ok() ? Status() : files.status(),
                                 "making its files of a checkpoint"));
  files_.push_back(std::move(*files));
  return files_[0].open();
}

// Copies what is in memory, or writes it where there is no room for a copy. What is on disk is
// always written now.
void CheckpointSaver::take_state() {
  for (size_t i = 0; i < parts_.size() && status_.ok() && refused_.empty(); ++i) {
    const StatePart& part = parts_[i];
    if (copy_offset_[i] < 0) {
      status_ = store(part, i);
    } else {
      status_ = memory_.read(part.tensor, part.tensor_first, part.piece.count,
                             copy_.base() + copy_offset_[i]);
    }
  }
}

Status CheckpointSaver::store(const StatePart& part, size_t index) {
  const int64_t bytes = base::byte_size(part.piece.dtype);
  std::vector<std::byte> chunk(static_cast<size_t>(StateMemory::kChunkElements * bytes));
  for (int64_t done = 0; done < part.piece.count && refused_.empty();
       done += StateMemory::kChunkElements) {
    const int64_t count = std::min(StateMemory::kChunkElements, part.piece.count - done);
    DC_RETURN_IF_ERROR(memory_.read(part.tensor, part.tensor_first + done, count, chunk.data()));
    DC_RETURN_IF_ERROR(
        check_and_append(part, index, {chunk.data(), static_cast<size_t>(count * bytes)}));
  }
  return base::ok_status();
}

Status CheckpointSaver::check_and_append(const StatePart& part, size_t index,
                                         std::span<const std::byte> bytes) {
  if (!is_savable(part.piece.value.kind, part.piece.dtype, bytes)) {
    refused_ = describe(part.piece.value);
    return base::ok_status();
  }
  return files_[0].append(index, bytes);
}

// On the writer's thread.
void CheckpointSaver::write_copies() {
  constexpr int64_t kChunkBytes = 1 << 20;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (copy_offset_[i] < 0) continue;
    const std::byte* at = copy_.base() + copy_offset_[i];
    for (int64_t left = parts_[i].piece.bytes(); left > 0;) {
      const int64_t bytes = std::min(left, kChunkBytes);
      status_ = check_and_append(parts_[i], i, {at, static_cast<size_t>(bytes)});
      if (!status_.ok() || !refused_.empty()) return;
      at += bytes;
      left -= bytes;
    }
  }
}

// Nothing of this rank's files is touched afterwards.
void CheckpointSaver::complete() {
  if (status_.ok() && refused_.empty()) {
    Result<std::string> manifest = files_[0].finish();
    if (manifest.ok()) manifest_ = *manifest;
    if (!manifest.ok()) status_ = std::move(manifest).status();
  }
  files_.clear();
  done_.store(true, std::memory_order_release);
}

Status CheckpointSaver::exchange_verdicts() {
  Verdict mine;
  if (done_.load(std::memory_order_acquire)) {
    mine.state = !refused_.empty() ? Verdict::Refused
                 : status_.ok()    ? Verdict::Written
                                   : Verdict::Failed;
    if (mine.state == Verdict::Failed) mine.code = base::exit_code(status_.kind());
    if (mine.state == Verdict::Written) {
      std::memcpy(mine.manifest.data(), manifest_.data(), mine.manifest.size());
    }
  }
  std::vector<Verdict> all(static_cast<size_t>(control_.size()));
  DC_RETURN_IF_ERROR(control_.exchange(&mine, sizeof(mine), all.data()));
  manifests_.clear();
  for (const Verdict& verdict : all) {
    if (verdict.state == Verdict::Writing) return base::ok_status();
    manifests_.emplace_back(verdict.manifest.data(), verdict.manifest.size());
  }
  all_done_ = true;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].state == Verdict::Refused && result_.refused.empty()) {
      result_.refused = refused_.empty() ? "on rank " + std::to_string(rank) : refused_;
    }
    if (all[rank].state == Verdict::Failed && result_.failure.ok()) {
      result_.failure = !status_.ok() ? status_
                                      : Status(static_cast<ErrorKind>(all[rank].code), "DC6851",
                                               "rank " + std::to_string(rank) +
                                                   " could not write its part; see its message");
    }
  }
  return base::ok_status();
}

Status CheckpointSaver::look() {
  if (!under_way_ || all_done_) return base::ok_status();
  DC_RETURN_IF_ERROR(exchange_verdicts());
  if (!all_done_) return base::ok_status();
  join();
  if (control_.rank().v != 0) return base::ok_status();
  if (!result_.saved()) {
    folder_.abandon(run_.step);
  } else if (options_.copies) {
    thread_ = std::thread([this] { status_ = publish(); });
  } else {
    status_ = publish();
  }
  return base::ok_status();
}

// On rank 0, after everybody's bytes have reached the disk.
Status CheckpointSaver::publish() {
  CheckpointIndex index;
  index.run = run_;
  for (size_t rank = 0; rank < manifests_.size(); ++rank) {
    index.manifests.push_back(
        {manifest_name(static_cast<int>(rank), static_cast<int>(manifests_.size())),
         manifests_[rank]});
  }
  const std::string text = write_index(index);
  const std::string path = folder_.partial_of(run_.step) + "/" + std::string(kIndexName);
  DC_ASSIGN_OR_RETURN(auto file,
                      base::OutputFile::create_new(path, static_cast<int64_t>(text.size())));
  DC_RETURN_IF_ERROR(
      file.write_at(0, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
  DC_RETURN_IF_ERROR(file.flush());
  DC_RETURN_IF_ERROR(folder_.publish(run_.step));
  if (options_.keep > 0) folder_.keep_newest(options_.keep);
  return base::ok_status();
}

Result<SaveResult> CheckpointSaver::settle() {
  DC_CHECK(under_way_);
  join();  // this rank is done; every exchange waits for the others
  while (!all_done_) {
    DC_RETURN_IF_ERROR(look());
  }
  join();
  under_way_ = false;
  if (result_.saved()) {
    const bool first = control_.rank().v == 0;
    Status published =
        comm::agree(control_, first ? status_ : Status(), "publishing the checkpoint");
    if (!published.ok() && first) folder_.abandon(run_.step);
    result_.failure = std::move(published);
  }
  return result_;
}

}  // namespace dc::runtime::checkpoint
