#include "runtime/kernel/cuda/products.h"

#include <algorithm>
#include <array>
#include <bit>
#include <initializer_list>
#include <list>
#include <optional>
#include <string>

#include "runtime/kernel/cuda/expression_kernels.h"
#include "runtime/kernel/cuda/kernel_sequence.h"
#include "runtime/kernel/native/iteration.h"
#include "runtime/kernel/native/product_sizes.h"
#include "runtime/kernel/native/registry.h"
#include "src/base/shape.h"
#include "src/base/units.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using base::ErrorKind;
using base::Result;
using base::Status;
using native::Made;

// What NVIDIA recommends for GPUs of the Hopper generation.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;

int lt_type(DType dtype) { return dtype == DType::BF16 ? kLtBF16 : kLtF32; }

// A matrix, or a batch of them, whose rows or columns lie without gaps.
struct Lying {
  bool by_rows = true;
  int64_t leading = 0;  // elements from one row, or column, to the next
  int64_t batch = 1, batch_stride = 0;
};
std::optional<Lying> lying(const BoundTensor& m) {
  const size_t r = m.sizes.size() - 2, c = r + 1;
  const int64_t rows = m.sizes[r], columns = m.sizes[c];
  Lying lies;
  if (r == 1) {
    lies.batch = m.sizes[0];
    lies.batch_stride = m.strides[0];
  }
  if ((columns == 1 || m.strides[c] == 1) && (rows == 1 || m.strides[r] >= columns)) {
    lies.leading = rows == 1 ? columns : m.strides[r];
    return lies;
  }
  if ((rows == 1 || m.strides[r] == 1) && (columns == 1 || m.strides[c] >= rows)) {
    lies.by_rows = false;
    lies.leading = columns == 1 ? rows : m.strides[c];
    return lies;
  }
  return std::nullopt;
}

// Copies in rows without gaps, in scratch, of operands that lie otherwise, as expanded ones do.
class OperandCopies {
 public:
  // Of all operands of a kernel at once; those that are copied become their copies.
  Status add(Workshop& workshop, int32_t stream, std::initializer_list<BoundTensor*> operands) {
    int64_t bytes = 0;
    for (const BoundTensor* each : operands) bytes += lying(*each) ? 0 : bytes_of(*each);
    if (bytes == 0) return {};
    DC_ASSIGN_OR_RETURN(std::byte * to, workshop.scratch(stream, bytes));
    for (BoundTensor* each : operands) {
      if (lying(*each)) continue;
      strides_.push_back(base::contiguous_strides(each->sizes));
      const BoundTensor copy{to, each->dtype, each->sizes, strides_.back()};
      DC_ASSIGN_OR_RETURN(copies_.emplace_back(), copy_kernel(workshop, *each, copy));
      to += bytes_of(*each);
      *each = copy;
    }
    return {};
  }
  // The product behind them.
  Made before(Made product) {
    if (copies_.empty() || !product.ok()) return product;
    auto all = std::make_unique<KernelSequence>();
    for (auto& copy : copies_) all->add(std::move(copy));
    all->add(std::move(*product));
    return std::unique_ptr<Kernel>(std::move(all));
  }

 private:
  static int64_t bytes_of(const BoundTensor& tensor) {
    return base::round_up(tensor.numel() * base::byte_size(tensor.dtype), base::kAlignment);
  }

  std::list<std::vector<int64_t>> strides_;  // of the copies
  std::vector<std::unique_ptr<Kernel>> copies_;
};

// cuBLASLt's matrices lie in columns. Ours in rows are their transposes, so that it multiplies the
// transposes of the operands, the right one first.
class LtProduct final : public Kernel {
  static constexpr int32_t kPair = 2;

 public:
  LtProduct(const CublasLt& calls, LtHandle handle) : calls_(calls), handle_(handle) {}
  ~LtProduct() override {
    for (const LtMatrixDesc each : matrices_)
      if (each != nullptr) (void)calls_.destroy_matrix(each);
    if (desc_ != nullptr) (void)calls_.destroy_product(desc_);
  }

  // The first result that is no success.
  int make(const ProductRequest& request, const Lying& left, const Lying& right,
           const Lying& result, const Lying& added) {
    alpha_ = request.alpha;
    beta_ = request.beta;
    data_ = {request.right.data, request.left.data,
             request.added ? request.added->data : request.result.data, request.result.data};
    for (size_t i = 0; i < data_.size(); ++i) places_[i] = reinterpret_cast<uintptr_t>(data_[i]);
    if (request.second) take_pairs(*request.second);
    add(calls_.create_product(&desc_, kLtComputeF32, kLtF32));
    add_matrix(0, request.right, right);
    add_matrix(1, request.left, left);
    add_matrix(2, request.added ? *request.added : request.result, added);
    add_matrix(3, request.result, result);
    if (!right.by_rows) set_product(kLtTransposeA, kLtTransposed);
    if (!left.by_rows) set_product(kLtTransposeB, kLtTransposed);
    if (request.bias != nullptr) {
      set_product(kLtEpilogue, kLtAddsBias);
      set_product(kLtBias, request.bias);
    }
    choose();
    return failed_;
  }

