// Text of one program.
#pragma once

#include <string>

#include "src/ir/step.h"

namespace dc::ir {

void print_program(const Program& program, const Step& step, std::string& out);

}  // namespace dc::ir
