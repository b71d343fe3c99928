#include "runtime/kernel/cuda/hand_source.h"

#include "runtime/kernel/cuda/element_type.h"

namespace dc::runtime::kernel::cuda {

KernelSource source_of(const std::string& name, const std::string& header,
                       const std::string& parameters, const std::string& function) {
  return {name,
          "#include \"runtime/kernel/cuda/kernels/" + header +
              "\"\n\nnamespace dc::runtime::kernel::cuda {\n\nDC_KERNEL(" + name + ", " +
              parameters + ") { " + function +
              "(parameters); }\n\n"
              "}  // namespace dc::runtime::kernel::cuda\n",
          0};
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
