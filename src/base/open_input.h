// Opening inputs alike for all readers of this folder.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/status.h"

namespace dc::base {

// The descriptor of a regular file, opened for reading, and its size in bytes. Never waits, as
// opening a pipe would: what is no regular file is BadInput (65).
struct OpenInput {
  int descriptor = -1;
  int64_t bytes = 0;
};
Result<OpenInput> open_input(const std::string& path);

// What helps where a limit of the session made a call fail, as "; raise the limit on ..."; empty
// where none did. `error`: of errno.
const char* limit_to_raise(int error);
// That a call on an open file failed, and what to do next.
Status io_error(const std::string& what, const std::string& path, int error);

}  // namespace dc::base
