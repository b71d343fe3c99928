#include "runtime/train/claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

namespace dc::runtime::train {

using base::ErrorKind;
using base::Result;
using base::Status;

namespace {

// A killed run holds its locks until its last thread has ended, a moment after it looks dead.
constexpr std::chrono::milliseconds kEndOfKilledRun{1000}, kBetweenTries{10};

bool is_claimed(int descriptor) {
  const auto until = std::chrono::steady_clock::now() + kEndOfKilledRun;
  while (flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    if (std::chrono::steady_clock::now() >= until) return true;
    std::this_thread::sleep_for(kBetweenTries);
  }
  return false;
}

}  // namespace

Claim::~Claim() {
  if (descriptor_ >= 0) close(descriptor_);
}

Claim::Claim(Claim&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

Claim& Claim::operator=(Claim&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Result<Claim> Claim::file(int descriptor, const std::string& path) {
  Claim claim;
  claim.descriptor_ = descriptor;
  if (descriptor >= 0 && is_claimed(descriptor)) {
    return Status(ErrorKind::CannotWrite, "DC6314",
                  path + ": another run is writing here; choose another place or wait for its end");
  }
  return claim;
}

Result<Claim> Claim::folder(const std::string& path) {
  return file(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), path);
}

Status refuse_to_replace(const std::string& path, const std::string& option) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) return {};
  return Status(ErrorKind::CannotWrite, "DC6315",
                path + " is there already and would be replaced; give " + option +
                    " another place, or --overwrite to replace it");
}

}  // namespace dc::runtime::train
