// Checks of numbers on the command line, in the form that CLI11 wants: the complaint, or an empty
// text. CLI11's own conversions take "nan", "-1" for a number without sign, and "0100" for 64.
#pragma once

#include <string>

namespace CLI {
class Option;
}

namespace dc::cli {

std::string check_amount(const std::string& text);    // a finite number, 0 or more
std::string check_positive(const std::string& text);  // a finite number above 0
std::string check_seed(const std::string& text);      // a whole number, 0 or more, below 2^64

// The option takes whole numbers in decimal digits only; "0100" is 100.
void take_decimal(CLI::Option* option);

}  // namespace dc::cli
