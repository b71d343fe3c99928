// Standard input, output and error as a program can rely on them.
#pragma once

#include "src/base/status.h"

namespace dc::base {

// Opens /dev/null as each of the descriptors 0 to 2 that is closed. To be called first: otherwise
// the first file or socket that a program opens becomes its standard output.
void open_standard_streams();

// Io (74), DC2809, if something that was printed has not arrived (a full disk, /dev/full). Flushes.
Status check_standard_output();

}  // namespace dc::base
