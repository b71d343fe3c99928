// Reads one program.
#pragma once

#include "src/ir/step.h"
#include "src/ir/text_reader.h"

namespace dc::ir {

// The tables of `step` are complete; the program is appended to it. False after an error, which
// `reader` holds.
bool parse_program(TextReader& reader, Step& step);

}  // namespace dc::ir
