#include "runtime/measure/measure.h"
#include "src/base/kernel_key.h"

namespace dc::runtime::measure {
namespace {

void add_tensor(base::KernelKey& key, const plan::Plan& plan, int64_t id) {
  if (id < 0) return key.none();
  const plan::Tensor& tensor = plan.tensors[static_cast<size_t>(id)];
  key.tensor(tensor.dtype, tensor.sizes, tensor.strides);
}

void add_argument(base::KernelKey& key, const plan::Plan& plan, const plan::Arg& arg) {
  switch (arg.kind) {
    case plan::ArgKind::None:
      return key.attribute(arg.name, std::string_view("none"));
    case plan::ArgKind::Tensor:
      return add_tensor(key, plan, arg.i);
    case plan::ArgKind::Tensors:
      for (int64_t id : arg.ints) add_tensor(key, plan, id);
      return;
    case plan::ArgKind::Int:
    case plan::ArgKind::Bool:
    case plan::ArgKind::DType:
    case plan::ArgKind::Layout:
    case plan::ArgKind::MemoryFormat:
      return key.attribute(arg.name, arg.i);
    case plan::ArgKind::Ints:
    case plan::ArgKind::Bools:
      return key.attribute(arg.name, std::span<const int64_t>(arg.ints));
    case plan::ArgKind::Float:
      return key.attribute(arg.name, arg.f);
    case plan::ArgKind::Floats:
      return key.attribute(arg.name, std::span<const double>(arg.floats));
    case plan::ArgKind::String:
      return key.attribute(arg.name, std::string_view(arg.s));
    case plan::ArgKind::Device:
      return;
  }
}

}  // namespace

std::string instruction_key(const plan::Plan& plan, const plan::Instruction& instruction) {
  base::KernelKey key(instruction.op);
  for (const plan::Arg& arg : instruction.args) add_argument(key, plan, arg);
  key.begin_results();
  for (int32_t output : instruction.outputs) add_tensor(key, plan, output);
  return key.text();
}

}  // namespace dc::runtime::measure
