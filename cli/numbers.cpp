#include "cli/numbers.h"

#include <CLI/CLI.hpp>
#include <algorithm>
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

// Without leading zeros, which would make it octal for CLI11.
std::string make_decimal(std::string& text) {
  const size_t sign = text.starts_with('-') ? 1 : 0;
  const std::string digits = text.substr(sign);
  const bool is_whole =
      !digits.empty() && std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
  if (!is_whole) return "'" + text + "' is no whole number";
  const size_t first = std::min(digits.find_first_not_of('0'), digits.size() - 1);
  text = text.substr(0, sign) + digits.substr(first);
  return "";
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

void take_decimal(CLI::Option* option) { option->transform(CLI::Validator(make_decimal, "")); }

}  // namespace dc::cli
