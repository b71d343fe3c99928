// A tensor inside an archive entry: which bytes of the entry's storage it is, and copying them out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/base/archive/zip.h"
#include "src/base/dtype.h"
#include "src/base/status.h"

namespace dc::base::archive {

struct TensorRecord {
  std::string entry;  // below the archive's root folder
  DType dtype = DType::F32;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // elements
  int64_t offset = 0;            // elements
};

// Bytes of the tensor when contiguous. BadInput on overflow or negative sizes.
Result<int64_t> contiguous_bytes(const TensorRecord& record);

// BadInput unless every element lies inside a storage of so many bytes.
Status check_within(const TensorRecord& record, int64_t storage_bytes);

// Row-major copy; `out` has contiguous_bytes() bytes.
Status copy_contiguous(std::span<const uint8_t> storage, const TensorRecord& record,
                       std::span<uint8_t> out);

// The same straight from an archive; MissingInput if the entry is absent. Stored entries are read
// in place, without their CRC.
Status copy_contiguous(const ZipArchive& archive, const TensorRecord& record,
                       std::span<uint8_t> out);

}  // namespace dc::base::archive
