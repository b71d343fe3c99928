// The double of libcublasLt.so.13: the calls of runtime/kernel/cuda/cublas_lt.h. A product is three
// loops over the memory of the double of a GPU, in f32, in order.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "runtime/kernel/cuda/cublas_lt.h"
#include "runtime/kernel/scalar/elements.h"
#include "tests/double/gpu.h"

namespace dc::runtime::kernel::cuda {

struct OpaqueLt {};
struct OpaqueLtProduct {
  int transpose_a = 0, transpose_b = 0;
  uint32_t epilogue = 1;
  uint64_t bias = 0;
};
struct OpaqueLtMatrix {
  int type;
  uint64_t rows, columns;
  int64_t leading;
  int32_t batch = 1;
  int64_t batch_stride = 0;
  uint32_t mode = 0;
};
struct OpaqueLtPreference {
  std::map<int, uint64_t> values;
};

namespace {

using gpu_double::Memory;

constexpr int kInvalid = 7, kNotSupported = 15, kIllegalAddress = 700;

template <typename T>
int read(T& to, const void* from, size_t bytes) {
  if (bytes != sizeof to) return kInvalid;
  std::memcpy(&to, from, bytes);
  return kLtSuccess;
}

size_t element_bytes(const OpaqueLtMatrix& m) { return m.type == kLtBF16 ? 2 : 4; }
bool is_sound(const OpaqueLtMatrix& m) {
  return (m.type == kLtF32 || m.type == kLtBF16) && m.rows > 0 && m.columns > 0 &&
         m.leading >= static_cast<int64_t>(m.rows) && m.batch > 0;
}

// Elements of a matrix of a batch, which lies in columns.
class Elements {
 public:
  Elements(const OpaqueLtMatrix& matrix, const void* at, int64_t batch)
      : matrix_(matrix), at_(place(matrix, at, batch)) {}
  float get(uint64_t row, uint64_t column, bool transposed = false) const {
    const std::byte* place = element(transposed ? column : row, transposed ? row : column);
    if (matrix_.type == kLtBF16) {
      scalar::BF16 value{};
      std::memcpy(&value, place, 2);
      return scalar::widen(value);
    }
    float value = 0;
    std::memcpy(&value, place, 4);
    return value;
  }
  void put(uint64_t row, uint64_t column, float value) {
    const scalar::BF16 narrow = scalar::narrow_bf16(value);
    const bool is_bf16 = matrix_.type == kLtBF16;
    std::memcpy(element(row, column), is_bf16 ? static_cast<const void*>(&narrow) : &value,
                element_bytes(matrix_));
  }

 private:
  static std::byte* place(const OpaqueLtMatrix& matrix, const void* at, int64_t batch) {
    std::byte* const memory = Memory::instance().resolve(reinterpret_cast<uint64_t>(at));
    if (matrix.mode != kLtPointers)
      return memory + static_cast<size_t>(batch * matrix.batch_stride) * element_bytes(matrix);
    uint64_t address = 0;
    std::memcpy(&address, memory + static_cast<size_t>(batch) * sizeof address, sizeof address);
    return Memory::instance().resolve(address);
  }
  std::byte* element(uint64_t row, uint64_t column) const {
    return at_ + (row + column * static_cast<uint64_t>(matrix_.leading)) * element_bytes(matrix_);
  }
  const OpaqueLtMatrix& matrix_;
  std::byte* at_;
};

struct Product {
  OpaqueLtProduct desc;
  OpaqueLtMatrix a, b, c, d;
  const void *a_at, *b_at, *c_at;
  void* d_at;
  float alpha, beta;

