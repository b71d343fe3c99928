// The calls of cuBLASLt as we declare them, next to its header.
#include "runtime/kernel/cuda/cublas_lt.h"

#include <cublasLt.h>

#include "tests/double/same_interface.h"

namespace dc::runtime::kernel::cuda {
namespace {

#define DC_COMPARE(symbol, member, parameters) \
  static_assert(tests::Calls<decltype(CublasLt::member), decltype(&::symbol)>::kFit, #symbol);
DC_CUBLAS_LT_CALLS(DC_COMPARE)
#undef DC_COMPARE

static_assert(sizeof(LtAlgorithm) == sizeof(cublasLtMatmulAlgo_t) &&
              sizeof(LtChoice) == sizeof(cublasLtMatmulHeuristicResult_t) &&
              offsetof(LtChoice, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(kLtSuccess == CUBLAS_STATUS_SUCCESS && kLtF32 == CUDA_R_32F &&
              kLtBF16 == CUDA_R_16BF && kLtComputeF32 == CUBLAS_COMPUTE_32F);
static_assert(kLtTransposeA == CUBLASLT_MATMUL_DESC_TRANSA &&
              kLtTransposeB == CUBLASLT_MATMUL_DESC_TRANSB &&
              kLtEpilogue == CUBLASLT_MATMUL_DESC_EPILOGUE &&
              kLtBias == CUBLASLT_MATMUL_DESC_BIAS_POINTER && kLtTransposed == CUBLAS_OP_T &&
              kLtAddsBias == CUBLASLT_EPILOGUE_BIAS);
static_assert(kLtBatch == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT &&
              kLtBatchStride == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET &&
              kLtWorkspace == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES &&
              kLtAlignmentA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
              kLtAlignmentA + 3 == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
#if CUDART_VERSION >= 13000
static_assert(kLtBatchMode == CUBLASLT_MATRIX_LAYOUT_BATCH_MODE &&
              kLtPointers == CUBLASLT_BATCH_MODE_POINTER_ARRAY);
#endif

}  // namespace
}  // namespace dc::runtime::kernel::cuda
