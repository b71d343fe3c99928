#include "runtime/kernel/cuda/hand_source.h"

#include "runtime/kernel/cuda/element_type.h"

namespace dc::runtime::kernel::cuda {
namespace {

std::string text_of(const std::string& header, const std::string& head,
                    const std::string& function) {
  return "#include \"runtime/kernel/cuda/kernels/" + header +
         "\"\n\nnamespace dc::runtime::kernel::cuda {\n\n" + head + " { " + function +
         "(parameters); }\n\n}  // namespace dc::runtime::kernel::cuda\n";
}

}  // namespace

KernelSource source_of(const std::string& name, const std::string& header,
                       const std::string& parameters, const std::string& function) {
  return {name, text_of(header, "DC_KERNEL(" + name + ", " + parameters + ")", function)};
}

KernelSource source_of(const std::string& name, const std::string& header,
                       const std::string& parameters, const std::string& function,
                       const BlockShape& shape) {
  const std::string head = "DC_KERNEL_OF(" + name + ", " + parameters + ", " +
                           std::to_string(shape.threads) + ", " + std::to_string(shape.blocks) +
                           ")";
  return {name, text_of(header, head, function), 0, static_cast<unsigned>(shape.threads),
          static_cast<unsigned>(shape.shared_bytes)};
}

KernelSource source_for(std::initializer_list<base::DType> types, const std::string& name,
                        const std::string& header, const std::string& parameters,
                        const std::string& function) {
  std::string full = name, arguments;
  for (const base::DType dtype : types) {
    full += "_" + std::string(base::name(dtype));
    arguments += (arguments.empty() ? "" : ", ") + std::string(element_type(dtype));
  }
  return source_of(full, header, parameters, function + "<" + arguments + ">");
}

}  // namespace dc::runtime::kernel::cuda