  uint64_t terms() const { return desc.transpose_a != 0 ? a.rows : a.columns; }
  bool fits() const {
    const uint64_t rows = desc.transpose_a != 0 ? a.columns : a.rows;
    const uint64_t columns = desc.transpose_b != 0 ? b.rows : b.columns;
    const uint64_t other = desc.transpose_b != 0 ? b.columns : b.rows;
    return is_sound(a) && is_sound(b) && is_sound(c) && is_sound(d) && other == terms() &&
           d.rows == rows && d.columns == columns && c.rows == rows && c.columns == columns &&
           a.type == b.type && a.batch == d.batch && b.batch == d.batch && c.batch == d.batch &&
           a.mode == d.mode && b.mode == d.mode && c.mode == d.mode;
  }
  void run() const {
    for (int32_t n = 0; n < d.batch; ++n) {
      const Elements left(a, a_at, n), right(b, b_at, n), added(c, c_at, n);
      Elements result(d, d_at, n);
      OpaqueLtMatrix row{d.type, d.rows, 1, static_cast<int64_t>(d.rows)};
      // NOLINTNEXTLINE(performance-no-int-to-ptr): attributes are addresses as numbers
      const Elements bias(row, reinterpret_cast<const void*>(desc.bias), 0);
      for (uint64_t j = 0; j < d.columns; ++j) {
        for (uint64_t i = 0; i < d.rows; ++i) {
          float sum = 0;
          for (uint64_t k = 0; k < terms(); ++k)
            sum += left.get(i, k, desc.transpose_a != 0) * right.get(k, j, desc.transpose_b != 0);
          sum *= alpha;
          if (beta != 0) sum += beta * added.get(i, j);
          if (desc.epilogue == kLtAddsBias) sum += bias.get(i, 0);
          result.put(i, j, sum);
        }
      }
    }
  }
};

// As that of an algorithm that cuts sums in two.
size_t workspace_of(const Product& product) {
  return 4 * product.d.rows * product.d.columns * static_cast<size_t>(product.d.batch);
}
constexpr size_t kCountBytes = 4;
bool begins_with_zeros(const void* workspace) {
  const std::byte* at = Memory::instance().resolve(reinterpret_cast<uintptr_t>(workspace));
  return std::all_of(at, at + kCountBytes, [](std::byte byte) { return byte == std::byte{0}; });
}
void clobber(const void* workspace, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(workspace);
  Memory& memory = Memory::instance();
  if (!memory.holds(address, bytes)) return gpu_double::fail_for_good(kIllegalAddress);
  std::memset(memory.resolve(address), 0xA5, bytes);
}

}  // namespace
}  // namespace dc::runtime::kernel::cuda

using namespace dc::runtime::kernel::cuda;  // NOLINT: the functions below belong to no namespace
using dc::gpu_double::asked_to_fail;
using dc::runtime::device::cuda::StreamHandle;

