#include "src/driver/stopwatch.h"

#include <cstdio>

namespace dc::driver {

void Stopwatch::lap(std::string_view what) {
  const auto now = std::chrono::steady_clock::now();
  const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
  last_ = now;
  for (auto& [name, sum] : laps_) {
    if (name == what) {
      sum += ms;
      return;
    }
  }
  laps_.emplace_back(what, ms);
}

double Stopwatch::total() const {
  double sum = 0;
  for (const auto& [name, ms] : laps_) sum += ms;
  return sum;
}

std::string Stopwatch::text() const {
  char number[32];
  std::snprintf(number, sizeof number, "%.0f ms", total());
  std::string text = number;
  for (size_t i = 0; i < laps_.size(); ++i) {
    std::snprintf(number, sizeof number, " %.0f", laps_[i].second);
    text += (i == 0 ? " = " : " + ") + laps_[i].first + number;
  }
  return text;
}

}  // namespace dc::driver
