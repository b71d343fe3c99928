// Kernels that call a function written by hand, of a header in kernels/.
#pragma once

#include <initializer_list>
#include <string>

#include "runtime/kernel/cuda/kernel_source.h"
#include "src/base/dtype.h"

namespace dc::runtime::kernel::cuda {

// The kernel `name` that calls `function` with its parameter, which is of type `parameters`.
KernelSource source_of(const std::string& name, const std::string& header,
                       const std::string& parameters, const std::string& function);
// Of the blocks of a kernel that has not kBlockThreads threads.
struct BlockShape {
  int threads, shared_bytes;
  int blocks;  // that a multiprocessor shall have registers for
};
KernelSource source_of(const std::string& name, const std::string& header,
                       const std::string& parameters, const std::string& function,
                       const BlockShape& shape);
// The same where `function` is a template of element types; they become part of the name.
KernelSource source_for(std::initializer_list<base::DType> types, const std::string& name,
                        const std::string& header, const std::string& parameters,
                        const std::string& function);

}  // namespace dc::runtime::kernel::cuda
