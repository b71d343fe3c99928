// Drives a fuzz target over mutations from fixed seeds, so that every run does the same. When the
// target ends the process, the seed, and of a text the text itself, is on stderr.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dc::fuzz {

// Runs the target over `good`, then over `rounds` mutations of it as bytes (a tenth of them under
// the thread sanitizer).
void run_byte_mutations(std::string_view good, uint32_t rounds);
// The same, mutated as text.
void run_text_mutations(std::string_view good, uint32_t rounds);
// Runs the target over `head` with that many zeros behind it, then with `rounds` times random
// bytes.
void run_random_tails(std::string_view head, size_t tail, uint32_t rounds);

}  // namespace dc::fuzz
