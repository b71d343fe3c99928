// Which bytes of the archive are which parameter, buffer or constant.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/base/status.h"
#include "src/frontend/archive_files.h"
#include "src/ir/step.h"

namespace dc::frontend {

class Weights {
 public:
  // Reads the archive's tables. Pickled tensors are refused; so is a record too short for its
  // tensor.
  static base::Result<Weights> read(const ArchiveFiles& files);

  // The record of a tensor; one without entry if the archive has no bytes for it.
  ir::ArchiveRecord find(const std::string& fqn) const;

 private:
  std::unordered_map<std::string, ir::ArchiveRecord> records_;  // lookups only
};

// The tensor's bytes, row-major. The record must have an entry.
base::Result<std::vector<uint8_t>> contiguous_data(const ArchiveFiles& files,
                                                   const ir::ArchiveRecord& record);

}  // namespace dc::frontend
