#include "src/sim/plan_kernel.h"

namespace dc::sim {
namespace {

namespace rp = runtime::plan;

constexpr std::string_view kNative = "dc.";

ir::TensorType type_of(const rp::Tensor& tensor) {
  ir::TensorType type;
  type.dtype = tensor.dtype;
  type.shape = tensor.sizes;
  type.strides = tensor.strides;
  return type;
}

}  // namespace

KernelNodes::KernelNodes(const rp::Plan& plan)
    : plan_(plan), graph_("kernels"), values_(plan.tensors.size()) {}

ir::ValueId KernelNodes::value(int64_t tensor) {
  ir::ValueId& value = values_[static_cast<size_t>(tensor)];
  if (value.valid()) return value;
  const ir::NodeId first = graph_.first();
  value = graph_
              .insert(first, ir::OpKind::Input, {},
                      {{"", type_of(plan_.tensors[static_cast<size_t>(tensor)])}}, {}, {})
              .results[0];
  return value;
}

ir::Arg KernelNodes::argument(const rp::Arg& arg, std::vector<ir::ValueId>& operands) {
  ir::Arg result;
  result.name = arg.name;
  const auto add_operand = [&](int64_t tensor) {
    operands.push_back(value(tensor));
    return static_cast<int>(operands.size()) - 1;
  };
  switch (arg.kind) {
    case rp::ArgKind::None:
      break;
    case rp::ArgKind::Tensor:
      result.value = ir::OperandRef{add_operand(arg.i)};
      break;
    case rp::ArgKind::Tensors: {
      ir::OperandList list;
      for (int64_t tensor : arg.ints) list.indices.push_back(tensor < 0 ? -1 : add_operand(tensor));
      result.value = std::move(list);
      break;
    }
    case rp::ArgKind::Int:
      result.value = arg.i;
      break;
    case rp::ArgKind::Ints:
      result.value = arg.ints;
      break;
    case rp::ArgKind::Float:
      result.value = arg.f;
      break;
    case rp::ArgKind::Floats:
      result.value = arg.floats;
      break;
    case rp::ArgKind::Bool:
      result.value = arg.i != 0;
      break;
    case rp::ArgKind::Bools:
      result.value = std::vector<bool>(arg.ints.begin(), arg.ints.end());
      break;
    case rp::ArgKind::String:
      result.value = arg.s;
      break;
    case rp::ArgKind::DType:
      result.value = static_cast<ir::DType>(arg.i);
      break;
    case rp::ArgKind::Device:
      result.value = ir::DeviceArg{};
      break;
    case rp::ArgKind::Layout:
      result.value = ir::LayoutArg{arg.i};
      break;
    case rp::ArgKind::MemoryFormat:
      result.value = ir::MemoryFormatArg{arg.i};
      break;
  }
  return result;
}

const ir::Node* KernelNodes::add(const rp::Instruction& kernel) {
  std::vector<ir::ValueId> operands;
  std::vector<ir::Arg> args;
  for (const rp::Arg& arg : kernel.args) args.push_back(argument(arg, operands));
  std::vector<ir::NewValue> results;
  for (int32_t output : kernel.outputs) {
    if (output < 0) {
      results.push_back({"-", {}});
    } else {
      results.push_back({"", type_of(plan_.tensors[static_cast<size_t>(output)])});
    }
  }
  if (kernel.provider == rp::Provider::Aten) {
    return &graph_.insert_aten({}, kernel.op, std::move(operands), std::move(results),
                               std::move(args), {});
  }
  if (!kernel.op.starts_with(kNative)) return nullptr;
  const auto kind = ir::op_from_text(std::string_view(kernel.op).substr(kNative.size()));
  if (!kind) return nullptr;
  return &graph_.insert({}, *kind, std::move(operands), std::move(results), std::move(args), {});
}

}  // namespace dc::sim
