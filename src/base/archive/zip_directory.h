// Decodes and checks the directory of a ZIP container. Part of zip.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/base/archive/zip.h"
#include "src/base/status.h"

namespace dc::base::archive {

// Entries in directory order, folders left out. `path` is for messages.
Result<std::vector<ZipEntry>> read_zip_directory(std::span<const uint8_t> file,
                                                 const std::string& path, const ZipLimits& limits);

}  // namespace dc::base::archive
