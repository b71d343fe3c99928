#include "runtime/train/claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace dc::runtime::train {

using base::ErrorKind;
using base::Result;
using base::Status;

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
  if (descriptor >= 0 && flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
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
