#include "src/driver/device_kernels.h"

#include <map>
#include <string>

#include "src/ir/native_ops.h"

namespace dc::driver {
namespace {

// The step's own operators and fused ones run on every device.
bool has_gpu_kernel(const runtime::plan::Instruction& in) {
  return in.provider != base::Provider::Aten &&
         (!in.op.starts_with("aten.") || ir::has_gpu_kernel(in.op));
}

}  // namespace

base::Status check_kernels(const runtime::plan::Plan& plan) {
  if (plan.device != base::DeviceKind::Cuda) return {};
  std::map<std::string, std::string> missing;  // operators, with the first module of each
  for (const runtime::plan::Program& program : plan.programs) {
    for (const runtime::plan::Instruction& in : program.instructions) {
      if (in.kind == runtime::plan::InstructionKind::Kernel && !has_gpu_kernel(in))
        missing.emplace(in.op, in.module);
    }
  }
  if (missing.empty()) return {};
  std::string list;
  for (const auto& [op, module] : missing)
    list += (list.empty() ? "" : ", ") + op + (module.empty() ? "" : " (in " + module + ")");
  return base::Status(base::ErrorKind::Unsupported, "DC7038",
                      "there are no kernels for GPUs of " + list +
                          ". Replace these in the model, or compile with --device cpu");
}

}  // namespace dc::driver
