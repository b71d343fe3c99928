#include "src/base/input_file.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "src/base/open_input.h"

namespace dc::base {

Result<InputFile> InputFile::open(const std::string& path) {
  DC_ASSIGN_OR_RETURN(const OpenInput input, open_input(path));
  InputFile file;
  file.path_ = path;
  file.descriptor_ = input.descriptor;
  file.size_ = input.bytes;
  return file;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(std::exchange(other.size_, 0)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

Status InputFile::read_at(int64_t offset, std::span<uint8_t> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error("reading", path_, errno);
    if (got == 0) {
      return Status(ErrorKind::Io, "DC1009",
                    path_ + " had " + std::to_string(size_) +
                        " bytes when it was opened and ends at byte " + std::to_string(offset) +
                        " now; put the whole file back and start again");
    }
    out = out.subspan(static_cast<size_t>(got));
    offset += got;
  }
  return ok_status();
}

}  // namespace dc::base
