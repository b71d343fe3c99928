// Gives the symbols of dynamic shapes their sizes, so that the model becomes a static one.
#pragma once

#include <string>
#include <vector>

#include "src/frontend/description.h"
#include "src/frontend/import.h"
#include "src/frontend/raw_model.h"

namespace dc::frontend {

// Replaces every symbolic extent and number of `model` by its value and takes out the nodes that
// computed such numbers. A dim goes by the name that the exporter recorded, by its symbol, or by
// input and position ("ids.0"). Refused: a name that is none of these, a dim that is missing or out
// of its range (78), a size or a condition of the archive that does not come out (65). `notes`
// gets a line with the sizes. A model without symbols stays as it is.
base::Status bind_dims(RawModel& model, const Description& description,
                       const std::vector<DimSize>& dims, std::vector<std::string>& notes);

}  // namespace dc::frontend
