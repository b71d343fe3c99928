#include "runtime/kernel/onednn/product.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>

#include "runtime/kernel/native/iteration.h"
#include "runtime/kernel/onednn/parts.h"
#include "runtime/kernel/onednn/plugin.h"
#include "runtime/kernel/onednn/product_shape.h"
#include "runtime/kernel/strided_copy.h"
#include "src/base/shape.h"

namespace dc::runtime::kernel::onednn {
namespace {

using base::DType;
using native::Call;
using native::Made;
using Dims = dnnl::memory::dims;

// A tensor of one shape written in another order.
struct Copy {
  std::byte *to = nullptr, *from = nullptr;  // addresses on the device
  std::vector<int64_t> to_strides, from_strides, sizes;
  int64_t width = 0;

  void run(const device::Stream& stream) const {
    copy_strided(stream.resolve(to), to_strides, stream.resolve(from), from_strides, sizes, width);
  }
};

class Product final : public Kernel {
 public:
  Product(const dnnl::matmul::primitive_desc& desc, std::vector<Copy> before,
          std::vector<Port> ports, std::optional<Copy> after, int threads)
      : primitive_(desc),
        stream_(cpu()),
        before_(std::move(before)),
        ports_(std::move(ports)),
        after_(std::move(after)),
        threads_(threads) {
    memories_.reserve(ports_.size());
    for (const Port& port : ports_) {
      memories_.push_back(dnnl::memory(port.desc, cpu(), DNNL_MEMORY_NONE));
      arguments_.push_back({port.argument, memories_.back().get()});
    }
  }

  base::Status launch(device::Stream& stream) override {
    for (size_t i = 0; i < ports_.size(); ++i) {
      if (dnnl_memory_set_data_handle_v2(memories_[i].get(), stream.resolve(ports_[i].data),
                                         stream_.get()) != dnnl_success)
        return failed();
    }
    for (const Copy& copy : before_) copy.run(stream);
    omp_set_num_threads(threads_);
    if (dnnl_primitive_execute(primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()),
                               arguments_.data()) != dnnl_success)
      return failed();
    if (after_) after_->run(stream);
    return {};
  }

 private:
  static base::Status failed() {
    return base::Status(base::ErrorKind::Internal, "DC6136",
                        "oneDNN could not run a matrix product; please report this");
  }

  dnnl::matmul primitive_;
  dnnl::stream stream_;
  std::vector<Copy> before_;  // operands that oneDNN cannot read where they are
  std::vector<Port> ports_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
  std::optional<Copy> after_;  // the result, if it cannot be written where it belongs
  int threads_;
};

// An operand or the result.
struct Operand {
  BoundTensor tensor;
  dnnl::memory::desc desc;
  int64_t copy = -1;  // offset in scratch of what stands for it; -1: it is taken where it is

  std::byte* data(std::byte* scratch) const {
    return copy < 0 ? static_cast<std::byte*>(tensor.data) : scratch + copy;
  }
  int64_t bytes() const { return tensor.numel() * base::byte_size(tensor.dtype); }
  Copy copied(std::byte* to, std::vector<int64_t> to_strides, std::byte* from,
              std::vector<int64_t> from_strides) const {
    return {to,
            from,
            std::move(to_strides),
            std::move(from_strides),
            {tensor.sizes.begin(), tensor.sizes.end()},
            base::byte_size(tensor.dtype)};
  }
};

// The kernel of one instruction while it is made.
class Maker {
 public:
  Maker(Call& call, std::string_view left, std::string_view right, bool adds) : call_(call) {
    left_.tensor = call.tensor(left);
    right_.tensor = call.tensor(right);
    result_.tensor = call.output(0);
    if (!adds) return;
    alpha_ = call.number("alpha", 1);
    beta_ = call.number("beta", 1);
    added_.tensor = call.tensor("self");
  }

  Made make() {
    check();
    if (!call_.ok()) return call_.made(nullptr);
    omp_set_num_threads(call_.threads());
    try {
      return build();
    } catch (const dnnl::error& error) {
      return base::Status(base::ErrorKind::Unsupported, "DC6136",
                          std::string("oneDNN has no such matrix product: ") + error.what());
    }
  }

 private:
  void check() {
    if (!call_.ok()) return;
    const BoundTensor &a = left_.tensor, &b = right_.tensor, &c = result_.tensor;
    const size_t dims = a.sizes.size();
    call_.require((dims == 2 || dims == 3) && b.sizes.size() == dims && c.sizes.size() == dims,
                  "a product takes matrices, or batches of matrices");
    if (!call_.ok()) return;
    const size_t r = dims - 2, columns = dims - 1;
    const bool fits = a.sizes[columns] == b.sizes[r] && c.sizes[r] == a.sizes[r] &&
                      c.sizes[columns] == b.sizes[columns] &&
                      (dims == 2 || (a.sizes[0] == b.sizes[0] && a.sizes[0] == c.sizes[0]));
    call_.require(fits, "the sizes of the matrices do not fit");
    call_.require(a.numel() > 0 && b.numel() > 0, "a matrix has no elements");
    const auto is_small = [](int64_t size) { return size <= INT32_MAX; };
    call_.require(std::ranges::all_of(a.sizes, is_small) && std::ranges::all_of(b.sizes, is_small),
                  "a matrix has more than 2^31 rows or columns");
    call_.require(a.dtype == DType::F32 || a.dtype == DType::BF16,
                  "products are of f32 or bf16 elements");
    call_.require(b.dtype == a.dtype && c.dtype == a.dtype, "the element types differ");
    if (!adds()) return;
    call_.require(added_.tensor.dtype == a.dtype, "the element types differ");
    auto strides = native::broadcast_strides(added_.tensor, c.sizes);
    call_.require(strides.has_value(), "what is added does not broadcast to the product");
    if (strides) added_strides_ = *std::move(strides);
  }

