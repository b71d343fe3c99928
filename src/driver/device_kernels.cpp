#include "src/driver/device_kernels.h"

#include <algorithm>
#include <map>
#include <string>

namespace dc::driver {
namespace {

// Attention has kernels, of which none draws random numbers.
bool has_dropout(const runtime::plan::Instruction& in) {
  return std::ranges::any_of(in.args, [](const runtime::plan::Arg& arg) {
    return arg.name == "dropout_p" && (arg.f != 0 || arg.i != 0);
  });
}

}  // namespace

base::Status check_kernels(const runtime::plan::Plan& plan) {
  if (plan.device != base::DeviceKind::Cuda) return {};
  std::map<std::string, std::string> missing;  // operators, with the first module of each
  for (const runtime::plan::Program& program : plan.programs) {
    for (const runtime::plan::Instruction& in : program.instructions) {
      // What dcrun has kernels of, it has for GPUs too.
      if (in.kind == runtime::plan::InstructionKind::Kernel && in.provider == base::Provider::Aten)
        missing.emplace(in.op + (has_dropout(in) ? " with dropout" : ""), in.module);
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
