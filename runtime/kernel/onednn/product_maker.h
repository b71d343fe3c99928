// Makes matmul primitives of oneDNN and what is copied around them, or takes native::multiply()
// where it is faster: for an instruction that is one product, or for each of several of an
// instruction.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <optional>

#include "runtime/kernel/native/copies/regions.h"
#include "runtime/kernel/onednn/parts.h"
#include "runtime/kernel/onednn/product_shape.h"

namespace dc::runtime::kernel::onednn {

// alpha * product + beta * added; `added` is broadcast to the product.
struct ProductSum {
  BoundTensor added;
  double alpha = 1, beta = 1;
};

class ProductMaker {
 public:
  // result = left x right of f32 or bf16 matrices, or batches of them; a refusal is the call's.
  // With `sum` what it says is added. The sizes and strides stay the caller's.
  ProductMaker(native::Call& call, const BoundTensor& left, const BoundTensor& right,
               const BoundTensor& result, std::optional<ProductSum> sum = std::nullopt);
  // For a sum of products: the result, without gaps, may be f32 where the others are bf16. With
  // `adds`, result += left x right, and it is f32.
  static ProductMaker of_sum(native::Call& call, const BoundTensor& left, const BoundTensor& right,
                             const BoundTensor& result, bool adds);

  // The kernel of the instruction, which it is alone.
  native::Made make();

  // One kernel of several: first the scratch that it needs, 0 after a refusal; then the kernel with
  // scratch of so many bytes that it may share with the others, and with tensors at these
  // addresses; null after a refusal.
  int64_t scratch_bytes();
  std::unique_ptr<Kernel> place(std::byte* scratch, std::byte* left, std::byte* right,
                                std::byte* result);

 private:
  // An operand or the result.
  struct Operand {
    BoundTensor tensor;
    Matrices seen;                        // by the primitive
    base::DType type = base::DType::F32;  // the primitive's
    int64_t copy = -1;  // offset in scratch of what stands for it; -1: it is taken where it is

    std::byte* data(std::byte* scratch) const {
      return copy < 0 ? static_cast<std::byte*>(tensor.data) : scratch + copy;
    }
    // As the primitive sees it, and the same elements as the plan has them.
    native::Region primitive_region(std::byte* scratch) const;
    native::Region plan_region() const;
    dnnl::memory::desc desc() const { return {seen.sizes, type_of(type), seen.strides}; }
  };

  void check();
  bool is_in_place() const;  // by native::multiply()
  bool adds() const { return beta_ != 0; }
  bool adds_row() const;
  void lay_out();
  void lay(Operand& operand, base::DType type, bool may_repeat);
  void lay_result(base::DType type);
  void lay_row(base::DType type);
  void place_operand(Operand& operand, Matrices seen, base::DType type, bool moves);
  // make(), or nothing and a refusal: oneDNN says what it lacks by an exception.
  template <typename F>
  auto guarded(F&& make) -> decltype(make());
  dnnl::matmul::primitive_desc primitive() const;
  std::unique_ptr<Kernel> build(std::byte* scratch);
  native::CopyRegions copies_before(std::byte* scratch);

  native::Call& call_;
  Operand left_, right_, result_, added_;
  double alpha_ = 1, beta_ = 0;
  bool is_of_sum_ = false;  // what is added is the result
  std::vector<int64_t> added_strides_;
  Parts parts_;
  dnnl::matmul::primitive_desc primitive_;
  int64_t own_scratch_ = 0;  // offset of the primitive's
};

}  // namespace dc::runtime::kernel::onednn
