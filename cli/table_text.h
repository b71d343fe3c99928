// Numbers and columns of the tables that dcc prints.
#pragma once

#include <string>

namespace dc::cli {

// "3.14": with so many digits after the point.
std::string fixed(double value, int digits);
// Set to the right of a column, with two spaces behind it. What is wider stays whole.
std::string cell(std::string text, size_t width);

}  // namespace dc::cli
