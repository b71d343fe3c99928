// What an instruction does, in the text form of a plan.
#pragma once

#include "runtime/plan/plan.h"
#include "runtime/report/text_writer.h"

namespace dc::runtime::report {

// "%12 = aten.mm.default(self=%3, mat2=%7) provider=native", "%2 = copy(%1)", "wait(event 3)"
void write_operation(TextWriter& out, const plan::Instruction& in);

}  // namespace dc::runtime::report
