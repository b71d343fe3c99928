#include "runtime/kernel/onednn/product_maker.h"

#include <omp.h>

#include <algorithm>

#include "runtime/kernel/native/attention/multiply.h"
#include "runtime/kernel/native/product_sizes.h"
#include "src/base/shape.h"

namespace dc::runtime::kernel::onednn {
namespace {

using base::DType;
using native::CopyRegions;
using native::Region;
using Dims = dnnl::memory::dims;

class Product final : public Kernel {
 public:
  Product(const dnnl::matmul::primitive_desc& desc, CopyRegions before, std::vector<Port> ports,
          CopyRegions after, int threads)
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
        return failed_to_run("matrix product");
    }
    DC_RETURN_IF_ERROR(before_.launch(stream));
    omp_set_num_threads(threads_);
    if (dnnl_primitive_execute(primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()),
                               arguments_.data()) != dnnl_success)
      return failed_to_run("matrix product");
    return after_.launch(stream);
  }

 private:
  dnnl::matmul primitive_;
  dnnl::stream stream_;
  CopyRegions before_;  // operands that oneDNN cannot read as they are
  std::vector<Port> ports_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
  CopyRegions after_;  // the result, if it cannot be written as it is to be
  int threads_;
};

// Each product of a batch, by native::multiply().
class InPlace final : public Kernel {
 public:
  InPlace(const BoundTensor& left, const BoundTensor& right, const BoundTensor& result)
      : left_(left.data),
        right_(right.data),
        result_(result.data),
        count_(result.sizes.size() == 3 ? result.sizes[0] : 1),
        rows_(result.sizes[result.sizes.size() - 2]),
        depth_(left.sizes.back()),
        columns_(result.sizes.back()) {}

  base::Status launch(device::Stream& stream) override {
    const auto* left = static_cast<const float*>(stream.resolve(left_));
    const auto* right = static_cast<const float*>(stream.resolve(right_));
    auto* result = static_cast<float*>(stream.resolve(result_));
    for (int64_t i = 0; i < count_; ++i) {
      native::multiply({result + i * rows_ * columns_, columns_, left + i * rows_ * depth_, 1,
                        rows_, right + i * depth_ * columns_, columns_, rows_, depth_, columns_,
                        false});
    }
    return {};
  }

 private:
  void *left_, *right_, *result_;
  int64_t count_, rows_, depth_, columns_;
};

}  // namespace

Region ProductMaker::Operand::primitive_region(std::byte* scratch) const {
  return Region({data(scratch), type, seen.sizes, seen.strides});
}
Region ProductMaker::Operand::plan_region() const {
  return Region({tensor.data, tensor.dtype, seen.sizes, tensor.strides});
}

ProductMaker::ProductMaker(native::Call& call, const BoundTensor& left, const BoundTensor& right,
                           const BoundTensor& result, std::optional<ProductSum> sum)
    : call_(call) {
  left_.tensor = left;
  right_.tensor = right;
  result_.tensor = result;
  if (!sum) return;
  alpha_ = sum->alpha;
  beta_ = sum->beta;
  added_.tensor = sum->added;
}

ProductMaker ProductMaker::of_sum(native::Call& call, const BoundTensor& left,
                                  const BoundTensor& right, const BoundTensor& result, bool adds) {
  ProductMaker maker(call, left, right, result);
  maker.beta_ = adds ? 1 : 0;
  maker.is_of_sum_ = true;
  return maker;
}

native::Made ProductMaker::make() {
  const int64_t bytes = scratch_bytes();
  std::byte* scratch = call_.scratch(bytes);
  const bool is_measured = scratch == nullptr && bytes > 0;
  if (!call_.ok() || is_measured) return call_.made(nullptr);
  return call_.made(build(scratch));
}

int64_t ProductMaker::scratch_bytes() {
  check();
  if (!call_.ok()) return 0;
  if (is_in_place()) return 0;
  omp_set_num_threads(call_.threads());
  lay_out();
  primitive_ = guarded([this] { return primitive(); });
  if (!call_.ok()) return 0;
  own_scratch_ = parts_.add(static_cast<int64_t>(primitive_.scratchpad_desc().get_size()));
  return parts_.bytes();
}

template <typename F>
auto ProductMaker::guarded(F&& make) -> decltype(make()) {
  try {
    return make();
  } catch (const dnnl::error& error) {
    call_.refuse(lacks("matrix product", error));
    return {};
  }
}

std::unique_ptr<Kernel> ProductMaker::place(std::byte* scratch, std::byte* left, std::byte* right,
                                            std::byte* result) {
  left_.tensor.data = left;
  right_.tensor.data = right;
  result_.tensor.data = result;
  return build(scratch);
}

void ProductMaker::check() {
  if (!call_.ok()) return;
  const BoundTensor &a = left_.tensor, &b = right_.tensor, &c = result_.tensor;
  native::check_product(call_, a, b, c);
  if (!call_.ok()) return;
  const auto is_small = [](int64_t size) { return size <= INT32_MAX; };
  call_.require(std::ranges::all_of(a.sizes, is_small) && std::ranges::all_of(b.sizes, is_small),
                "a matrix has more than 2^31 rows or columns");
  const bool made = adds() && is_of_sum_
                        ? c.dtype == DType::F32
                        : c.dtype == a.dtype || (is_of_sum_ && c.dtype == DType::F32);
  call_.require(made, "the element types differ");
  if (!adds() || is_of_sum_) return;
  call_.require(added_.tensor.dtype == a.dtype, "the element types differ");
  auto strides = native::broadcast_strides(added_.tensor, c.sizes);
  call_.require(strides.has_value(), "what is added does not broadcast to the product");
  if (strides) added_strides_ = *std::move(strides);
}

