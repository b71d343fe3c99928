#include "cli/table_text.h"

#include <cstdio>

namespace dc::cli {

std::string fixed(double value, int digits) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string cell(std::string text, size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
  return text + "  ";
}

}  // namespace dc::cli
