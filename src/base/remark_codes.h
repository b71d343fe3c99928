// Codes of remarks that the compiler writes and the reports read.
#pragma once

#include <string_view>

namespace dc::base {

// One price, of a byte alive at an instruction: what the bound over choices (src/bound) asks for
// it. Numbers: "program", "instruction" and "ns_per_gib", of one run of the program. No text.
inline constexpr std::string_view kBytePrice = "byte-price";
// How the bound weighs time, in millionths: "compute", "link", "copies"; how many prices follow:
// "instants"; their sum over all runs: "ns_per_gib".
inline constexpr std::string_view kTimeWeights = "time-weights";

}  // namespace dc::base