// One long sum would be less exact than the product that is added to others, so there is none.
bool ProductMaker::is_in_place() const {
  const BoundTensor& result = result_.tensor;
  if (left_.tensor.dtype != DType::F32 || call_.threads() != 1 || alpha_ != 1 || adds())
    return false;
  return base::is_contiguous(result.sizes, result.strides) &&
         is_multiplied_in_place(matrices_of(left_.tensor), matrices_of(right_.tensor));
}

// A row that oneDNN adds to every row while it has the sums in registers. It is added after the
// scale, so there must be none.
bool ProductMaker::adds_row() const {
  if (!adds() || is_of_sum_ || alpha_ != 1 || beta_ != 1) return false;
  for (size_t dim = 0; dim + 1 < added_strides_.size(); ++dim) {
    if (added_strides_[dim] != 0 && result_.tensor.sizes[dim] != 1) return false;
  }
  return added_strides_.back() == 1 || result_.tensor.sizes.back() == 1;
}

// Where the operands lie that the primitive multiplies. Without instructions for 16-bit products
// they are widened and the sums rounded once.
void ProductMaker::lay_out() {
  const bool widens = !multiplies_bf16();
  const DType type = widens ? DType::F32 : left_.tensor.dtype;
  lay(left_, type, true);
  lay(right_, type, left_.seen.sizes[0] == left_.tensor.sizes[0]);
  lay_result(widens ? DType::F32 : result_.tensor.dtype);
  if (adds_row()) lay_row(type);
}

// Chooses how an operand is read; `may_repeat`: one matrix may stand for the whole batch.
void ProductMaker::lay(Operand& operand, DType type, bool may_repeat) {
  Matrices m = matrices_of(operand.tensor);
  Lies lies = how_it_lies(m);
  if (lies == Lies::Same && !may_repeat) lies = Lies::Gapped;
  if (&operand == &left_ && type == DType::BF16 && is_copied_to_rows(m) &&
      m.sizes[0] <= kMostRowsCopied)
    lies = Lies::Gapped;
  if (lies == Lies::Gapped) {
    m.strides = dense_strides(m);
  } else if (lies == Lies::Same) {
    m.sizes[0] = 1;
    m.strides[0] = m.sizes[1] * m.sizes[2];
  }
  place_operand(operand, std::move(m), type, lies == Lies::Gapped);
}

void ProductMaker::lay_result(DType type) {
  const BoundTensor& c = result_.tensor;
  const Dims sizes(c.sizes.begin(), c.sizes.end());
  place_operand(result_, {sizes, base::contiguous_strides(sizes)}, type,
                !base::is_contiguous(c.sizes, c.strides));
}

void ProductMaker::lay_row(DType type) {
  Dims sizes(result_.tensor.sizes.size(), 1);
  sizes.back() = result_.tensor.sizes.back();
  place_operand(added_, {sizes, base::contiguous_strides(sizes)}, type, false);
}

// Takes room in scratch for what the primitive cannot take as it is.
void ProductMaker::place_operand(Operand& operand, Matrices seen, DType type, bool moves) {
  if (moves || type != operand.tensor.dtype)
    operand.copy = parts_.add(base::numel(seen.sizes) * base::byte_size(type));
  operand.seen = std::move(seen);
  operand.type = type;
}

dnnl::matmul::primitive_desc ProductMaker::primitive() const {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (alpha_ != 1) attributes.set_output_scales(0, {static_cast<float>(alpha_)});
  if (adds() && !adds_row()) {
    dnnl::post_ops sum;
    sum.append_sum(static_cast<float>(beta_));
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::desc desc =
      adds_row() ? dnnl::matmul::desc(left_.desc(), right_.desc(), added_.desc(), result_.desc())
                 : dnnl::matmul::desc(left_.desc(), right_.desc(), result_.desc());
  return {desc, attributes, cpu()};
}

std::unique_ptr<Kernel> ProductMaker::build(std::byte* scratch) {
  if (is_in_place()) return std::make_unique<InPlace>(left_.tensor, right_.tensor, result_.tensor);
  return guarded([&]() -> std::unique_ptr<Kernel> {
    std::vector<Port> ports = {{DNNL_ARG_SRC, left_.data(scratch), left_.desc()},
                               {DNNL_ARG_WEIGHTS, right_.data(scratch), right_.desc()},
                               {DNNL_ARG_DST, result_.data(scratch), result_.desc()}};
    const dnnl::memory::desc own = primitive_.scratchpad_desc();
    if (own.get_size() > 0) ports.push_back({DNNL_ARG_SCRATCHPAD, scratch + own_scratch_, own});
    if (adds_row()) ports.push_back({DNNL_ARG_BIAS, added_.data(scratch), added_.desc()});
    CopyRegions before = copies_before(scratch), after;
    if (result_.copy >= 0)
      after.copy(call_, result_.plan_region(), result_.primitive_region(scratch));
    return std::make_unique<Product>(primitive_, std::move(before), std::move(ports),
                                     std::move(after), call_.threads());
  });
}

CopyRegions ProductMaker::copies_before(std::byte* scratch) {
  CopyRegions copies;
  for (const Operand* operand : {&left_, &right_}) {
    if (operand->copy >= 0)
      copies.copy(call_, operand->primitive_region(scratch), operand->plan_region());
  }
  if (!adds() || is_of_sum_ || (adds_row() && added_.copy < 0)) return copies;
  Region added = (adds_row() ? added_ : result_).plan_region();
  added.data = static_cast<std::byte*>(added_.tensor.data);
  added.strides = added_strides_;
  copies.copy(call_, (adds_row() ? added_ : result_).primitive_region(scratch), added);
  return copies;
}

}  // namespace dc::runtime::kernel::onednn
