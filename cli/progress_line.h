// ProgressLine: one line on a terminal that is written over, nothing elsewhere.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

namespace dc::cli {

class ProgressLine {
 public:
  explicit ProgressLine(bool wanted = true) : enabled_(wanted && isatty(STDERR_FILENO) == 1) {}
  // What is said next starts a new line.
  ~ProgressLine() {
    if (open_) std::fputc('\n', stderr);
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const std::string& text) {
    if (!enabled_) return;
    std::fprintf(stderr, "\r%s", text.c_str());
    std::fflush(stderr);
    open_ = true;
  }
  bool enabled() const { return enabled_; }

 private:
  bool enabled_, open_ = false;
};

}  // namespace dc::cli
