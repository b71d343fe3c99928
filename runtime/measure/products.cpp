// The products that keep a CPU or a GPU busy.
#include <algorithm>
#include <vector>

#include "runtime/kernel/elements.h"
#include "runtime/kernel/kernel.h"
#include "runtime/measure/busy.h"
#include "runtime/measure/pseudo_random.h"
#include "src/base/units.h"

namespace dc::runtime::measure {
namespace {

using base::DType;
using base::Result;
using base::Status;

// Small enough for tens of microseconds, so that short windows hold many products.
constexpr size_t kSize = 64;
using Matrix = std::vector<float>;

void multiply(const Matrix& a, const Matrix& b, Matrix& c) {
  std::fill(c.begin(), c.end(), 0.0f);
  for (size_t i = 0; i < kSize; ++i) {
    for (size_t k = 0; k < kSize; ++k) {
      const float factor = a[i * kSize + k];
      for (size_t j = 0; j < kSize; ++j) c[i * kSize + j] += factor * b[k * kSize + j];
    }
  }
}

class HostProduct final : public Product {
 public:
  Status launch(device::Stream&) override {
    multiply(a_, b_, c_);
    std::swap(a_, c_);  // the next product depends on this one, and all stay finite
    return {};
  }

 private:
  Matrix a_ = Matrix(kSize * kSize, 0.01f), b_ = Matrix(kSize * kSize, 1.0f / kSize),
         c_ = Matrix(kSize * kSize);
};

plan::Plan plan_of_product(int64_t size) {
  constexpr DType kType = DType::BF16;  // as most steps multiply on GPUs
  plan::Plan plan;
  const int64_t bytes = base::round_up(size * size * base::byte_size(kType), base::kAlignment);
  for (int32_t i = 0; i < 3; ++i) {
    plan::Slice& slice = plan.slices.emplace_back();
    slice.offset = i * bytes;
    slice.bytes = bytes;
    plan::Tensor& tensor = plan.tensors.emplace_back();
    tensor.dtype = kType;
    tensor.sizes = {size, size};
    tensor.strides = {size, 1};
    tensor.slice = i;
  }
  plan::Instruction product;
  product.provider = plan::Provider::Native;
  product.op = "aten.mm.default";
  for (const auto& [name, tensor] : {std::pair("self", 0), std::pair("mat2", 1)}) {
    plan::Arg& arg = product.args.emplace_back();
    arg.name = name;
    arg.kind = plan::ArgKind::Tensor;
    arg.i = tensor;
  }
  product.outputs = {2};
  plan.mesh = {{"data", 1}};
  plan.programs = {plan::Program{"product", {std::move(product)}}};
  plan.arena_bytes = {3 * bytes, 0, 0};
  return plan;
}

// The device's kernel for products.
class KernelProduct final : public Product {
 public:
  static Result<std::unique_ptr<KernelProduct>> make(device::Device& device, int64_t size) {
    auto made = std::unique_ptr<KernelProduct>(new KernelProduct(device, size));
    DC_ASSIGN_OR_RETURN(made->memory_, device.allocate(made->plan_.arena_bytes[0]));
    DC_RETURN_IF_ERROR(made->fill(device));
    DC_ASSIGN_OR_RETURN(
        made->kernel_,
        made->provider_->prepare(made->plan_.programs[0].instructions[0],
                                 kernel::AddressMap(made->plan_, made->memory_->base(), 0)));
    return made;
  }
  Status launch(device::Stream& stream) override { return kernel_->launch(stream); }

 private:
  KernelProduct(device::Device& device, int64_t size)
      : plan_(plan_of_product(size)), provider_(kernel::make_provider(device)) {}

  // Zeros would take less power, and so leave a GPU faster than a step does.
  Status fill(device::Device& device) const {
    const DType dtype = plan_.tensors[0].dtype;
    std::vector<std::byte> values(static_cast<size_t>(plan_.slices[2].offset));
    for (int64_t i = 0; i < plan_.slices[2].offset / base::byte_size(dtype); ++i)
      kernel::store_real(dtype, values.data() + i * base::byte_size(dtype), pseudo_random(i));
    return device.upload(memory_->base(), values);
  }

  plan::Plan plan_;
  std::unique_ptr<device::DeviceMemory> memory_;
  std::unique_ptr<kernel::KernelProvider> provider_;
  std::unique_ptr<kernel::Kernel> kernel_;  // ends before what it uses
};

// Of one product of several in a row.
Result<int64_t> time_of(device::Device& device, Product& product) {
  constexpr int kInARow = 4;
  const auto begin = device.make_timestamp(), end = device.make_timestamp();
  const auto stream = device.make_stream();
  DC_RETURN_IF_ERROR(product.launch(*stream));
  stream->write_timestamp(*begin);
  for (int i = 0; i < kInARow; ++i) DC_RETURN_IF_ERROR(product.launch(*stream));
  stream->write_timestamp(*end);
  DC_RETURN_IF_ERROR(stream->drain());
  DC_ASSIGN_OR_RETURN(const int64_t all, end->since(*begin));
  return all / kInARow;
}

// Large enough to occupy the whole GPU.
Result<std::unique_ptr<Product>> product_of(device::Device& device) {
  constexpr int64_t kSmallest = 64, kLargest = 4096, kLeastNs = 20'000;
  for (int64_t size = kSmallest;; size *= 2) {
    DC_ASSIGN_OR_RETURN(auto product, KernelProduct::make(device, size));
    DC_ASSIGN_OR_RETURN(const int64_t time, time_of(device, *product));
    if (time >= kLeastNs || size == kLargest) return std::unique_ptr<Product>(std::move(product));
  }
}

}  // namespace

Result<std::vector<std::unique_ptr<Product>>> make_products(device::Device& device, int threads) {
  std::vector<std::unique_ptr<Product>> products;
  if (device.kind() == base::DeviceKind::Cuda) {
    DC_ASSIGN_OR_RETURN(products.emplace_back(), product_of(device));
    return products;
  }
  for (int i = 0; i < threads; ++i) products.push_back(std::make_unique<HostProduct>());
  return products;
}

}  // namespace dc::runtime::measure
