// Weights that are drawn: by the host's cores, or by kernels of a GPU with the same bits
// (runtime/kernel/scalar/drawing.h has the formula).
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/kernel/kernel.h"
#include "runtime/kernel/scalar/drawing.h"
#include "src/base/dtype.h"
#include "src/base/status.h"

namespace dc::runtime::device {
class Device;
}

namespace dc::runtime::kernel {

using scalar::Drawing, scalar::DrawKind;

// Elements [first, first + count) of what is drawn, rounded to `through`, then to `to`, side by
// side at `out`, in the host's memory. May be called by several threads at once.
void draw_elements(const Drawing& what, int64_t first, int64_t count, base::DType through,
                   base::DType to, void* out);

// Draws into the memory of a device whose kernels are not the host's.
class Drawer {
 public:
  virtual ~Drawer() = default;
  // As draw_elements(), at an address of the device: issues the work. Types are f32, bf16 and f16.
  // The errors of a provider's prepare().
  virtual base::Status draw(const Drawing& what, int64_t first, int64_t count, base::DType through,
                            base::DType to, void* out) = 0;
  virtual base::Status finish() = 0;  // waits until all is drawn
};
// Null where the host's cores are the device.
std::unique_ptr<Drawer> make_drawer(device::Device& device);

}  // namespace dc::runtime::kernel