  bool adds() const { return beta_ != 0; }
  // A row that oneDNN adds to every row while it has the sums in registers. It is added after the
  // scale, so there must be none.
  bool adds_row() const {
    if (!adds() || alpha_ != 1 || beta_ != 1) return false;
    for (size_t dim = 0; dim + 1 < added_strides_.size(); ++dim) {
      if (added_strides_[dim] != 0 && result_.tensor.sizes[dim] != 1) return false;
    }
    return added_strides_.back() == 1 || result_.tensor.sizes.back() == 1;
  }

  // Chooses how an operand is read; `may_repeat`: one matrix may stand for the whole batch.
  void lay(Operand& operand, bool may_repeat) {
    Matrices m = matrices_of(operand.tensor);
    Lies lies = how_it_lies(m);
    if (lies == Lies::Same && !may_repeat) lies = Lies::Gapped;
    if (lies == Lies::Gapped) {
      operand.copy = parts_.add(operand.bytes());
      m.strides = dense_strides(m);
    } else if (lies == Lies::Same) {
      m.sizes[0] = 1;
      m.strides[0] = m.sizes[1] * m.sizes[2];
    }
    operand.desc = describe(m.sizes, m.strides);
  }

  dnnl::memory::desc describe(const Dims& sizes, const Dims& strides) const {
    return {sizes, type_of(result_.tensor.dtype), strides};
  }

  void lay_result() {
    const BoundTensor& c = result_.tensor;
    const Dims sizes(c.sizes.begin(), c.sizes.end());
    if (!base::is_contiguous(c.sizes, c.strides)) result_.copy = parts_.add(result_.bytes());
    result_.desc = describe(sizes, base::contiguous_strides(sizes));
  }

  dnnl::memory::desc row() const {
    Dims sizes(result_.tensor.sizes.size(), 1);
    sizes.back() = result_.tensor.sizes.back();
    return describe(sizes, base::contiguous_strides(sizes));
  }

  dnnl::matmul::primitive_desc primitive() const {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (alpha_ != 1) attributes.set_output_scales(0, {static_cast<float>(alpha_)});
    if (adds() && !adds_row()) {
      dnnl::post_ops sum;
      sum.append_sum(static_cast<float>(beta_));
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::desc desc =
        adds_row() ? dnnl::matmul::desc(left_.desc, right_.desc, row(), result_.desc)
                   : dnnl::matmul::desc(left_.desc, right_.desc, result_.desc);
    return {desc, attributes, cpu()};
  }

  Made build() {
    lay(left_, true);
    lay(right_, left_.desc.dims()[0] == left_.tensor.sizes[0]);
    lay_result();
    const dnnl::matmul::primitive_desc desc = primitive();
    const dnnl::memory::desc own = desc.scratchpad_desc();
    const int64_t own_scratch = parts_.add(static_cast<int64_t>(own.get_size()));
    std::byte* scratch = call_.scratch(parts_.bytes());
    const bool is_measured = scratch == nullptr && parts_.bytes() > 0;
    if (!call_.ok() || is_measured) return call_.made(nullptr);
    std::vector<Port> ports = {{DNNL_ARG_SRC, left_.data(scratch), left_.desc},
                               {DNNL_ARG_WEIGHTS, right_.data(scratch), right_.desc},
                               {DNNL_ARG_DST, result_.data(scratch), result_.desc}};
    if (own.get_size() > 0) ports.push_back({DNNL_ARG_SCRATCHPAD, scratch + own_scratch, own});
    if (adds_row()) ports.push_back({DNNL_ARG_BIAS, added_.data(scratch), row()});
    return call_.finish<Product>(desc, copies_before(scratch), std::move(ports),
                                 copy_after(scratch), call_.threads());
  }

  std::vector<Copy> copies_before(std::byte* scratch) const {
    std::vector<Copy> copies;
    for (const Operand* operand : {&left_, &right_}) {
      if (operand->copy < 0) continue;
      copies.push_back(operand->copied(
          operand->data(scratch), base::contiguous_strides(operand->tensor.sizes),
          static_cast<std::byte*>(operand->tensor.data), strides_of(operand->tensor)));
    }
    if (adds() && !adds_row()) {
      copies.push_back(result_.copied(result_.data(scratch),
                                      base::contiguous_strides(result_.tensor.sizes),
                                      static_cast<std::byte*>(added_.tensor.data), added_strides_));
    }
    return copies;
  }

  std::optional<Copy> copy_after(std::byte* scratch) const {
    if (result_.copy < 0) return std::nullopt;
    return result_.copied(static_cast<std::byte*>(result_.tensor.data), strides_of(result_.tensor),
                          result_.data(scratch), base::contiguous_strides(result_.tensor.sizes));
  }

  static std::vector<int64_t> strides_of(const BoundTensor& tensor) {
    return {tensor.strides.begin(), tensor.strides.end()};
  }

  Call& call_;
  Operand left_, right_, result_, added_;
  double alpha_ = 1, beta_ = 0;
  std::vector<int64_t> added_strides_;
  Parts parts_;
};

constexpr native::Row kRows[] = {
    {kOps[0], [](Call& call) { return Maker(call, "mat1", "mat2", true).make(); }},
    {kOps[1], [](Call& call) { return Maker(call, "batch1", "batch2", true).make(); }},
    {kOps[2], [](Call& call) { return Maker(call, "self", "mat2", false).make(); }},
    {kOps[3], [](Call& call) { return Maker(call, "self", "mat2", false).make(); }},
};

}  // namespace

std::span<const native::Row> product_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::onednn
