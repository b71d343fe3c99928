// oneDNN's convolutions keep elements in blocks of channels. Operands and results are reordered
// from and to the plan's strides in scratch, where the primitive does not take them as they are.
// What lies neither row by row nor with its channels innermost is copied before. Where the CPU has
// no products of bf16, and for gradients of weights of few channels (convolution_type.h), operands
// are widened before, and results rounded once behind. oneDNN takes no transposed convolution whose
// result ends a stride or more behind the last place that a filter reaches: there the input has
// zeros behind it.
#include "runtime/kernel/onednn/convolution.h"

#include <omp.h>

#include <algorithm>
#include <optional>

#include "runtime/kernel/native/convolution_shape.h"
#include "runtime/kernel/native/copies/regions.h"
#include "runtime/kernel/onednn/convolution_layout.h"
#include "runtime/kernel/onednn/parts.h"
#include "runtime/kernel/onednn/plugin.h"
#include "src/base/convolution_type.h"
#include "src/base/shape.h"

namespace dc::runtime::kernel::onednn {
namespace {

using base::DType;
using native::Call;
using native::CopyRegions;
using native::Made;
using native::Region;
using Desc = dnnl::memory::desc;

// One primitive with its tensors.
class BoundPrimitive {
 public:
  BoundPrimitive(dnnl::primitive primitive, std::vector<Port> ports)
      : primitive_(std::move(primitive)), ports_(std::move(ports)) {
    memories_.reserve(ports_.size());
    for (const Port& port : ports_) {
      memories_.push_back(dnnl::memory(port.desc, cpu(), DNNL_MEMORY_NONE));
      arguments_.push_back({port.argument, memories_.back().get()});
    }
  }

  bool run(const device::Stream& on, const dnnl::stream& stream) const {
    for (size_t i = 0; i < ports_.size(); ++i) {
      if (dnnl_memory_set_data_handle_v2(memories_[i].get(), on.resolve(ports_[i].data),
                                         stream.get()) != dnnl_success)
        return false;
    }
    return dnnl_primitive_execute(primitive_.get(), stream.get(),
                                  static_cast<int>(arguments_.size()),
                                  arguments_.data()) == dnnl_success;
  }

 private:
  dnnl::primitive primitive_;
  std::vector<Port> ports_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

class Convolution final : public Kernel {
 public:
  Convolution(CopyRegions before, std::vector<BoundPrimitive> primitives, CopyRegions after,
              int threads)
      : stream_(cpu()),
        before_(std::move(before)),
        primitives_(std::move(primitives)),
        after_(std::move(after)),
        threads_(threads) {}

  base::Status launch(device::Stream& stream) override {
    DC_RETURN_IF_ERROR(before_.launch(stream));
    omp_set_num_threads(threads_);
    for (const BoundPrimitive& primitive : primitives_) {
      if (!primitive.run(stream, stream_)) return failed_to_run("convolution");
    }
    return after_.launch(stream);
  }

 private:
  dnnl::stream stream_;
  CopyRegions before_;
  std::vector<BoundPrimitive> primitives_;
  CopyRegions after_;
  int threads_;
};

// Where memory is: at an address, or at an offset in scratch.
struct Place {
  std::byte* address = nullptr;
  int64_t offset = -1;

