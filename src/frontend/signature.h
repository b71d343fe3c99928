// Decodes the signature: what each graph input and output is.
#pragma once

#include "src/base/status.h"
#include "src/frontend/raw_model.h"
#include "src/frontend/tape.h"

namespace dc::frontend {

base::Result<RawInput> read_input_spec(TapeValue value, Names& names);
base::Result<RawOutput> read_output_spec(TapeValue value, Names& names);

}  // namespace dc::frontend
