// Small text matters: suggestions for misspelt words, sizes, times and counts for people, name
// patterns.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dc::base {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

// "; did you mean 'weight_decay'?" when one of the known words is close, or up to four as close as
// each other; otherwise "".
std::string did_you_mean(std::string_view word, std::span<const std::string_view> known);

std::string format_bytes(int64_t bytes);  // "512 B", "33.5 MiB"
// "100000", "512MiB" or "512M" (2^20 each), "20MB" (10^6); likewise with K, G, T.
std::optional<int64_t> parse_bytes(std::string_view text);
std::string format_duration(int64_t nanos);  // "850 ns", "1.20 ms", "2 min 05 s"
// "1 plan", "3 plans", "2 copies", "2 micro-batches": of a word whose plural is regular.
std::string count_of(int64_t count, std::string_view what);

// The text with control characters (but line feeds) and what is no UTF-8 as '?': names out of
// damaged files must not reach a terminal.
std::string printable(std::string_view text);

// `*` stands for any characters, `?` for one, a backslash makes the next character stand for
// itself; everything else stands for itself.
bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace dc::base
