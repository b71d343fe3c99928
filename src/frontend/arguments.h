// Decodes the unions by which model.json writes arguments, results and tensor types.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/frontend/raw_model.h"
#include "src/frontend/tape.h"

namespace dc::frontend {

// A malformed value is an error; a well-formed one of a kind we do not support sets arg.refusal.
base::Status read_argument(TapeValue value, Names& names, RawArg& arg);

// The tensors of one output of a node, appended in order; -1 for None and numbers.
base::Status read_results(TapeValue value, Names& names, std::vector<Name>& results);

base::Result<RawTensor> read_tensor(TapeValue value);

// Nothing later may overflow: the storage a tensor reaches, in bytes, fits int64 with room.
bool is_addressable(const RawTensor& tensor);

// {"name": "x"} or {"as_tensor": {"name": "x"}}; 0 when it is another kind of argument.
base::Result<Name> read_tensor_name(TapeValue value, Names& names);

base::Status malformed(const std::string& what);

}  // namespace dc::frontend