  // Bytes that the algorithm needs while it runs.
  size_t workspace_bytes() const { return choice_.workspace; }
  void set_workspace(std::byte* workspace) { workspace_ = workspace; }

  Status launch(device::Stream& stream) override {
    const int failed = calls_.multiply(
        handle_, desc_, &alpha_, data_[0], matrices_[0], data_[1], matrices_[1], &beta_, data_[2],
        matrices_[2], data_[3], matrices_[3], &choice_.algorithm, workspace_, choice_.workspace,
        static_cast<device::CudaStream&>(stream).handle());
    if (failed == kLtSuccess) return {};
    return Status(ErrorKind::Unavailable, "DC6158",
                  "cuBLASLt could not run a product (status " + std::to_string(failed) +
                      "); look for the cause in the kernel's log (Xid), and run again");
  }

 private:
  void add(int result) {
    if (failed_ == kLtSuccess) failed_ = result;
  }
  // As a batch whose matrices lie where a table says: what is aligned in both is aligned.
  void take_pairs(const ProductRequest::SecondProduct& second) {
    is_pair_ = true;
    const void* const others[] = {second.right.data, second.left.data, second.result.data,
                                  second.result.data};
    for (size_t i = 0; i < data_.size(); ++i) {
      places_[i] |= reinterpret_cast<uintptr_t>(others[i]);
      data_[i] = second.table + std::min<size_t>(i, 2) * kPair * sizeof(void*);
    }
  }
  template <typename T>
  void set_product(int attribute, const T& value) {
    if (failed_ == kLtSuccess) add(calls_.set_product(desc_, attribute, &value, sizeof value));
  }
  void add_matrix(size_t index, const BoundTensor& tensor, const Lying& lies) {
    const size_t r = tensor.sizes.size() - 2;
    const auto rows = static_cast<uint64_t>(tensor.sizes[r]);
    const auto columns = static_cast<uint64_t>(tensor.sizes[r + 1]);
    if (failed_ == kLtSuccess)
      add(calls_.create_matrix(&matrices_[index], lt_type(tensor.dtype),
                               lies.by_rows ? columns : rows, lies.by_rows ? rows : columns,
                               lies.leading));
    if (failed_ == kLtSuccess && is_pair_) {
      add(calls_.set_matrix(matrices_[index], kLtBatch, &kPair, sizeof kPair));
      add(calls_.set_matrix(matrices_[index], kLtBatchMode, &kLtPointers, sizeof kLtPointers));
    }
    if (failed_ != kLtSuccess || tensor.sizes.size() == 2) return;
    const auto batch = static_cast<int32_t>(lies.batch);
    add(calls_.set_matrix(matrices_[index], kLtBatch, &batch, sizeof batch));
    add(calls_.set_matrix(matrices_[index], kLtBatchStride, &lies.batch_stride,
                          sizeof lies.batch_stride));
  }

  void choose() {
    LtPreference preference = nullptr;
    if (failed_ == kLtSuccess) add(calls_.create_preference(&preference));
    if (failed_ != kLtSuccess) return;
    add(calls_.set_preference(preference, kLtWorkspace, &kWorkspaceBytes, sizeof kWorkspaceBytes));
    for (size_t i = 0; i < data_.size(); ++i) {
      constexpr int kMost = 8;  // 256 bytes
      const int zeros = std::countr_zero(places_[i]);
      const uint32_t alignment = 1U << std::min(zeros, kMost);
      add(calls_.set_preference(preference, kLtAlignmentA + static_cast<int>(i), &alignment,
                                sizeof alignment));
    }
    int found = 0;
    add(calls_.choose(handle_, desc_, matrices_[0], matrices_[1], matrices_[2], matrices_[3],
                      preference, 1, &choice_, &found));
    if (found > 0) add(choice_.state);
    (void)calls_.destroy_preference(preference);
  }

  const CublasLt& calls_;
  LtHandle handle_;
  LtProductDesc desc_ = nullptr;
  std::array<LtMatrixDesc, 4> matrices_{};  // A, B, C, D of the library
  std::array<void*, 4> data_{};
  std::array<uintptr_t, 4> places_{};  // a bit is 0 where it is in the addresses of all matrices
  bool is_pair_ = false;
  LtChoice choice_{};
  float alpha_ = 1, beta_ = 0;
  std::byte* workspace_ = nullptr;
  int failed_ = kLtSuccess;
};

