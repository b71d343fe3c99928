#include "src/ir/kernel_signature.h"

#include <algorithm>
#include <atomic>
#include <cassert>

#include "src/base/status.h"
#include "src/ir/effects.h"

namespace dc::ir {
namespace {

using base::KernelSignature;

void add_tensor(KernelSignature& signature, const Graph& graph, ValueId value) {
  if (!value.valid()) return signature.add_none();
  const TensorType& type = graph.value(value).type;
  signature.add_tensor(type.dtype, type.shape, type.strides);
}

struct AddArgument {
  KernelSignature& signature;
  const Graph& graph;
  const Node& node;
  const std::string& name;

  void operator()(std::monostate) const { signature.add_attribute(name); }
  void operator()(const OperandRef& ref) const {
    add_tensor(signature, graph, node.operands[static_cast<size_t>(ref.index)]);
  }
  void operator()(const OperandList& list) const {
    for (const int index : list.indices)
      add_tensor(signature, graph,
                 index < 0 ? ValueId{} : node.operands[static_cast<size_t>(index)]);
  }
  void operator()(bool value) const { signature.add_attribute(name, int64_t{value}); }
  void operator()(int64_t value) const { signature.add_attribute(name, value); }
  void operator()(double value) const { signature.add_attribute(name, value); }
  void operator()(const std::string& value) const {
    signature.add_attribute(name, std::string_view(value));
  }
  void operator()(const std::vector<bool>& values) const {
    const std::vector<int64_t> numbers(values.begin(), values.end());
    signature.add_attribute(name, std::span<const int64_t>(numbers));
  }
  void operator()(const std::vector<int64_t>& values) const {
    signature.add_attribute(name, std::span<const int64_t>(values));
  }
  void operator()(const std::vector<double>& values) const {
    signature.add_attribute(name, std::span<const double>(values));
  }
  void operator()(DType value) const { signature.add_attribute(name, static_cast<int64_t>(value)); }
  void operator()(StateId) const {}    // of state nodes, which are no kernels
  void operator()(DeviceArg) const {}  // always the rank's own
  void operator()(const LayoutArg& value) const { signature.add_attribute(name, value.value); }
  void operator()(const MemoryFormatArg& value) const {
    signature.add_attribute(name, value.value);
  }
};

bool names_operands(const Node& node) {
  return std::any_of(node.args.begin(), node.args.end(), [](const Arg& arg) {
    return std::holds_alternative<OperandRef>(arg.value) ||
           std::holds_alternative<OperandList>(arg.value);
  });
}

}  // namespace

std::optional<base::Provider> provider_of(const Node& node) {
  switch (traits(node.kind).provider) {
    case Provider::Aten:
      return node.provider;
    case Provider::Native:
      return base::Provider::Native;
    case Provider::Fused:
      return base::Provider::Fused;
    case Provider::None:
    case Provider::Comm:
    case Provider::Copy:
      return std::nullopt;
  }
  return std::nullopt;
}

KernelSignature signature_of(const Graph& graph, const Node& node) {
  const auto provider = provider_of(node);
  DC_CHECK(provider.has_value());
  const bool is_aten = node.kind == OpKind::Aten;
  KernelSignature signature(is_aten ? node.overload.name() : info(node.kind).kernel, *provider,
                            kernel_space(graph, node));
  if (is_aten && (node.operands.empty() || names_operands(node))) {
    for (const Arg& arg : node.args)
      std::visit(AddArgument{signature, graph, node, arg.name}, arg.value);
  } else {  // our own, or a test's that leaves the arguments out
    for (const ValueId operand : node.operands) add_tensor(signature, graph, operand);
  }
  if (const Arg* body = node.find(Attr::Body); body != nullptr && node.kind == OpKind::Fused)
    signature.add_attribute(body->label(), std::string_view(std::get<std::string>(body->value)));
  signature.begin_results();
  for (const ValueId result : node.results) add_tensor(signature, graph, result);
  return signature;
}

namespace {

// Threads that read one graph may find it out at once, and find the same.
std::atomic_ref<int32_t> known_kernel(const Node& node) {
  return std::atomic_ref<int32_t>(node.kernel.v);
}

}  // namespace

bool has_provider(const Node& node) {
  const base::KernelId known{known_kernel(node).load(std::memory_order_relaxed)};
  return known.valid() || provider_of(node).has_value();
}

base::KernelId kernel_of(const Graph& graph, const Node& node) {
  const std::atomic_ref<int32_t> known = known_kernel(node);
  base::KernelId kernel{known.load(std::memory_order_relaxed)};
  if (!kernel.valid()) {
    kernel = base::intern(signature_of(graph, node));
    known.store(kernel.v, std::memory_order_relaxed);
  }
  assert(base::signature_of(kernel) == signature_of(graph, node));
  return kernel;
}

}  // namespace dc::ir
