// How the matrices of a product lie, as oneDNN's fast kernels take them: rows or columns without
// gaps, batches one behind the other or all the same matrix. Anything else is copied.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/kernel/kernel.h"

namespace dc::runtime::kernel::onednn {

// Row-major with any strides, in elements.
struct Matrices {
  std::vector<int64_t> sizes, strides;  // [rows, columns] or [batch, rows, columns]
};
Matrices matrices_of(const BoundTensor& tensor);

enum class Lies : uint8_t {
  Whole,   // every matrix of the batch behind the one before
  Same,    // one matrix for the whole batch
  Gapped,  // neither, or with gaps in the matrix
};
Lies how_it_lies(const Matrices& matrices);

// Of a copy without gaps, which keeps rows as rows.
std::vector<int64_t> dense_strides(const Matrices& matrices);

}  // namespace dc::runtime::kernel::onednn