  std::byte* in(std::byte* scratch) const { return offset < 0 ? address : scratch + offset; }
};

// An operand or a result, dense in one of the two orders, with zeros behind it where `sizes` are
// larger than its own.
struct Tensor {
  BoundTensor bound;
  std::vector<int64_t> sizes;
  Desc desc;
  Place place;
};
enum class Role { Plain, Input, Weight };

// How a primitive uses a tensor: in which layout, and whether it writes it. Without a tensor, what
// it writes is not wanted.
struct Use {
  int argument = 0;
  const Tensor* tensor = nullptr;
  Desc wanted;
  bool writes = false;
};

struct PlannedPort {
  int argument = 0;
  Place place;
  Desc desc;
};
struct PlannedPrimitive {
  dnnl::primitive primitive;
  std::vector<PlannedPort> ports;
};

template <bool kTransposed>
struct Primitives;
template <>
struct Primitives<false> {
  using Forward = dnnl::convolution_forward;
  using BackwardData = dnnl::convolution_backward_data;
  using BackwardWeights = dnnl::convolution_backward_weights;
  static constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;
};
template <>
struct Primitives<true> {
  using Forward = dnnl::deconvolution_forward;
  using BackwardData = dnnl::deconvolution_backward_data;
  using BackwardWeights = dnnl::deconvolution_backward_weights;
  static constexpr auto kAlgorithm = dnnl::algorithm::deconvolution_direct;
};

Desc any_of(const Desc& desc) {
  return {desc.dims(), desc.data_type(), dnnl::memory::format_tag::any};
}

dnnl::primitive_attr own_scratch() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

class ConvolutionMaker {
 public:
  explicit ConvolutionMaker(Call& call) : call_(call) {}

  Made forward() {
    const BoundTensor x = call_.tensor("input"), weight = call_.tensor("weight");
    const BoundTensor y = call_.output(0);
    const auto bias = call_.tensor_if("bias");
    if (!check(x, weight, y)) return call_.made(nullptr);
    if (bias) check_bias(*bias, y);
    return guarded([&] {
      const Tensor from = operand(x, Role::Input), weights = operand(weight, Role::Weight);
      const Tensor to = result(y);
      const std::optional<Tensor> added = bias ? std::optional(operand(*bias)) : std::nullopt;
      shape_.transposed ? add_forward<true>(from, weights, added, to)
                        : add_forward<false>(from, weights, added, to);
    });
  }

  Made backward() {
    const BoundTensor x = call_.tensor("input"), weight = call_.tensor("weight");
    const BoundTensor g = call_.tensor("grad_output");
    if (!check(x, weight, g)) return call_.made(nullptr);
    const std::optional<BoundTensor> to_x = output_if(0), to_weight = output_if(1);
    const std::optional<BoundTensor> to_bias = output_if(2);
    if (to_x) call_.same_sizes(*to_x, x);
    if (to_weight) call_.same_sizes(*to_weight, weight);
    for (const auto& to : {to_x, to_weight})
      call_.require(!to || to->dtype == x.dtype, "the element types differ");
    if (to_bias) check_bias(*to_bias, g);
    if (call_.ok() && !to_x && !shape_.transposed &&
        base::widens_weight_gradient(x.dtype, weight.sizes[1],
                                     base::numel(weight.sizes.subspan(2))))
      type_ = DType::F32;
    return guarded([&] {
      const Tensor gradient = operand(g), from = operand(x, Role::Input);
      const Tensor weights = operand(weight, Role::Weight);
      const auto made = [&](const std::optional<BoundTensor>& to, Role role = Role::Plain) {
        return to ? std::optional(result(*to, role)) : std::nullopt;
      };
      const std::optional<Tensor> of_x = made(to_x, Role::Input), of_bias = made(to_bias);
      const std::optional<Tensor> of_weight = made(to_weight, Role::Weight);
      shape_.transposed ? add_backward<true>(gradient, from, weights, of_x, of_weight, of_bias)
                        : add_backward<false>(gradient, from, weights, of_x, of_weight, of_bias);
    });
  }

 private:
  std::optional<BoundTensor> output_if(size_t index) {
    return call_.has_result(index) ? std::optional(call_.output(index)) : std::nullopt;
  }