// How what is added is added: as a bias, from where it lies, or from the result, to which it then
// must be copied.
enum class Adds { Nothing, Bias, FromItsPlace, FromResult };

Adds how_to_add(native::Call& call, const BoundTensor& added, ProductRequest& request) {
  const double alpha = call.number("alpha", 1), beta = call.number("beta", 1);
  request.alpha = static_cast<float>(alpha);
  request.beta = static_cast<float>(beta);
  if (beta == 0) return Adds::Nothing;
  const auto& sizes = request.result.sizes;
  const auto strides = native::broadcast_strides(added, sizes);
  call.require(strides.has_value(), "what is added does not broadcast to the product");
  call.require(added.dtype == request.result.dtype, "the element types differ");
  if (!call.ok()) return Adds::Nothing;
  const bool is_row = sizes.size() == 2 && alpha == 1 && beta == 1 &&
                      (strides->back() == 1 || sizes[1] == 1) &&
                      ((*strides)[0] == 0 || sizes[0] == 1);
  if (is_row) {
    request.bias = added.data;
    request.beta = 0;
    return Adds::Bias;
  }
  const bool as_large = std::ranges::equal(added.sizes, sizes);
  if (as_large) {
    const auto lies = lying(added);
    if (lies && lies->by_rows) {
      request.added = added;
      return Adds::FromItsPlace;
    }
  }
  return Adds::FromResult;
}

Status has_no_product(const native::Call& call, const std::string& why) {
  return Status(ErrorKind::Unsupported, "DC6159",
                "there is no product on GPUs for " + std::string(call.op()) + ": " + why +
                    "; run with --device cpu");
}

}  // namespace

bool is_product(std::string_view op) {
  return op == "aten.mm.default" || op == "aten.bmm.default" || op == "aten.addmm.default" ||
         op == "aten.baddbmm.default" || op == "dc.add_product" || op == "dc.two_products";
}

Result<std::unique_ptr<Products>> Products::open(device::CudaDevice& device) {
  int version = 0;
  (void)device.driver().driver_version(&version);
  DC_ASSIGN_OR_RETURN(const CublasLt* calls, open_cublas_lt(version));
  std::unique_ptr<Products> made(new Products(device, *calls));
  device.use();
  const int failed = calls->create(&made->handle_);
  if (failed == kLtSuccess) return made;
  return Status(ErrorKind::Unavailable, "DC6158",
                "cuBLASLt cannot begin (status " + std::to_string(failed) +
                    "); check nvidia-smi for the GPU's state and its free memory");
}

Products::~Products() {
  device_.use();
  if (handle_ != nullptr) (void)calls_.destroy(handle_);
}

Result<std::byte*> Products::workspace(int32_t stream) {
  std::unique_ptr<device::DeviceMemory>& memory = workspaces_[stream];
  if (memory == nullptr) {
    DC_ASSIGN_OR_RETURN(memory, device_.allocate(static_cast<int64_t>(kWorkspaceBytes)));
  }
  return memory->base();
}

Result<std::byte*> Products::address_table(std::span<void* const> addresses) {
  constexpr int64_t kTableBytes = 64 << 10;
  const auto bytes = static_cast<int64_t>(addresses.size_bytes());
  if (tables_.empty() || table_used_ + bytes > kTableBytes) {
    DC_ASSIGN_OR_RETURN(std::unique_ptr<device::DeviceMemory> memory,
                        device_.allocate(kTableBytes));
    tables_.push_back(std::move(memory));
    table_used_ = 0;
  }
  std::byte* const table = tables_.back()->base() + table_used_;
  DC_RETURN_IF_ERROR(device_.upload(table, std::as_bytes(addresses)));
  table_used_ += bytes;
  return table;
}

Made Products::two_products(Workshop& workshop, native::Call& call, int32_t stream) {
  ProductRequest one, other;
  one.left = call.tensor("left");
  one.right = call.tensor("right");
  one.result = call.output(0);
  other.left = call.tensor("left2");
  other.right = call.tensor("right2");
  other.result = call.output(1);
  for (const ProductRequest* each : {&one, &other}) {
    if (call.ok()) native::check_product(call, each->left, each->right, each->result);
  }
  if (call.ok()) {
    const auto alike = [](const BoundTensor& a, const BoundTensor& b) {
      return a.dtype == b.dtype && std::ranges::equal(a.sizes, b.sizes) &&
             std::ranges::equal(a.strides, b.strides);
    };
    call.require(alike(one.left, other.left) && alike(one.right, other.right) &&
                     alike(one.result, other.result),
                 "the two products differ in types");
  }
  if (!call.ok()) return call.made(nullptr);
  OperandCopies copies;
  DC_RETURN_IF_ERROR(
      copies.add(workshop, stream, {&one.left, &one.right, &other.left, &other.right}));
  void* const addresses[] = {one.right.data,  other.right.data, one.left.data,
                             other.left.data, one.result.data,  other.result.data};
  ProductRequest both = one;
  both.second = {other.left, other.right, other.result, nullptr};
  DC_ASSIGN_OR_RETURN(both.second->table, address_table(addresses));
  if (Made made = product(call, both, stream, &workshop); made.ok())
    return copies.before(std::move(made));
  auto sequence = std::make_unique<KernelSequence>();
  for (const ProductRequest* each : {&one, &other}) {
    // With one workspace, beyond the plan's memory: it has what one kernel needs.
    DC_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> product,
                        this->product(call, *each, stream, nullptr));
    sequence->add(std::move(product));
  }
  return copies.before(std::unique_ptr<Kernel>(std::move(sequence)));
}

