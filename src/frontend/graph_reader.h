// Streams models/<name>.json into a RawModel.
#pragma once

#include <string>
#include <string_view>

#include "src/base/json_events.h"
#include "src/base/status.h"
#include "src/frontend/raw_model.h"

namespace dc::frontend {

inline constexpr int64_t kSchemaMajor = 8;
inline constexpr int64_t kSchemaMinor = 17;  // newest one this reader was tried with

// `what` names the file in errors. An archive of another schema major is refused, whatever else is
// in it. `also` receives the same events.
base::Result<RawModel> read_graph(std::string_view json, const std::string& what,
                                  base::JsonEvents* also = nullptr);

}  // namespace dc::frontend