  bool check(const BoundTensor& x, const BoundTensor& weight, const BoundTensor& y) {
    const auto shape = native::convolution_shape(call_, x, weight, y);
    call_.require(x.dtype == DType::F32 || x.dtype == DType::BF16,
                  "convolutions are of f32 or bf16 elements");
    call_.require(weight.dtype == x.dtype && y.dtype == x.dtype, "the element types differ");
    if (!shape || !call_.ok()) return false;
    shape_ = *shape;
    // oneDNN counts the elements that a dilation leaves out.
    for (int64_t& dilation : shape_.dilations) --dilation;
    for (size_t i = 0; i < shape_.strides.size(); ++i) {
      zeros_.push_back(std::max<int64_t>(-shape_.padding_after[i], 0) / shape_.strides[i]);
      shape_.padding_after[i] += zeros_[i] * shape_.strides[i];
    }
    type_ = multiplies_bf16() ? x.dtype : DType::F32;
    return true;
  }

  void check_bias(const BoundTensor& bias, const BoundTensor& y) {
    call_.require(bias.sizes.size() == 1 && bias.sizes[0] == y.sizes[1] && bias.dtype == y.dtype,
                  "the bias does not fit");
  }

  Desc describe(const BoundTensor& tensor, const std::vector<int64_t>& sizes,
                const std::vector<int64_t>& strides, Role role) const {
    Layout layout{sizes, strides};
    if (role == Role::Weight) layout = layout_of_weight(tensor, strides, shape_);
    return {layout.sizes, type_of(type_), layout.strides};
  }

  // All tensors come before the first primitive, so that their copies stay while all of them run.
  Tensor operand(const BoundTensor& tensor, Role role = Role::Plain) {
    Tensor dense = place(tensor, role);
    if (dense.place.offset >= 0) before_.push_back(dense);
    return dense;
  }
  Tensor result(const BoundTensor& tensor, Role role = Role::Plain) {
    Tensor dense = place(tensor, role);
    if (dense.place.offset >= 0) after_.push_back(dense);
    return dense;
  }
  Tensor place(const BoundTensor& tensor, Role role) {
    std::vector<int64_t> sizes(tensor.sizes.begin(), tensor.sizes.end());
    for (size_t i = 0; role == Role::Input && i < zeros_.size(); ++i) sizes[i + 2] += zeros_[i];
    const bool is_whole = std::ranges::equal(sizes, tensor.sizes);
    const auto strides = dense_strides_of(tensor);
    if (strides && is_whole && tensor.dtype == type_) {
      return {tensor,
              sizes,
              describe(tensor, sizes, *strides, role),
              {static_cast<std::byte*>(tensor.data), -1}};
    }
    const int64_t bytes = base::numel(sizes) * base::byte_size(type_);
    const Desc desc = describe(tensor, sizes, base::contiguous_strides(sizes), role);
    return {tensor, std::move(sizes), desc, {nullptr, common_.add(bytes)}};
  }

  template <bool kTransposed>
  typename Primitives<kTransposed>::Forward::primitive_desc forward_desc(const Desc& x,
                                                                         const Desc& weight,
                                                                         const Desc* bias,
                                                                         const Desc& y) const {
    using Forward = typename Primitives<kTransposed>::Forward;
    constexpr auto kAlgorithm = Primitives<kTransposed>::kAlgorithm;
    constexpr auto kKind = dnnl::prop_kind::forward_training;
    const auto desc =
        bias != nullptr ? typename Forward::desc(kKind, kAlgorithm, any_of(x), any_of(weight),
                                                 *bias, any_of(y), shape_.strides, shape_.dilations,
                                                 shape_.padding_before, shape_.padding_after)
                        : typename Forward::desc(kKind, kAlgorithm, any_of(x), any_of(weight),
                                                 any_of(y), shape_.strides, shape_.dilations,
                                                 shape_.padding_before, shape_.padding_after);
    return {desc, own_scratch(), cpu()};
  }

  template <bool kTransposed>
  void add_forward(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                   const Tensor& y) {
    const auto desc =
        forward_desc<kTransposed>(x.desc, weight.desc, bias ? &bias->desc : nullptr, y.desc);
    std::vector<Use> uses = {{DNNL_ARG_SRC, &x, desc.src_desc()},
                             {DNNL_ARG_WEIGHTS, &weight, desc.weights_desc()},
                             {DNNL_ARG_DST, &y, desc.dst_desc(), true}};
    if (bias) uses.push_back({DNNL_ARG_BIAS, &*bias, bias->desc});
    add(typename Primitives<kTransposed>::Forward(desc), uses, desc.scratchpad_desc());
  }

