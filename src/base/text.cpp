#include "src/base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <vector>

#include "src/base/utf8.h"

namespace dc::base {
namespace {

// `hundredths` / 100 with one or two decimals; integer arithmetic, so no locale.
std::string decimal(int64_t hundredths, int places) {
  if (places == 1) hundredths = (hundredths + 5) / 10;
  const int64_t scale = places == 1 ? 10 : 100;
  std::string fraction = std::to_string(hundredths % scale);
  fraction.insert(0, static_cast<size_t>(places) - fraction.size(), '0');
  return std::to_string(hundredths / scale) + "." + fraction;
}

int64_t in_hundredths(int64_t value, int64_t unit) {
  return static_cast<int64_t>(static_cast<long double>(value) * 100 / unit + 0.5L);
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  const size_t columns = b.size() + 1;
  std::vector<int> before(columns), last(columns), row(columns);
  for (size_t j = 0; j < columns; ++j) last[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j < columns; ++j) {
      const int replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> known) {
  constexpr size_t kMost = 4;
  std::vector<std::string_view> best;
  int best_distance = std::max<int>(1, static_cast<int>(word.size()) / 3);
  for (std::string_view candidate : known) {
    const int distance = edit_distance(word, candidate);
    if (distance > best_distance) continue;
    if (distance < best_distance) best.clear();
    best_distance = distance;
    best.push_back(candidate);
  }
  if (best.empty() || best.size() > kMost) return "";
  std::string text = "; did you mean ";
  for (size_t i = 0; i < best.size(); ++i) {
    if (i > 0) text += i + 1 == best.size() ? " or " : ", ";
    text += "'" + std::string(best[i]) + "'";
  }
  return text + "?";
}

std::string format_bytes(int64_t bytes) {
  if (bytes < 0) return "-" + format_bytes(bytes == INT64_MIN ? INT64_MAX : -bytes);
  if (bytes < 1024) return std::to_string(bytes) + " B";
  constexpr std::array<const char*, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int64_t unit = 1024;
  size_t index = 0;
  while (index + 1 < kUnits.size() && in_hundredths(bytes, unit) >= 102395) {
    unit *= 1024;
    ++index;
  }
  return decimal(in_hundredths(bytes, unit), 1) + " " + kUnits[index];
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  double scale = 0;
  if (unit.empty() || unit == "B") scale = 1;
  constexpr std::array<std::string_view, 4> kPrefixes = {"K", "M", "G", "T"};
  double binary = 1, metric = 1;
  for (std::string_view prefix : kPrefixes) {
    binary *= 1024;
    metric *= 1000;
    if (unit == prefix || unit == std::string(prefix) + "iB") scale = binary;
    if (unit == std::string(prefix) + "B" || (prefix == "K" && unit == "kB")) scale = metric;
  }
  const double bytes = number * scale;
  const bool fits = bytes >= 0 && bytes < static_cast<double>(std::numeric_limits<int64_t>::max());
  if (error != std::errc() || scale == 0 || !fits) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

std::string format_duration(int64_t nanos) {
  if (nanos < 0) return "-" + format_duration(nanos == INT64_MIN ? INT64_MAX : -nanos);
  if (nanos < 1000) return std::to_string(nanos) + " ns";
  if (in_hundredths(nanos, 1000) < 100000) return decimal(in_hundredths(nanos, 1000), 2) + " us";
  if (in_hundredths(nanos, 1000000) < 100000) {
    return decimal(in_hundredths(nanos, 1000000), 2) + " ms";
  }
  if (in_hundredths(nanos, 1000000000) < 6000) {
    return decimal(in_hundredths(nanos, 1000000000), 2) + " s";
  }
  const int64_t seconds = (nanos / 1000000 + 500) / 1000;
  const auto two = [](int64_t v) { return (v < 10 ? "0" : "") + std::to_string(v); };
  if (seconds < 3600) return std::to_string(seconds / 60) + " min " + two(seconds % 60) + " s";
  const int64_t minutes = (seconds + 30) / 60;
  return std::to_string(minutes / 60) + " h " + two(minutes % 60) + " min";
}

std::string count_of(int64_t count, std::string_view what) {
  std::string text = std::to_string(count) + " " + std::string(what);
  if (count == 1) return text;
  const auto ends_in = [&](std::string_view end) { return what.ends_with(end); };
  const bool vowel = what.size() > 1 && std::string_view("aeiou").find(what[what.size() - 2]) !=
                                            std::string_view::npos;
  if (ends_in("y") && !vowel) return text.replace(text.size() - 1, 1, "ies");
  const bool hisses = ends_in("s") || ends_in("x") || ends_in("ch") || ends_in("sh");
  return text + (hisses ? "es" : "s");
}

std::string printable(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_control = (byte < 0x20 && byte != '\n') || byte == 0x7f;
    const size_t length = is_control ? 0 : utf8_length(text.substr(i));
    result += length > 0 ? text.substr(i, length) : "?";
    i += std::max<size_t>(length, 1);
  }
  return result;
}

bool glob_match(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0;
  size_t star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    const bool more = p < pattern.size();
    const bool escaped = more && pattern[p] == '\\' && p + 1 < pattern.size();
    if (more && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (escaped ? pattern[p + 1] == text[t]
                       : more && (pattern[p] == '?' || pattern[p] == text[t])) {
      p += escaped ? 2 : 1;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace dc::base
