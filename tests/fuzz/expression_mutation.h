// Changes of the text of a fused kernel's expression: one thing of a well-formed one, as a hostile
// plan may have it, or some of its characters.
#pragma once

#include <string>

#include "tests/fuzz/kernel_mutation.h"

namespace dc::fuzz {

void mutate_expression(std::string& text, Choices& choices);

}  // namespace dc::fuzz
