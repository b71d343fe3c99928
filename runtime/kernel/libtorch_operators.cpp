#include "runtime/kernel/libtorch_operators.h"

#include <set>
#include <string_view>

namespace dc::runtime::kernel {

std::string libtorch_operators(const plan::Plan& plan) {
  std::set<std::string_view> operators;
  bool takes_native = false;
  for (const plan::Program& program : plan.programs) {
    for (const plan::Instruction& in : program.instructions) {
      if (in.kind != plan::InstructionKind::Kernel) continue;
      if (in.provider == plan::Provider::Aten) operators.insert(in.op);
      takes_native |= in.provider == plan::Provider::Native && in.op.starts_with("aten.");
    }
  }
  constexpr size_t kMostNamed = 4;
  std::string text = "libtorch is needed for ";
  size_t named = 0;
  for (const std::string_view op : operators) {
    if (named++ < kMostNamed) text += (named == 1 ? "" : ", ") + std::string(op);
  }
  if (named > kMostNamed) text += " and " + std::to_string(named - kMostNamed) + " more";
  if (takes_native) return text + ", which dcrun has no kernels for";
  return text + "; compile without --providers aten to need it for fewer operators or none";
}

}  // namespace dc::runtime::kernel
