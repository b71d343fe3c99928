// Two kernels that run one after the other as one: an instruction with two results, each made by a
// separate kernel.
#pragma once

#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::native {

class Pair final : public Kernel {
 public:
  Pair(std::unique_ptr<Kernel> first, std::unique_ptr<Kernel> second)
      : first_(std::move(first)), second_(std::move(second)) {}

  base::Status launch(device::Stream& stream) override {
    DC_RETURN_IF_ERROR(first_->launch(stream));
    return second_->launch(stream);
  }

 private:
  std::unique_ptr<Kernel> first_, second_;
};

inline Made pair(Call& call, Made first, Made second) {
  if (!first.ok()) return first;
  if (!second.ok()) return second;
  return call.finish<Pair>(std::move(*first), std::move(*second));
}

}  // namespace dc::runtime::kernel::native
