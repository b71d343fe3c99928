// How a line of the report is set. Private to this folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

namespace dc::runtime::report {

// "memory           ...": the name of a line and what it says.
inline std::string report_line(std::string name, const std::string& text) {
  constexpr size_t kNameWidth = 19;
  name.resize(std::max(kNameWidth, name.size() + 1), ' ');
  return name + text + "\n";
}

// "99.8 %" of a whole that is not 0.
inline std::string percent(int64_t part, int64_t whole) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%",
                100 * static_cast<double>(part) / static_cast<double>(whole));
  return text;
}

}  // namespace dc::runtime::report
