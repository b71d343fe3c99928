// Edits of good inputs, for the tests that drive fuzz targets from fixed seeds.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace dc::fuzz {

// One to eight edits: bytes, bits, 32-bit words (offsets, ids, lengths), words copied, the end cut.
void mutate_bytes(std::vector<uint8_t>& bytes, std::mt19937& random);

// One to four edits: numbers and names replaced by others, lines dropped, doubled or swapped, bytes
// changed, the end cut.
void mutate_text(std::string& text, std::mt19937& random);

}  // namespace dc::fuzz
