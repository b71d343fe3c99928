// Which parameter names mean the same tensor.
#pragma once

#include <map>
#include <string>

#include "src/base/status.h"
#include "src/frontend/description.h"
#include "src/frontend/raw_model.h"
#include "src/frontend/weights.h"

namespace dc::frontend {

// tied name -> canonical name, which is the first in the signature and tied to nothing itself. From
// the archive's description; for other exporters' files also from records that are the same bytes.
// An alias need not be in the signature: the exporter may have redirected its uses already.
base::Result<std::map<std::string, std::string>> find_ties(const RawModel& model,
                                                           const Description& description,
                                                           const Weights& weights);

}  // namespace dc::frontend
