#include "cli/numbers.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

namespace dc::cli {
namespace {

// A number within the range of float32, because updates compute in float32.
std::optional<double> finite(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const bool fits = std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max());
  return error == std::errc() && rest == end && fits ? std::optional(value) : std::nullopt;
}

}  // namespace

std::string check_amount(const std::string& text) {
  const std::optional<double> value = finite(text);
  return value && *value >= 0 ? "" : "'" + text + "' is no finite number of 0 or more";
}

std::string check_positive(const std::string& text) {
  const std::optional<double> value = finite(text);
  return value && *value > 0 ? "" : "'" + text + "' is no finite number above 0";
}

std::string check_seed(const std::string& text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end ? ""
                                             : "'" + text + "' is no whole number of 0 or more";
}

}  // namespace dc::cli
