// Characters of UTF-8.
#pragma once

#include <cstddef>
#include <string_view>

namespace dc::base {

// Bytes of the character that the text begins with; 0 if it does not begin with valid UTF-8.
size_t utf8_length(std::string_view text);

}  // namespace dc::base