Made Products::add_product(Workshop& workshop, native::Call& call, int32_t stream) {
  ProductRequest request;
  request.result = call.output(0);
  request.left = call.tensor("left");
  request.right = call.tensor("right");
  request.beta = 1;
  const BoundTensor sum = call.tensor("sum");
  if (call.ok()) call.require(request.result.data == sum.data, "the result is not the sum");
  if (call.ok()) native::check_product(call, request.left, request.right, request.result);
  if (!call.ok()) return call.made(nullptr);
  OperandCopies copies;
  DC_RETURN_IF_ERROR(copies.add(workshop, stream, {&request.left, &request.right}));
  return copies.before(product(call, request, stream, &workshop));
}

Made Products::kernel(Workshop& workshop, native::Call& call, int32_t stream) {
  const std::string_view op = call.op();
  if (op == "dc.two_products") return two_products(workshop, call, stream);
  if (op == "dc.add_product") return add_product(workshop, call, stream);
  const bool of_batch = op.starts_with("aten.b"), adds = op.find("add") != std::string_view::npos;
  ProductRequest request;
  request.left = call.tensor(!adds ? "self" : of_batch ? "batch1" : "mat1");
  request.right = call.tensor(!adds ? "mat2" : of_batch ? "batch2" : "mat2");
  request.result = call.output(0);
  if (call.ok()) native::check_product(call, request.left, request.right, request.result);
  if (call.ok())
    call.require(request.result.dtype == request.left.dtype, "the element types differ");
  Adds how = Adds::Nothing;
  if (adds && call.ok()) how = how_to_add(call, call.tensor("self"), request);
  if (!call.ok()) return call.made(nullptr);
  OperandCopies copies;
  DC_RETURN_IF_ERROR(copies.add(workshop, stream, {&request.left, &request.right}));
  std::unique_ptr<Kernel> copy;
  if (how == Adds::FromResult) {
    DC_ASSIGN_OR_RETURN(copy, copy_kernel(workshop, call.tensor("self"), request.result));
  }
  DC_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> product,
                      this->product(call, request, stream, &workshop));
  if (copy == nullptr) return copies.before(std::move(product));
  auto both = std::make_unique<KernelSequence>();
  both->add(std::move(copy));
  both->add(std::move(product));
  return copies.before(std::unique_ptr<Kernel>(std::move(both)));
}

Made Products::product(native::Call& call, const ProductRequest& request, int32_t stream,
                       Workshop* workshop) {
  const auto left = lying(request.left), right = lying(request.right),
             result = lying(request.result);
  if (!left || !right || !result || !result->by_rows)
    return has_no_product(call, "the result does not lie in rows without gaps");
  device_.use();
  auto product = std::make_unique<LtProduct>(calls_, handle_);
  const auto added = request.added ? lying(*request.added) : result;
  if (const int failed = product->make(request, *left, *right, *result, *added);
      failed != kLtSuccess)
    return has_no_product(call, "cuBLASLt refuses it with status " + std::to_string(failed));
  if (const auto bytes = static_cast<int64_t>(product->workspace_bytes()); bytes > 0) {
    std::byte* space = workshop != nullptr ? workshop->planned_scratch(bytes) : nullptr;
    if (space == nullptr) {
      DC_ASSIGN_OR_RETURN(space, workspace(stream));
    }
    product->set_workspace(space);
  }
  return std::unique_ptr<Kernel>(std::move(product));
}

Made Products::product(native::Call& call, const BoundTensor& left, const BoundTensor& right,
                       const BoundTensor& result, bool adds, int32_t stream) {
  ProductRequest request;
  request.left = left;
  request.right = right;
  request.result = result;
  request.beta = adds ? 1.0f : 0.0f;
  native::check_product(call, request.left, request.right, request.result);
  if (!call.ok()) return call.made(nullptr);
  return product(call, request, stream, nullptr);
}

}  // namespace dc::runtime::kernel::cuda
