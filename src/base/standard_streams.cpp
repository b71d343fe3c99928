#include "src/base/standard_streams.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace dc::base {

void open_standard_streams() {
  for (int wanted = 0; wanted <= 2; ++wanted) {
    if (fcntl(wanted, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free descriptor is this one.
    if (open("/dev/null", wanted == 0 ? O_RDONLY : O_WRONLY) < 0) return;
  }
}

Status check_standard_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  const std::string why = errno != 0 ? std::strerror(errno) : "an earlier write failed";
  return Status(ErrorKind::Io, "DC2809",
                "cannot write to standard output: " + why +
                    "; what was printed is incomplete, files are not affected");
}

}  // namespace dc::base
