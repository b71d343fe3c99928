// The identity of a model: what a plan compiled from it may depend on.
#pragma once

#include <string>

#include "src/ir/step.h"

namespace dc::frontend {

// SHA-256, hex, over graph, signature, records and constants of an imported step. Names of values,
// the file's name, the order of its entries and the bytes of the weights do not count; nor does the
// optimizer, which is configuration.
std::string model_digest(const ir::Step& step);

}  // namespace dc::frontend
