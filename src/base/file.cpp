#include "src/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "src/base/mapped_inputs.h"
#include "src/base/open_input.h"
#include "src/base/partial_files.h"
#include "src/base/text.h"

namespace dc::base {
namespace {

std::string reason(int error) { return std::strerror(error); }

Status cannot_write(const std::string& path, int error) {
  const std::string limit = limit_to_raise(error);
  return Status(ErrorKind::CannotWrite, "DC1004",
                "cannot write " + path + ": " + reason(error) +
                    (limit.empty() ? "; choose another place" : limit));
}

// Closes on scope exit.
struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

Status flush_folder(const std::string& folder) {
  Descriptor descriptor{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (descriptor.value < 0) return io_error("opening folder", folder, errno);
  // Some file systems cannot flush a folder; the rename is then as durable as they make it.
  if (::fsync(descriptor.value) != 0 && errno != EINVAL && errno != ENOTSUP) {
    return io_error("flushing folder", folder, errno);
  }
  return ok_status();
}

// Zeros, with room on the disk where the file system can say so.
Status reserve(int descriptor, int64_t bytes, const std::string& path) {
  if (bytes == 0) return ok_status();
  if (::ftruncate(descriptor, bytes) != 0) return io_error("writing", path, errno);
  const int error = take_room(descriptor, bytes);
  if (error == ENOSPC || error == EFBIG || error == EDQUOT) return io_error("writing", path, error);
  return ok_status();
}

// What a path names behind symbolic links, so that a link stays one and its target gets the bytes.
Result<std::string> behind_links(std::string path) {
  constexpr int kMostLinks = 40;  // as Linux follows
  std::error_code error;
  for (int i = 0; i < kMostLinks; ++i) {
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    if (error) return path;  // no link
    path = (std::filesystem::path(path).parent_path() / target).string();
  }
  return cannot_write(path, ELOOP);
}

}  // namespace

int take_room(int descriptor, int64_t bytes) {
  for (;;) {
    if (const int error = ::posix_fallocate(descriptor, 0, bytes); error != EINTR) return error;
  }
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  DC_ASSIGN_OR_RETURN(const OpenInput input, open_input(path));
  const Descriptor descriptor{input.descriptor};
  const int64_t size = input.bytes;
  MappedFile file;
  file.path_ = path;
  if (size == 0) return file;
  void* data =
      ::mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_PRIVATE, descriptor.value, 0);
  if (data == MAP_FAILED) return io_error("mapping", path, errno);
  file.data_ = static_cast<const uint8_t*>(data);
  file.size_ = static_cast<size_t>(size);
  remember_mapping(file.data_, file.size_, path);
  return file;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forget_mapping(data_);
  ::munmap(const_cast<uint8_t*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Result<std::string> read_file(const std::string& path, int64_t max_bytes) {
  DC_ASSIGN_OR_RETURN(const OpenInput input, open_input(path));
  const Descriptor descriptor{input.descriptor};
  std::string text;
  text.reserve(static_cast<size_t>(std::min(input.bytes, max_bytes)));
  char block[65536];
  while (static_cast<int64_t>(text.size()) <= max_bytes) {
    const ssize_t got = ::read(descriptor.value, block, sizeof(block));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error("reading", path, errno);
    if (got == 0) return text;
    text.append(block, static_cast<size_t>(got));
  }
  return Status(ErrorKind::BadInput, "DC1010",
                path + " has more than " + format_bytes(max_bytes) +
                    ", too much for a file of its kind; check the path");
}

Result<OutputFile> OutputFile::create(const std::string& given, int64_t bytes) {
  DC_ASSIGN_OR_RETURN(const std::string path, behind_links(given));
  struct stat info {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) return cannot_write(path, EISDIR);
  if (exists && !S_ISREG(info.st_mode)) {  // the rename would put a file in place of a device
    return Status(ErrorKind::CannotWrite, "DC1004",
                  path + " is a device, a pipe or a socket; give the name of a file");
  }
  remove_stale_partials(path);
  PartialFile partial = create_partial(path);
  if (partial.descriptor < 0) return cannot_write(path, errno);
  OutputFile file;
  file.descriptor_ = partial.descriptor;
  file.path_ = path;
  file.temporary_ = std::move(partial.path);
  DC_RETURN_IF_ERROR(reserve(file.descriptor_, bytes, path));
  return file;
}

Result<OutputFile> OutputFile::create_new(const std::string& path, int64_t bytes) {
  OutputFile file;
  file.descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file.descriptor_ < 0) return cannot_write(path, errno);
  file.temporary_ = path;
  DC_RETURN_IF_ERROR(reserve(file.descriptor_, bytes, path));
  return file;
}

Result<OutputFile> OutputFile::join(const std::string& temporary_path) {
  OutputFile file;
  file.descriptor_ = ::open(temporary_path.c_str(), O_RDWR | O_CLOEXEC);
  if (file.descriptor_ < 0) return cannot_write(temporary_path, errno);
  file.temporary_ = temporary_path;
  return file;
}

void OutputFile::discard() {
  if (descriptor_ < 0) return;
  ::close(std::exchange(descriptor_, -1));
  if (!path_.empty()) ::unlink(temporary_.c_str());
}

OutputFile::~OutputFile() { discard(); }

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Status OutputFile::write_at(int64_t offset, std::span<const uint8_t> bytes) {
  const std::string& shown = path_.empty() ? temporary_ : path_;
  while (!bytes.empty()) {
    const ssize_t wrote = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return io_error("writing", shown, errno);
    bytes = bytes.subspan(static_cast<size_t>(wrote));
    offset += wrote;
  }
  return ok_status();
}

Status OutputFile::flush() {
  if (::fsync(descriptor_) != 0 && errno != EINVAL) {
    return io_error("flushing", path_.empty() ? temporary_ : path_, errno);
  }
  return ok_status();
}

Status OutputFile::commit() {
  DC_CHECK(descriptor_ >= 0 && !path_.empty());
  DC_RETURN_IF_ERROR(flush());
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return cannot_write(path_, errno);
  ::close(std::exchange(descriptor_, -1));
  return flush_folder(folder_of(path_));
}

Status check_writable(const std::string& path) {
  Result<OutputFile> file = OutputFile::create(path);  // its destructor removes it
  return file.ok() ? ok_status() : std::move(file).status();
}

Status check_no_input(const std::string& path, std::span<const std::string> inputs) {
  for (const std::string& input : inputs) {
    std::error_code none;
    if (!std::filesystem::equivalent(path, input, none)) continue;
    return Status(ErrorKind::Usage, "DC1011",
                  path + " is to be read and would be replaced; give the output another name");
  }
  return ok_status();
}

Status check_output(const std::string& path, std::span<const std::string> inputs) {
  DC_RETURN_IF_ERROR(check_no_input(path, inputs));
  return check_writable(path);
}

Status write_file_atomically(const std::string& path, std::span<const uint8_t> bytes) {
  DC_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path));
  DC_RETURN_IF_ERROR(file.write_at(0, bytes));
  return file.commit();
}

Status write_file_atomically(const std::string& path, std::string_view text) {
  return write_file_atomically(
      path, std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

}  // namespace dc::base
