// The error of an index that chooses nothing.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"

namespace dc::runtime::kernel::native {

inline base::Status index_outside(std::string_view op, int64_t index, int64_t size) {
  return base::Status(base::ErrorKind::BadInput, "DC6137",
                      "'" + std::string(op) + "' met the index " + std::to_string(index) +
                          " in a dim of size " + std::to_string(size) +
                          "; check that the data fits the model (tokens, labels, positions)");
}

}  // namespace dc::runtime::kernel::native
