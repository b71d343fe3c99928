#include "src/base/open_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace dc::base {
namespace {

Status cannot_open(const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    return Status(ErrorKind::MissingInput, "DC1001",
                  "there is no file " + path + "; check the path");
  }
  if (error == EACCES || error == EPERM) {
    return Status(ErrorKind::MissingInput, "DC1002",
                  "cannot open " + path + ": " + std::strerror(error) + "; check its permissions");
  }
  if (error == ENXIO) {  // a socket
    return Status(ErrorKind::BadInput, "DC1008", path + " is a socket; name a regular file");
  }
  return Status(ErrorKind::Io, "DC1003",
                "cannot open " + path + ": " + std::strerror(error) + limit_to_raise(error));
}

}  // namespace

const char* limit_to_raise(int error) {
  if (error == EMFILE || error == ENFILE) return "; raise the limit on open files (ulimit -n)";
  if (error == EFBIG) return "; raise the limit on the size of files (ulimit -f)";
  return "";
}

Status io_error(const std::string& what, const std::string& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  std::string next = limit_to_raise(error);
  if (next.empty()) {
    next = full ? "; make room there and try again"
                : "; see whether its disk or network file system works, and try again";
  }
  return Status(ErrorKind::Io, "DC1005",
                what + " " + path + " failed: " + std::strerror(error) + next);
}

Result<OpenInput> open_input(const std::string& path) {
  OpenInput input;
  input.descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (input.descriptor < 0) return cannot_open(path, errno);
  struct stat info {};
  Status status;
  if (::fstat(input.descriptor, &info) != 0) {
    status = io_error("reading", path, errno);
  } else if (S_ISDIR(info.st_mode)) {
    status = Status(ErrorKind::BadInput, "DC1006", path + " is a folder; name a file");
  } else if (!S_ISREG(info.st_mode)) {
    status = Status(ErrorKind::BadInput, "DC1008",
                    path + " is a pipe or a device; write it to a regular file and name that");
  }
  if (!status.ok()) {
    ::close(input.descriptor);
    return status;
  }
  input.bytes = info.st_size;
  return input;
}

}  // namespace dc::base
