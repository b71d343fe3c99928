#include "src/cost/analytic.h"

#include <algorithm>

#include "src/cost/scratch.h"

namespace dc::cost {
namespace {

using base::DType;
using ir::AtenClass;
using ir::Graph;
using ir::Node;
using ir::OpKind;
using ir::TensorType;

const TensorType& operand(const Graph& graph, const Node& node, size_t i) {
  return graph.value(node.operands[i]).type;
}

int64_t bytes_moved(const Graph& graph, const Node& node) {
  int64_t bytes = 0;
  for (ir::ValueId id : node.operands) bytes += graph.value(id).type.bytes().v;
  for (ir::ValueId id : node.results) {
    if (id.valid()) bytes += graph.value(id).type.bytes().v;
  }
  return bytes;
}

// Elements of results[0] times the length of the sum behind each.
int64_t product_flops(const Graph& graph, const Node& node) {
  bool adds = node.overload.find("add") != std::string::npos;  // addmm(bias, a, b)
  size_t left = adds ? 1 : 0;
  if (node.operands.size() <= left || node.results.empty() ||
      operand(graph, node, left).shape.empty())
    return 0;
  return 2 * graph.value(node.results[0]).type.numel() * operand(graph, node, left).shape.back();
}

int64_t attention_flops(const Graph& graph, const Node& node) {
  bool backward = node.overload.find("backward") != std::string::npos;
  size_t q = backward ? 1 : 0;
  if (node.operands.size() < q + 2) return 0;
  const TensorType& query = operand(graph, node, q);
  const TensorType& key = operand(graph, node, q + 1);
  if (query.shape.size() != 4 || key.shape.size() != 4) return 0;
  return (backward ? 10 : 4) * query.numel() * key.shape[2];
}

int64_t convolution_flops(const Graph& graph, const Node& node) {
  bool backward = node.overload == "aten.convolution_backward.default";
  if (!backward && node.overload != "aten.convolution.default") return 0;
  const TensorType& weight = operand(graph, node, backward ? 2 : 1);
  const TensorType& output = backward ? operand(graph, node, 0) : graph.value(node.results[0]).type;
  if (weight.shape.empty() || weight.shape[0] == 0) return 0;
  return (backward ? 4 : 2) * output.numel() * (weight.numel() / weight.shape[0]);
}

int64_t flops(const Graph& graph, const Node& node) {
  const ir::AtenInfo* aten = node.kind == OpKind::Aten ? ir::aten_info(node.overload) : nullptr;
  if (aten == nullptr) return 0;
  switch (aten->cls) {
    case AtenClass::Matmul:
      return product_flops(graph, node);
    case AtenClass::Attention:
      return attention_flops(graph, node);
    case AtenClass::Convolution:
      return convolution_flops(graph, node);
    case AtenClass::View:
    case AtenClass::Create:
    case AtenClass::Copy:
    case AtenClass::Pointwise:
    case AtenClass::Reduce:
    case AtenClass::Norm:
    case AtenClass::Softmax:
    case AtenClass::Index:
    case AtenClass::Identity:
      return 0;
  }
  return 0;
}

bool runs(const Node& node) {
  if (node.kind == OpKind::Aten) {
    const ir::AtenInfo* aten = ir::aten_info(node.overload);
    return aten == nullptr || aten->alias != ir::AliasRule::View;
  }
  return ir::info(node.kind).provider == ir::Provider::Native;
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
  return rates;
}

Estimate AnalyticCost::compute(const Graph& graph, const Node& node) const {
  if (!runs(node)) return {};
  Rate rate = rates_.flops_f32;
  if (!node.operands.empty()) {
    const DType dtype = operand(graph, node, 0).dtype;
    if (dtype == DType::BF16 || dtype == DType::F16) rate = rates_.flops_half;
    if (dtype == DType::F64) rate = rates_.flops_f64;
  }
  const base::Nanos arithmetic = rate.time(flops(graph, node));
  const base::Nanos memory = rates_.memory_bytes.time(bytes_moved(graph, node));
  return {base::Nanos{rates_.kernel_ns} + std::max(arithmetic, memory), Source::Analytic};
}

Scratch AnalyticCost::scratch(const Graph& graph, const Node& node) const {
  return {estimate_scratch(graph, node, threads_), Source::Analytic};
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
