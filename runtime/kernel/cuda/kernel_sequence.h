// Kernels one after the other on one stream.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "runtime/kernel/kernel.h"

namespace dc::runtime::kernel::cuda {

class KernelSequence final : public Kernel {
 public:
  void add(std::unique_ptr<Kernel> kernel) { kernels_.push_back(std::move(kernel)); }
  base::Status launch(device::Stream& stream) override {
    for (const std::unique_ptr<Kernel>& kernel : kernels_)
      DC_RETURN_IF_ERROR(kernel->launch(stream));
    return {};
  }

 private:
  std::vector<std::unique_ptr<Kernel>> kernels_;
};

}  // namespace dc::runtime::kernel::cuda
