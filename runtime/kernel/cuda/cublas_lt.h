// cuBLASLt, CUDA's matrix products, opened when a plan has products: programs start where there is
// none, and building them needs no CUDA.
//
// The types are those of the library's binary interface (cublasLt.h, CUDA 12 and 13);
// tests/runtime/kernel/cuda/cublas_lt_interface_test.cpp compares them with its header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/device/cuda/driver.h"
#include "src/base/status.h"

namespace dc::runtime::kernel::cuda {

struct OpaqueLt;
struct OpaqueLtProduct;
struct OpaqueLtMatrix;
struct OpaqueLtPreference;
using LtHandle = OpaqueLt*;
using LtProductDesc = OpaqueLtProduct*;
using LtMatrixDesc = OpaqueLtMatrix*;
using LtPreference = OpaqueLtPreference*;
struct LtAlgorithm {
  uint64_t data[8];
};
struct LtChoice {  // cublasLtMatmulHeuristicResult_t
  LtAlgorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

inline constexpr int kLtSuccess = 0;
inline constexpr int kLtF32 = 0, kLtBF16 = 14;  // element types (cudaDataType)
inline constexpr int kLtComputeF32 = 68;        // products and sums in f32
// Attributes of products, their values, those of matrices and of the search for an algorithm.
inline constexpr int kLtTransposeA = 3, kLtTransposeB = 4, kLtEpilogue = 7, kLtBias = 8;
inline constexpr int kLtTransposed = 1;
inline constexpr uint32_t kLtAddsBias = 4;
inline constexpr int kLtBatch = 5, kLtBatchStride = 6, kLtBatchMode = 8;
inline constexpr uint32_t kLtPointers = 1;  // a mode, of CUDA 13: data is addresses of matrices
inline constexpr int kLtWorkspace = 1, kLtAlignmentA = 5;  // B, C and D follow

// f(name in the library, member, parameters)
// clang-format off
#define DC_CUBLAS_LT_CALLS(f)                                                                     \
  f(cublasLtCreate, create, (LtHandle* handle))                                                   \
  f(cublasLtDestroy, destroy, (LtHandle handle))                                                  \
  f(cublasLtMatmulDescCreate, create_product, (LtProductDesc* desc, int compute, int scale))      \
  f(cublasLtMatmulDescDestroy, destroy_product, (LtProductDesc desc))                             \
  f(cublasLtMatmulDescSetAttribute, set_product,                                                  \
    (LtProductDesc desc, int attribute, const void* value, size_t bytes))                         \
  f(cublasLtMatrixLayoutCreate, create_matrix,                                                    \
    (LtMatrixDesc* desc, int type, uint64_t rows, uint64_t columns, int64_t leading))             \
  f(cublasLtMatrixLayoutDestroy, destroy_matrix, (LtMatrixDesc desc))                             \
  f(cublasLtMatrixLayoutSetAttribute, set_matrix,                                                 \
    (LtMatrixDesc desc, int attribute, const void* value, size_t bytes))                          \
  f(cublasLtMatmulPreferenceCreate, create_preference, (LtPreference* preference))                \
  f(cublasLtMatmulPreferenceDestroy, destroy_preference, (LtPreference preference))               \
  f(cublasLtMatmulPreferenceSetAttribute, set_preference,                                         \
    (LtPreference preference, int attribute, const void* value, size_t bytes))                    \
  f(cublasLtMatmulAlgoGetHeuristic, choose,                                                       \
    (LtHandle handle, LtProductDesc desc, LtMatrixDesc a, LtMatrixDesc b, LtMatrixDesc c,         \
     LtMatrixDesc d, LtPreference preference, int wanted, LtChoice* choices, int* found))         \
  f(cublasLtMatmul, multiply,                                                                     \
    (LtHandle handle, LtProductDesc desc, const void* alpha, const void* a, LtMatrixDesc a_desc,  \
     const void* b, LtMatrixDesc b_desc, const void* beta, const void* c, LtMatrixDesc c_desc,    \
     void* d, LtMatrixDesc d_desc, const LtAlgorithm* algorithm, void* workspace,                 \
     size_t workspace_bytes, device::cuda::StreamHandle stream))
// clang-format on

struct CublasLt {
#define DC_MEMBER(symbol, member, parameters) int(*member) parameters = nullptr;
  DC_CUBLAS_LT_CALLS(DC_MEMBER)
#undef DC_MEMBER
};

// The calls of libcublasLt.so.13 or .12, for the whole process; of the newest whose major version a
// driver of this version (cuDriverGetVersion) runs. Unavailable (69), DC6157, if there is none.
base::Result<const CublasLt*> open_cublas_lt(int driver_version);

}  // namespace dc::runtime::kernel::cuda
