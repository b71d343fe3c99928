#include "src/base/status.h"

#include <cstdio>
#include <cstdlib>

#include "src/base/text.h"

namespace dc::base {

int exit_code(ErrorKind kind) { return static_cast<int>(kind); }

std::string Status::to_string() const {
  if (ok()) return "";
  std::string text = "error[" + code() + "]: " + sentence();
  for (const std::string& line : context()) text += "\n  " + line;
  return printable(text);
}

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "internal error: %s is false at %s:%d; please report this\n", condition,
               file, line);
  std::_Exit(exit_code(ErrorKind::Internal));
}

}  // namespace dc::base
