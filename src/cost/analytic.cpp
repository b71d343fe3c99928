#include "src/cost/analytic.h"

#include <algorithm>
#include <span>

#include "src/cost/output_layer.h"
#include "src/cost/scratch.h"
#include "src/ir/ops.h"

namespace dc::cost {
namespace {

using base::DType;
using base::KernelSignature;
using base::KernelTensors;
using base::TensorMeta;
using ir::AtenWork;

// Of each tensor once, as kernels of a device are counted.
int64_t bytes_moved(const KernelTensors& tensors) {
  int64_t bytes = 0;
  for (const TensorMeta& input : tensors.inputs) bytes += input.bytes();
  for (const auto& result : tensors.results) {
    if (result) bytes += result->bytes();
  }
  return bytes;
}

// What an update changes is read and then written.
int64_t bytes_changed(std::string_view op, const KernelTensors& tensors) {
  const std::optional<ir::OpKind> kind = ir::native_op(op);
  int64_t bytes = 0;
  for (size_t i = 0; kind && i < tensors.inputs.size(); ++i) {
    const std::span<const ir::OperandInfo> operands = ir::info(*kind).operands();
    if (i < operands.size() && operands[i].access == ir::Access::Update)
      bytes += tensors.inputs[i].bytes();
  }
  return bytes;
}

// Elements of result 0 times the length of the sum behind each.
int64_t product_flops(const KernelTensors& tensors, AtenWork work) {
  const size_t left = work == AtenWork::BiasFirst ? 1 : 0;
  if (!tensors.results[0] || tensors.inputs[left].shape.empty()) return 0;
  return 2 * tensors.results[0]->numel() * tensors.inputs[left].shape.back();
}

// Of the compiler's own products; 0 for other kernels.
int64_t own_product_flops(std::string_view op, const KernelTensors& tensors) {
  const bool adds = op == ir::info(ir::OpKind::AddProduct).kernel;
  if (!adds && op != ir::info(ir::OpKind::TwoProducts).kernel) return 0;
  const size_t left = adds ? 1 : 0;
  if (tensors.inputs.size() < left + 2 || tensors.inputs[left].shape.size() != 2 ||
      tensors.inputs[left + 1].shape.size() != 2)
    return 0;
  const int64_t products = adds ? 1 : 2;
  return products * 2 * tensors.inputs[left].numel() * tensors.inputs[left + 1].shape[1];
}

int64_t attention_flops(const KernelTensors& tensors, AtenWork work) {
  const bool backward = work == AtenWork::Backward || work == AtenWork::FlashBackward;
  const size_t q = backward ? 1 : 0;
  const TensorMeta &query = tensors.inputs[q], &key = tensors.inputs[q + 1];
  if (query.shape.size() != 4 || key.shape.size() != 4) return 0;
  return (backward ? 10 : 4) * query.numel() * key.shape[2];
}

int64_t convolution_flops(const KernelTensors& tensors, AtenWork work) {
  const bool backward = work == AtenWork::ConvolveBackward;
  if (!backward && work != AtenWork::Convolve) return 0;
  if (!backward && !tensors.results[0]) return 0;
  const TensorMeta& weight = tensors.inputs[backward ? 2 : 1];
  const TensorMeta& output = backward ? tensors.inputs[0] : *tensors.results[0];
  if (weight.shape.empty() || weight.shape[0] == 0) return 0;
  return (backward ? 4 : 2) * output.numel() * (weight.numel() / weight.shape[0]);
}

int64_t flops(const ir::AtenInfo& aten, const KernelTensors& tensors) {
  switch (aten.cls) {
    case ir::AtenClass::Matmul:
      return product_flops(tensors, aten.work);
    case ir::AtenClass::Attention:
      return attention_flops(tensors, aten.work);
    case ir::AtenClass::Convolution:
      return convolution_flops(tensors, aten.work);
    case ir::AtenClass::View:
    case ir::AtenClass::Create:
    case ir::AtenClass::Copy:
    case ir::AtenClass::Pointwise:
    case ir::AtenClass::Reduce:
    case ir::AtenClass::Norm:
    case ir::AtenClass::Softmax:
    case ir::AtenClass::Index:
    case ir::AtenClass::Identity:
      return 0;
  }
  return 0;
}

}  // namespace

Rates generic_cpu(int threads) {
  constexpr int64_t kGiga = 1'000'000'000;
  Rates rates;
  rates.name = kGenericCpu;
  rates.flops_f64 = {40 * kGiga * threads};
  rates.flops_f32 = {80 * kGiga * threads};
  rates.flops_half = {160 * kGiga * threads};
  rates.memory_bytes = {8 * kGiga};  // of a rank, however many threads it has
  rates.kernel_ns = 2000;
  rates.collective_ns = 20000;
  rates.gather_bytes = {4 * kGiga};
  rates.reduce_bytes = {3 * kGiga};
  rates.to_host_bytes = rates.from_host_bytes = {8 * kGiga};
  rates.disk_bytes = {kGiga};
  return rates;
}

Rates rates_of(const base::MachineRates& machine, std::string name) {
  const auto rate = [](int64_t per_second) { return Rate{std::max<int64_t>(per_second, 1)}; };
  Rates rates;
  rates.name = std::move(name);
  rates.flops_f64 = rate(machine.f64_flops);
  rates.flops_f32 = rate(machine.f32_flops);
  rates.flops_half = rate(machine.half_flops);
  rates.memory_bytes = rate(machine.memory_bytes);
  rates.kernel_ns = machine.kernel_launch_ns;
  rates.collective_ns = machine.collective_latency_ns;
  rates.gather_bytes = rates.reduce_bytes = rate(machine.link_bytes);
  rates.to_host_bytes = rate(machine.to_host_bytes);
  rates.from_host_bytes = rate(machine.from_host_bytes);
  rates.disk_bytes = rate(machine.disk_bytes);
  rates.host_memory_bytes =
      machine.host_memory_bytes > 0 ? rate(machine.host_memory_bytes) : generic_cpu(1).memory_bytes;
  return rates;
}

Estimate AnalyticCost::kernel_time(const KernelSignature& kernel) const {
  const ir::AtenInfo* aten = ir::aten_info(kernel.op());
  if (aten != nullptr && aten->alias == ir::AliasRule::View) return {};
  const KernelTensors tensors = kernel.tensors();
  if (kernel.space() == base::Space::Host && rates_.host_memory_bytes) {
    const int64_t bytes = bytes_moved(tensors) + bytes_changed(kernel.op(), tensors);
    return {rates_.host_memory_bytes->time(bytes), Source::Analytic};
  }
  const bool known = aten != nullptr && has_its_tensors(*aten, tensors);
  Rate rate = rates_.flops_f32;
  if (!tensors.inputs.empty()) {
    const DType dtype = tensors.inputs[0].dtype;
    if (dtype == DType::BF16 || dtype == DType::F16) rate = rates_.flops_half;
    if (dtype == DType::F64) rate = rates_.flops_f64;
  }
  if (const auto layer = output_layer_of(kernel)) {
    const OutputLayerWork work = work_of(*layer);
    const base::Nanos loss = rates_.memory_bytes.time(work.bytes);
    const base::Nanos products =
        std::max(rate.time(work.flops), rates_.memory_bytes.time(bytes_moved(tensors)));
    return {base::Nanos{rates_.kernel_ns * work.kernels} + products + loss, Source::Analytic};
  }
  const base::Nanos arithmetic =
      rate.time(known ? flops(*aten, tensors) : own_product_flops(kernel.op(), tensors));
  const base::Nanos memory = rates_.memory_bytes.time(bytes_moved(tensors));
  return {base::Nanos{rates_.kernel_ns} + std::max(arithmetic, memory), Source::Analytic};
}

Scratch AnalyticCost::kernel_scratch(const KernelSignature& kernel) const {
  return {estimate_scratch(kernel, threads_), Source::Analytic};
}

Estimate AnalyticCost::collective(Collective kind, base::Bytes bytes, Group group) const {
  if (group.size <= 1) return {};
  const int64_t others = bytes.v / group.size * (group.size - 1);
  base::Nanos wire;
  switch (kind) {
    case Collective::AllGather:
      wire = rates_.gather_bytes.time(others);
      break;
    case Collective::ReduceScatter:
      wire = rates_.reduce_bytes.time(others);
      break;
    case Collective::AllReduce:
      wire = rates_.reduce_bytes.time(others) + rates_.gather_bytes.time(others);
      break;
    case Collective::Broadcast:
    case Collective::AllToAll:
      break;  // no op makes them
  }
  return {latency(kind, group) + wire, Source::Analytic};
}

base::Nanos AnalyticCost::latency(Collective kind, Group group) const {
  if (group.size <= 1) return {};
  return {kind == Collective::AllReduce ? 2 * rates_.collective_ns : rates_.collective_ns};
}

Estimate AnalyticCost::copy(base::Bytes bytes, ir::Space from, ir::Space to) const {
  Rate rate = rates_.memory_bytes;
  if (from == ir::Space::Device && to != ir::Space::Device) rate = rates_.to_host_bytes;
  if (to == ir::Space::Device && from != ir::Space::Device) rate = rates_.from_host_bytes;
  if (from == ir::Space::Disk || to == ir::Space::Disk) rate = rates_.disk_bytes;
  return {base::Nanos{rates_.kernel_ns} + rate.time(bytes.v), Source::Analytic};
}

}  // namespace dc::cost
