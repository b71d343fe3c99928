#include "src/profile/node_key.h"

#include "src/base/kernel_key.h"

namespace dc::profile {
namespace {

void add_tensor(base::KernelKey& key, const ir::Graph& graph, ir::ValueId value) {
  if (!value.valid()) return key.none();
  const ir::TensorType& type = graph.value(value).type;
  key.tensor(type.dtype, type.shape, type.strides);
}

struct AddArgument {
  base::KernelKey& key;
  const ir::Graph& graph;
  const ir::Node& node;
  const std::string& name;

  void operator()(std::monostate) const { key.attribute(name, std::string_view("none")); }
  void operator()(const ir::OperandRef& ref) const {
    add_tensor(key, graph, node.operands[static_cast<size_t>(ref.index)]);
  }
  void operator()(const ir::OperandList& list) const {
    for (int index : list.indices)
      add_tensor(key, graph, index < 0 ? ir::ValueId{} : node.operands[static_cast<size_t>(index)]);
  }
  void operator()(bool value) const { key.attribute(name, int64_t{value}); }
  void operator()(int64_t value) const { key.attribute(name, value); }
  void operator()(double value) const { key.attribute(name, value); }
  void operator()(const std::string& value) const { key.attribute(name, std::string_view(value)); }
  void operator()(const std::vector<bool>& values) const {
    const std::vector<int64_t> numbers(values.begin(), values.end());
    key.attribute(name, std::span<const int64_t>(numbers));
  }
  void operator()(const std::vector<int64_t>& values) const {
    key.attribute(name, std::span<const int64_t>(values));
  }
  void operator()(const std::vector<double>& values) const {
    key.attribute(name, std::span<const double>(values));
  }
  void operator()(ir::DType value) const { key.attribute(name, static_cast<int64_t>(value)); }
  void operator()(ir::DeviceArg) const {}
  void operator()(const ir::LayoutArg& value) const { key.attribute(name, value.value); }
  void operator()(const ir::MemoryFormatArg& value) const { key.attribute(name, value.value); }
};

}  // namespace

std::string node_key(const ir::Graph& graph, const ir::Node& node) {
  if (node.kind != ir::OpKind::Aten) {
    base::KernelKey key("dc." + std::string(ir::info(node.kind).text));
    for (ir::ValueId operand : node.operands) add_tensor(key, graph, operand);
    key.begin_results();
    for (ir::ValueId result : node.results) add_tensor(key, graph, result);
    return key.text();
  }
  base::KernelKey key(node.overload);
  for (const ir::Arg& arg : node.args)
    std::visit(AddArgument{key, graph, node, arg.name}, arg.value);
  key.begin_results();
  for (ir::ValueId result : node.results) add_tensor(key, graph, result);
  return key.text();
}

}  // namespace dc::profile
