#include "runtime/plan/kernel_signature.h"

namespace dc::runtime::plan {
namespace {

using base::KernelSignature;

void add_tensor(KernelSignature& signature, const Plan& plan, int64_t id) {
  if (id < 0) return signature.add_none();
  const Tensor& tensor = plan.tensors[static_cast<size_t>(id)];
  signature.add_tensor(tensor.dtype, tensor.sizes, tensor.strides);
}

void add_argument(KernelSignature& signature, const Plan& plan, const Arg& arg) {
  switch (arg.kind) {
    case ArgKind::None:
      return signature.add_attribute(arg.name);
    case ArgKind::Tensor:
      return add_tensor(signature, plan, arg.i);
    case ArgKind::Tensors:
      for (const int64_t id : arg.ints) add_tensor(signature, plan, id);
      return;
    case ArgKind::Int:
    case ArgKind::Bool:
    case ArgKind::DType:
    case ArgKind::Layout:
    case ArgKind::MemoryFormat:
      return signature.add_attribute(arg.name, arg.i);
    case ArgKind::Ints:
    case ArgKind::Bools:
      return signature.add_attribute(arg.name, std::span<const int64_t>(arg.ints));
    case ArgKind::Float:
      return signature.add_attribute(arg.name, arg.f);
    case ArgKind::Floats:
      return signature.add_attribute(arg.name, std::span<const double>(arg.floats));
    case ArgKind::String:
      return signature.add_attribute(arg.name, std::string_view(arg.s));
    case ArgKind::Device:
      return;  // always the rank's own
  }
}

// A plan of single kernels, put together without streams, runs them on the device.
Space space_of(const Plan& plan, const Instruction& kernel) {
  const auto stream = static_cast<size_t>(kernel.stream);
  return stream < plan.streams.size() ? plan.streams[stream].space : Space::Device;
}

}  // namespace

KernelSignature signature_of(const Plan& plan, const Instruction& kernel) {
  KernelSignature signature(kernel.op, kernel.provider, space_of(plan, kernel));
  for (const Arg& arg : kernel.args) add_argument(signature, plan, arg);
  signature.begin_results();
  for (const int32_t output : kernel.outputs) add_tensor(signature, plan, output);
  return signature;
}

}  // namespace dc::runtime::plan
