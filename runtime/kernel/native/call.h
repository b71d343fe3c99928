// A native instruction while its kernel is being prepared: operands, results and attributes,
// checked as they are read.
//
// The first problem is remembered and reported by finish(), so a factory reads what it needs and
// needs no error handling.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/kernel/extra_scratch.h"
#include "runtime/kernel/kernel.h"
#include "runtime/kernel/native/convert.h"
#include "runtime/plan/mesh.h"

namespace dc::runtime::kernel::native {

// A contiguous tensor, the only kind that kernels of dc.* take. A running kernel reaches its bytes
// through on(). Kernels of aten.* take tensors of any strides: tensor().
struct Dense {
  void* data = nullptr;  // its address on the device
  base::DType dtype = base::DType::F32;
  int64_t count = 0;

  template <typename T>
  T* on(const device::Stream& stream) const {
    return static_cast<T*>(stream.resolve(data));
  }
  std::byte* address() const { return static_cast<std::byte*>(data); }
  int64_t bytes() const { return count * base::byte_size(dtype); }
};

class Call {
 public:
  // `extra`: scratch beyond the plan's. Null while the kernel's need is only measured.
  Call(const plan::Instruction& instruction, const AddressMap& addresses, const ExtraScratch* extra)
      : instruction_(instruction), addresses_(addresses), extra_(extra) {}

  Dense operand(size_t index);                     // the index-th argument, any element type
  Dense operand(size_t index, base::DType dtype);  // refused unless it has this type
  Dense result(size_t index);
  bool has_result(size_t index) const;     // false where the plan does not want it
  int64_t columns(size_t index);           // size of the last dim of an operand
  int64_t integer(std::string_view name);  // an attribute given as an integer or a bool
  double number(std::string_view name);    // an attribute given as a float, an integer or a bool
  bool has(std::string_view name) const;   // whether there is such an attribute
  // An attribute that lists mesh axes, as a mask.
  uint32_t axes(std::string_view name);

  // Arguments of aten.* by the name in their schema. Where the plan leaves an argument out or gives
  // None, it has its default.
  std::string_view op() const { return instruction_.op; }
  size_t tensor_count() const;  // arguments that are one tensor each
  bool is_tensor(std::string_view name) const;
  BoundTensor tensor(std::string_view name);  // refused unless it is one
  std::optional<BoundTensor> tensor_if(std::string_view name);
  std::vector<std::optional<BoundTensor>> tensors(std::string_view name);
  std::vector<int64_t> integers(std::string_view name);  // of a list or of one integer
  bool has_value(std::string_view name) const;           // given and not None
  bool is_fraction(std::string_view name) const;         // given as a floating-point number
  int64_t integer(std::string_view name, int64_t otherwise);
  double number(std::string_view name, double otherwise);
  std::string text(std::string_view name, std::string_view otherwise) const;
  // A number in the type that is computed with; integers are exact in integer types, fractions are
  // cut to them.
  template <typename T>
  T scalar(std::string_view name, T otherwise = T{}) {
    const plan::Arg* arg = given(name);
    if (arg == nullptr) return otherwise;
    require(arg->kind == plan::ArgKind::Float || arg->kind == plan::ArgKind::Int ||
                arg->kind == plan::ArgKind::Bool,
            "argument '" + std::string(name) + "' must be a number");
    return arg->kind == plan::ArgKind::Float ? store<T>(arg->f) : static_cast<T>(arg->i);
  }
  BoundTensor output(size_t index);  // result of any strides that keep its elements apart
  size_t outputs() const { return instruction_.outputs.size(); }
  // A dim counted from the end if negative; refused unless the tensor has it.
  size_t dim(std::string_view name, const BoundTensor& of, int64_t otherwise = 0);

  // Memory for the kernel alone while it runs, aligned to base::kAlignment; to be asked for once.
  // An address on the device; null while it is only measured.
  std::byte* scratch(int64_t bytes);
  int64_t scratch_bytes() const { return scratch_bytes_; }   // that were asked for
  int threads() const { return addresses_.plan().threads; }  // per rank

  int rank() const { return addresses_.rank(); }
  // The rank's place in its group along these axes.
  int place(uint32_t axes) const { return plan::index_in_group(addresses_.plan(), axes, rank()); }

  // Refuses the instruction with `problem` unless the condition holds.
  void require(bool condition, std::string_view problem);
  // Refuses the instruction for a reason that is not its own.
  void refuse(base::Status reason);
  // Refuses tensors whose sizes differ in a dim other than `except`.
  void same_sizes(const BoundTensor& a, const BoundTensor& b,
                  std::optional<size_t> except = std::nullopt);
  bool ok() const { return status_.ok(); }

  // The kernel, unless a problem was met.
  base::Result<std::unique_ptr<Kernel>> made(std::unique_ptr<Kernel> kernel) {
    if (!status_.ok()) return status_;
    return kernel;
  }
  template <typename K, typename... Fields>
  base::Result<std::unique_ptr<Kernel>> finish(Fields&&... fields) {
    if (!status_.ok()) return status_;
    return std::unique_ptr<Kernel>(std::make_unique<K>(std::forward<Fields>(fields)...));
  }

 private:
  BoundTensor bound(int64_t tensor, const std::string& what);
  Dense bind(int64_t tensor, const std::string& what);
  const plan::Arg* given(std::string_view name) const;
  const plan::Arg* find(std::string_view name) const;
  const plan::Arg* attribute(std::string_view name);

  const plan::Instruction& instruction_;
  const AddressMap& addresses_;
  const ExtraScratch* extra_;
  int64_t scratch_bytes_ = 0;
  base::Status status_;
};

}  // namespace dc::runtime::kernel::native
