// What `dcc simulate` prints of several numbers of ranks.
#pragma once

#include <string>

#include "src/driver/scaling.h"

namespace dc::cli {

// `decided`: whose decisions they are, in words.
std::string scaling_table(const driver::Scaling& scaling, const std::string& decided);
// "dcc.scaling/1"
std::string scaling_json(const driver::Scaling& scaling, const std::string& decided);

}  // namespace dc::cli
