// Matrix products on a GPU, by cuBLASLt: aten.mm, bmm, addmm and baddbmm, dc.add_product and
// dc.two_products of f32 or bf16, summed in f32 (no TF32).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/kernel/cuda/cublas_lt.h"
#include "runtime/kernel/cuda/workshop.h"
#include "runtime/kernel/native/call.h"

namespace dc::runtime::kernel::cuda {

bool is_product(std::string_view op);

// result = alpha * left x right + beta * added, or + bias for each row. Without `added`, beta is of
// what the result holds.
struct ProductRequest {
  BoundTensor left, right, result;
  std::optional<BoundTensor> added;  // as large as the result
  const void* bias = nullptr;
  float alpha = 1, beta = 0;
  // A second product of the same types, and where the addresses of both products' matrices lie on
  // the GPU: right ones, left ones, results.
  struct SecondProduct {
    BoundTensor left, right, result;
    std::byte* table = nullptr;
  };
  std::optional<SecondProduct> second;
};

// Lives as long as its kernels.
class Products {
 public:
  // Unavailable (69): DC6157 without cuBLASLt, DC6158 if it does not begin.
  static base::Result<std::unique_ptr<Products>> open(device::CudaDevice& device);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // The kernel of an instruction of one of the plan's streams, with its workspace in the plan's
  // memory if that has room. Matrices lie in rows or columns, any distance apart; operands that lie
  // otherwise are copied to scratch before. A result that lies otherwise is refused: Unsupported
  // (81), DC6159, as is what cuBLASLt has no algorithm for.
  base::Result<std::unique_ptr<Kernel>> kernel(Workshop& workshop, native::Call& call,
                                               int32_t stream);
  // result = left x right, or that added to the result, which may be f32 where the operands are
  // bf16. For a part of an instruction, with a workspace beyond the plan's memory; refuses as
  // kernel() does, and operands that lie otherwise, too.
  base::Result<std::unique_ptr<Kernel>> product(native::Call& call, const BoundTensor& left,
                                                const BoundTensor& right, const BoundTensor& result,
                                                bool adds, int32_t stream);

 private:
  // `workshop`: whose memory of the plan it may take; null: none of it.
  base::Result<std::unique_ptr<Kernel>> product(native::Call& call, const ProductRequest& request,
                                                int32_t stream, Workshop* workshop);
  base::Result<std::unique_ptr<Kernel>> add_product(Workshop& workshop, native::Call& call,
                                                    int32_t stream);
  // dc.two_products: a batch of two, wherever the matrices lie; one after the other by a library of
  // CUDA 12, which has no such batches.
  base::Result<std::unique_ptr<Kernel>> two_products(Workshop& workshop, native::Call& call,
                                                     int32_t stream);
  Products(device::CudaDevice& device, const CublasLt& calls) : device_(device), calls_(calls) {}
  // Memory for products of one stream, each while it runs. OutOfMemory (80).
  base::Result<std::byte*> workspace(int32_t stream);
  // The addresses on the GPU, as long as this object lives. OutOfMemory (80).
  base::Result<std::byte*> address_table(std::span<void* const> addresses);

  device::CudaDevice& device_;
  const CublasLt& calls_;
  LtHandle handle_ = nullptr;
  std::map<int32_t, std::unique_ptr<device::DeviceMemory>> workspaces_;
  std::vector<std::unique_ptr<device::DeviceMemory>> tables_;
  int64_t table_used_ = 0;  // bytes of the last one
};

}  // namespace dc::runtime::kernel::cuda
