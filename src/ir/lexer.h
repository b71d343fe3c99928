// Splits the textual form into tokens.
#pragma once

#include <string_view>
#include <vector>

#include "src/ir/text_reader.h"

namespace dc::ir {

// Ends with a token of kind End. On a malformed token returns what is wrong with the last token of
// `out`.
std::string tokenize(std::string_view text, std::vector<Token>& out);

}  // namespace dc::ir
