// Stopwatch: measures the parts of a compilation. lap(name) adds the time since the previous lap
// to the part `name`, so the parts add up to the whole.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dc::driver {

class Stopwatch {
 public:
  void lap(std::string_view what);
  // By name, in the order of their first laps; milliseconds.
  const std::vector<std::pair<std::string, double>>& laps() const { return laps_; }
  std::string text() const;  // "31 ms = read 12 + passes 19"

 private:
  double total() const;

  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::vector<std::pair<std::string, double>> laps_;
};

}  // namespace dc::driver
