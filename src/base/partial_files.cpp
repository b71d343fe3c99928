#include "src/base/partial_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace dc::base {
namespace {

constexpr std::string_view kEnding = ".partial";

std::string name_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string random_hex() {
  std::array<uint8_t, 8> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    const uint64_t instead = static_cast<uint64_t>(getpid()) << 32 ^ static_cast<uint64_t>(errno);
    std::memcpy(bytes.data(), &instead, sizeof(instead));
  }
  std::string text;
  for (const uint8_t byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

// Whether the path still leads to the open file.
bool is_at(const std::string& path, int descriptor) {
  struct stat open_file {
  }, named{};
  return fstat(descriptor, &open_file) == 0 && stat(path.c_str(), &named) == 0 &&
         open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
}

void remove_if_unlocked(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return;
  struct stat info {};
  const bool is_file = fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
  if (is_file && flock(descriptor, LOCK_EX | LOCK_NB) == 0 && is_at(path, descriptor)) {
    ::unlink(path.c_str());
  }
  ::close(descriptor);
}

// Files of the folder whose names begin so.
void remove_stale(const std::string& folder, const std::string& start) {
  DIR* directory = opendir(folder.c_str());
  if (directory == nullptr) return;
  std::vector<std::string> found;
  while (const dirent* entry = readdir(directory)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(start) || !name.ends_with(kEnding)) continue;
    found.emplace_back(folder).append("/").append(name);
  }
  closedir(directory);
  for (const std::string& path : found) remove_if_unlocked(path);
}

}  // namespace

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

PartialFile create_partial(const std::string& path) {
  const std::string stem = folder_of(path) + "/." + name_of(path) + ".";
  for (int attempt = 0; attempt < 100; ++attempt) {
    PartialFile file{stem + random_hex() + std::string(kEnding), -1};
    file.descriptor = ::open(file.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file.descriptor < 0 && errno == EEXIST) continue;
    if (file.descriptor < 0) return file;
    // Some file systems know no locks: there nothing is ever taken for stale.
    const bool locked = flock(file.descriptor, LOCK_EX | LOCK_NB) == 0;
    if ((!locked && errno != EWOULDBLOCK) || (locked && is_at(file.path, file.descriptor))) {
      return file;
    }
    ::close(file.descriptor);  // another process removed it before the lock
  }
  errno = EEXIST;
  return {};
}

void remove_stale_partials(const std::string& path) {
  remove_stale(folder_of(path), "." + name_of(path) + ".");
}

void remove_all_stale_partials(const std::string& folder) { remove_stale(folder, "."); }

}  // namespace dc::base