  template <bool kTransposed>
  void add_backward(const Tensor& g, const Tensor& x, const Tensor& weight,
                    const std::optional<Tensor>& of_x, const std::optional<Tensor>& of_weight,
                    const std::optional<Tensor>& of_bias) {
    using Kind = Primitives<kTransposed>;
    using Data = typename Kind::BackwardData;
    using Weights = typename Kind::BackwardWeights;
    const auto hint = forward_desc<kTransposed>(x.desc, weight.desc, nullptr, g.desc);
    if (of_x) {
      const typename Data::desc desc(Kind::kAlgorithm, any_of(x.desc), any_of(weight.desc),
                                     any_of(g.desc), shape_.strides, shape_.dilations,
                                     shape_.padding_before, shape_.padding_after);
      const typename Data::primitive_desc made(desc, own_scratch(), cpu(), hint);
      add(Data(made),
          {{DNNL_ARG_DIFF_DST, &g, made.diff_dst_desc()},
           {DNNL_ARG_WEIGHTS, &weight, made.weights_desc()},
           {DNNL_ARG_DIFF_SRC, &*of_x, made.diff_src_desc(), true}},
          made.scratchpad_desc());
    }
    if (!of_weight && !of_bias) return;
    const auto desc =
        of_bias
            ? typename Weights::desc(Kind::kAlgorithm, any_of(x.desc), any_of(weight.desc),
                                     of_bias->desc, any_of(g.desc), shape_.strides,
                                     shape_.dilations, shape_.padding_before, shape_.padding_after)
            : typename Weights::desc(Kind::kAlgorithm, any_of(x.desc), any_of(weight.desc),
                                     any_of(g.desc), shape_.strides, shape_.dilations,
                                     shape_.padding_before, shape_.padding_after);
    const typename Weights::primitive_desc made(desc, own_scratch(), cpu(), hint);
    std::vector<Use> uses = {
        {DNNL_ARG_SRC, &x, made.src_desc()},
        {DNNL_ARG_DIFF_DST, &g, made.diff_dst_desc()},
        {DNNL_ARG_DIFF_WEIGHTS, of_weight ? &*of_weight : nullptr, made.diff_weights_desc(), true}};
    if (of_bias) uses.push_back({DNNL_ARG_DIFF_BIAS, &*of_bias, of_bias->desc, true});
    add(Weights(made), uses, made.scratchpad_desc());
  }

  // A primitive between the reorders that it needs. Primitives run one after the other, so their
  // parts of scratch begin at the same place.
  void add(dnnl::primitive primitive, const std::vector<Use>& uses, const Desc& scratchpad) {
    Parts parts = common_;
    PlannedPrimitive planned{std::move(primitive), {}};
    std::vector<PlannedPrimitive> after;
    for (const Use& use : uses) {
      const bool as_it_is = use.tensor != nullptr && use.tensor->desc == use.wanted;
      const Place place =
          as_it_is ? use.tensor->place
                   : Place{nullptr, parts.add(static_cast<int64_t>(use.wanted.get_size()))};
      planned.ports.push_back({use.argument, place, use.wanted});
      if (as_it_is || use.tensor == nullptr) continue;
      const PlannedPort blocked{0, place, use.wanted};
      const PlannedPort plain{0, use.tensor->place, use.tensor->desc};
      if (use.writes) {
        after.push_back(reorder(blocked, plain, parts));
      } else {
        primitives_.push_back(reorder(plain, blocked, parts));
      }
    }
    add_scratch(planned, scratchpad, parts);
    primitives_.push_back(std::move(planned));
    std::ranges::move(after, std::back_inserter(primitives_));
    scratch_bytes_ = std::max(scratch_bytes_, parts.bytes());
  }