extern "C" {

int cuMemsetD8Async(dc::runtime::device::cuda::Address to, unsigned char value, size_t bytes,
                    StreamHandle stream);

int cublasLtCreate(LtHandle* handle) {
  if (const int asked = asked_to_fail("cublasLtCreate"); asked != 0) return asked;
  *handle = new OpaqueLt();
  return kLtSuccess;
}
int cublasLtDestroy(LtHandle handle) {
  delete handle;
  return kLtSuccess;
}
int cublasLtMatmulDescCreate(LtProductDesc* desc, int compute, int scale) {
  if (compute != kLtComputeF32 || scale != kLtF32) return kNotSupported;
  *desc = new OpaqueLtProduct();
  return kLtSuccess;
}
int cublasLtMatmulDescDestroy(LtProductDesc desc) {
  delete desc;
  return kLtSuccess;
}
int cublasLtMatmulDescSetAttribute(LtProductDesc desc, int attribute, const void* value,
                                   size_t bytes) {
  if (attribute == kLtTransposeA) return read(desc->transpose_a, value, bytes);
  if (attribute == kLtTransposeB) return read(desc->transpose_b, value, bytes);
  if (attribute == kLtEpilogue) return read(desc->epilogue, value, bytes);
  return attribute == kLtBias ? read(desc->bias, value, bytes) : kInvalid;
}
int cublasLtMatrixLayoutCreate(LtMatrixDesc* desc, int type, uint64_t rows, uint64_t columns,
                               int64_t leading) {
  *desc = new OpaqueLtMatrix{type, rows, columns, leading};
  return kLtSuccess;
}
int cublasLtMatrixLayoutDestroy(LtMatrixDesc desc) {
  delete desc;
  return kLtSuccess;
}
int cublasLtMatrixLayoutSetAttribute(LtMatrixDesc desc, int attribute, const void* value,
                                     size_t bytes) {
  if (attribute == kLtBatch) return read(desc->batch, value, bytes);
  if (attribute == kLtBatchMode) {  // as a library of CUDA 12
    if (std::getenv("DOUBLE_CUBLAS_12") != nullptr) return kInvalid;
    return read(desc->mode, value, bytes);
  }
  return attribute == kLtBatchStride ? read(desc->batch_stride, value, bytes) : kInvalid;
}
int cublasLtMatmulPreferenceCreate(LtPreference* preference) {
  *preference = new OpaqueLtPreference();
  return kLtSuccess;
}
int cublasLtMatmulPreferenceDestroy(LtPreference preference) {
  delete preference;
  return kLtSuccess;
}
int cublasLtMatmulPreferenceSetAttribute(LtPreference preference, int attribute, const void* value,
                                         size_t bytes) {
  uint64_t number = 0;
  std::memcpy(&number, value, bytes);
  preference->values[attribute] = number;
  return kLtSuccess;
}
int cublasLtMatmulAlgoGetHeuristic(LtHandle, LtProductDesc desc, LtMatrixDesc a, LtMatrixDesc b,
                                   LtMatrixDesc c, LtMatrixDesc d, LtPreference preference, int,
                                   LtChoice* choices, int* found) {
  const Product product{*desc, *a, *b, *c, *d, nullptr, nullptr, nullptr, nullptr, 1, 0};
  *found = product.fits() ? 1 : 0;
  choices[0].state = kLtSuccess;
  const auto most = preference->values.find(kLtWorkspace);
  if (most != preference->values.end() && most->second >= workspace_of(product))
    choices[0].workspace = workspace_of(product);
  choices[0].algorithm.data[0] = choices[0].workspace;
  return product.fits() ? kLtSuccess : kNotSupported;
}
int cublasLtMatmul(LtHandle, LtProductDesc desc, const void* alpha, const void* a,
                   LtMatrixDesc a_desc, const void* b, LtMatrixDesc b_desc, const void* beta,
                   const void* c, LtMatrixDesc c_desc, void* d, LtMatrixDesc d_desc,
                   const LtAlgorithm* algorithm, void* workspace, size_t workspace_bytes,
                   StreamHandle stream) {
  if (const int asked = asked_to_fail("cublasLtMatmul"); asked != 0) return asked;
  const Product product{*desc,
                        *a_desc,
                        *b_desc,
                        *c_desc,
                        *d_desc,
                        a,
                        b,
                        c,
                        d,
                        *static_cast<const float*>(alpha),
                        *static_cast<const float*>(beta)};
  const size_t needed = algorithm->data[0];
  if (!product.fits()) return kNotSupported;
  constexpr uintptr_t kAlignment = 256;
  if (workspace_bytes < needed ||
      (needed > 0 && reinterpret_cast<uintptr_t>(workspace) % kAlignment != 0))
    return kInvalid;
  // As algorithms that count in their workspace: it begins with zeros.
  if (needed > 0 &&
      cuMemsetD8Async(reinterpret_cast<uintptr_t>(workspace), 0, kCountBytes, stream) != 0)
    return kInvalid;
  reinterpret_cast<dc::gpu_double::Stream*>(stream)->add([product, workspace, needed] {
    if (needed > 0 && !begins_with_zeros(workspace))
      return dc::gpu_double::fail_for_good(kIllegalAddress);
    product.run();
    if (needed > 0) clobber(workspace, needed);
  });
  return kLtSuccess;
}

}  // extern "C"
