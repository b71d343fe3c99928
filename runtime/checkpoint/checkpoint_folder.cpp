#include "runtime/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "runtime/checkpoint/index.h"

namespace dc::runtime::checkpoint {
namespace {

namespace fs = std::filesystem;
using base::ErrorKind;
using base::Result;
using base::Status;

constexpr std::string_view kStart = "step-", kPartial = ".partial", kRemoved = ".removed";
constexpr size_t kDigits = 8;

std::string name_of(int64_t step) {
  std::string digits = std::to_string(step);
  digits.insert(0, kDigits - std::min(kDigits, digits.size()), '0');
  return std::string(kStart) + digits;
}

std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kStart)) return std::nullopt;
  name.remove_prefix(kStart.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

Status failed(const std::string& what, const std::string& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EIO;
  return Status(full ? ErrorKind::Io : ErrorKind::CannotWrite, "DC6811",
                what + " " + path + " failed: " + std::strerror(error) +
                    "; make room there or choose another place");
}

bool is_checkpoint(const std::string& path) {
  return access((path + "/" + std::string(kIndexName)).c_str(), F_OK) == 0;
}

void remove_tree(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

}  // namespace

std::string CheckpointFolder::path_of(int64_t step) const { return root_ + "/" + name_of(step); }

std::string CheckpointFolder::partial_of(int64_t step) const {
  return root_ + "/." + name_of(step) + std::string(kPartial);
}

std::vector<StoredCheckpoint> CheckpointFolder::list() const {
  std::vector<StoredCheckpoint> found;
  std::error_code error;
  for (fs::directory_iterator at(root_, error), end; !error && at != end; at.increment(error)) {
    const std::optional<int64_t> step = step_of(at->path().filename().string());
    if (step && is_checkpoint(at->path().string())) found.push_back({*step, at->path().string()});
  }
  std::sort(found.begin(), found.end(), [](const StoredCheckpoint& a, const StoredCheckpoint& b) {
    return a.step != b.step ? a.step < b.step : a.path < b.path;
  });
  return found;
}

Status CheckpointFolder::begin(int64_t step) const {
  const std::string path = partial_of(step);
  remove_tree(path);
  return mkdir(path.c_str(), 0777) == 0 ? base::ok_status() : failed("making", path, errno);
}

Status CheckpointFolder::publish(int64_t step) const {
  DC_RETURN_IF_ERROR(flush_folder(partial_of(step)));
  DC_RETURN_IF_ERROR(put_in_place(step));
  for (const StoredCheckpoint& other : list()) {
    if (other.step > step) DC_RETURN_IF_ERROR(retire(other.path));
  }
  DC_RETURN_IF_ERROR(flush_folder(root_));
  remove_hidden(kRemoved);
  return base::ok_status();
}

// A checkpoint that already exists is exchanged with the new one, so that there is a complete one
// at any moment.
Status CheckpointFolder::put_in_place(int64_t step) const {
  const std::string from = partial_of(step), to = path_of(step);
  if (rename(from.c_str(), to.c_str()) == 0) return base::ok_status();
  if (errno != ENOTEMPTY && errno != EEXIST) return failed("renaming", from, errno);
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    remove_tree(from);
    return base::ok_status();
  }
  DC_RETURN_IF_ERROR(retire(to));  // a file system that cannot exchange names
  return rename(from.c_str(), to.c_str()) == 0 ? base::ok_status()
                                               : failed("renaming", from, errno);
}

// Out of the list at once; its bytes go later.
Status CheckpointFolder::retire(const std::string& path) const {
  const std::string hidden =
      root_ + "/." + fs::path(path).filename().string() + std::string(kRemoved);
  remove_tree(hidden);
  return rename(path.c_str(), hidden.c_str()) == 0 ? base::ok_status()
                                                   : failed("renaming", path, errno);
}

void CheckpointFolder::abandon(int64_t step) const { remove_tree(partial_of(step)); }

void CheckpointFolder::keep_newest(int64_t count) const {
  const std::vector<StoredCheckpoint> all = list();
  const int64_t extra = static_cast<int64_t>(all.size()) - count;
  for (int64_t i = 0; i < extra; ++i) (void)retire(all[static_cast<size_t>(i)].path);
  if (extra > 0) remove_hidden(kRemoved);
}

void CheckpointFolder::remove_leftovers() const {
  remove_hidden(kPartial);
  remove_hidden(kRemoved);
}

void CheckpointFolder::remove_hidden(std::string_view ending) const {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator at(root_, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("." + std::string(kStart)) && name.ends_with(ending)) {
      found.push_back(at->path().string());
    }
  }
  for (const std::string& path : found) remove_tree(path);
}

Result<std::string> find_checkpoint(const std::string& path) {
  if (is_checkpoint(path)) return path;
  const std::vector<StoredCheckpoint> found = CheckpointFolder(path).list();
  if (!found.empty()) return found.back().path;
  return Status(ErrorKind::MissingInput, "DC6812",
                path + " is no checkpoint and holds none (a checkpoint has an " +
                    std::string(kIndexName) + "); check the path");
}

Status flush_folder(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return failed("opening", path, errno);
  // Some file systems cannot flush a folder; the rename is then as durable as they make it.
  const bool flushed = fsync(descriptor) == 0 || errno == EINVAL || errno == ENOTSUP;
  const int error = errno;
  close(descriptor);
  return flushed ? base::ok_status() : failed("flushing", path, error);
}

}  // namespace dc::runtime::checkpoint