  static PlannedPrimitive reorder(PlannedPort from, PlannedPort to, Parts& parts) {
    const dnnl::reorder::primitive_desc desc(cpu(), from.desc, cpu(), to.desc, own_scratch());
    from.argument = DNNL_ARG_FROM;
    to.argument = DNNL_ARG_TO;
    PlannedPrimitive planned{dnnl::reorder(desc), {from, to}};
    add_scratch(planned, desc.scratchpad_desc(), parts);
    return planned;
  }

  static void add_scratch(PlannedPrimitive& planned, const Desc& scratchpad, Parts& parts) {
    const auto bytes = static_cast<int64_t>(scratchpad.get_size());
    if (bytes == 0) return;
    planned.ports.push_back({DNNL_ARG_SCRATCHPAD, {nullptr, parts.add(bytes)}, scratchpad});
  }

  // The kernel of the primitives that `plan` adds; oneDNN says what it lacks by an exception.
  template <typename F>
  Made guarded(F&& plan) {
    if (!call_.ok()) return call_.made(nullptr);
    omp_set_num_threads(call_.threads());
    try {
      plan();
      return finish();
    } catch (const dnnl::error& error) {
      call_.refuse(lacks("convolution", error));
      return call_.made(nullptr);
    }
  }

  Made finish() {
    scratch_bytes_ = std::max(scratch_bytes_, common_.bytes());
    std::byte* scratch = call_.scratch(scratch_bytes_);
    const bool is_measured = scratch == nullptr && scratch_bytes_ > 0;
    if (!call_.ok() || is_measured) return call_.made(nullptr);
    CopyRegions before, after;
    for (const Tensor& tensor : before_) {
      if (!std::ranges::equal(tensor.sizes, tensor.bound.sizes))
        before.fill(call_, copy_of(tensor, scratch), 0.0);
      before.copy(call_, own_part(tensor, scratch), Region(tensor.bound));
    }
    for (const Tensor& tensor : after_)
      after.copy(call_, Region(tensor.bound), own_part(tensor, scratch));
    std::vector<BoundPrimitive> primitives;
    for (const PlannedPrimitive& planned : primitives_) {
      std::vector<Port> ports;
      for (const PlannedPort& port : planned.ports)
        ports.push_back({port.argument, port.place.in(scratch), port.desc});
      primitives.emplace_back(planned.primitive, std::move(ports));
    }
    return call_.finish<Convolution>(std::move(before), std::move(primitives), std::move(after),
                                     call_.threads());
  }

  Region copy_of(const Tensor& tensor, std::byte* scratch) const {
    return Region(
        {tensor.place.in(scratch), type_, tensor.sizes, base::contiguous_strides(tensor.sizes)});
  }
  // Without the zeros behind it.
  Region own_part(const Tensor& tensor, std::byte* scratch) const {
    Region part = copy_of(tensor, scratch);
    part.sizes.assign(tensor.bound.sizes.begin(), tensor.bound.sizes.end());
    return part;
  }

  Call& call_;
  native::ConvolutionShape shape_;
  std::vector<int64_t> zeros_;          // behind each of the input's dims
  DType type_ = DType::F32;             // that the primitives compute with
  Parts common_;                        // copies of what lies in another order
  std::vector<Tensor> before_, after_;  // whose copies are made before and after all primitives
  std::vector<PlannedPrimitive> primitives_;
  int64_t scratch_bytes_ = 0;
};

constexpr native::Row kConvolutions[] = {
    {"aten.convolution.default", [](Call& call) { return ConvolutionMaker(call).forward(); }},
    {"aten.convolution_backward.default",
     [](Call& call) { return ConvolutionMaker(call).backward(); }},
};

}  // namespace

std::span<const native::Row> convolution_kernels() { return kConvolutions; }

}  // namespace dc::runtime::kernel::onednn
