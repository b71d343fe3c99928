// Kernels: what executes a compute instruction. A provider prepares an instruction once (resolves
// the op, binds addresses) and launches it many times.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/device/stream.h"
#include "runtime/plan/plan.h"
#include "src/base/status.h"

namespace dc::runtime::device {
class Device;
}

namespace dc::runtime::kernel {

// A tensor bound to memory of a device or of the host.
struct BoundTensor {
  void* data = nullptr;  // address of element 0
  base::DType dtype = base::DType::F32;
  std::span<const int64_t> sizes, strides;  // elements
  int64_t numel() const;
};

// Resolves the plan's tensors to addresses of one rank. What lies on disk has none.
class AddressMap {
 public:
  // `outside`: where the arenas of the other spaces begin.
  AddressMap(const plan::Plan& plan, std::byte* device_base, int rank,
             const base::PerSpace<std::byte*>& outside = {})
      : plan_(plan), bases_(outside), rank_(rank) {
    bases_[plan::Space::Device] = device_base;
  }
  BoundTensor bind(int32_t tensor) const;
  std::byte* slice(int32_t slice) const;  // start address
  const plan::Plan& plan() const { return plan_; }
  int rank() const { return rank_; }

 private:
  const plan::Plan& plan_;
  base::PerSpace<std::byte*> bases_;
  int rank_;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Issues its work to the stream; always to the same one. Kernels that run on the host's cores do
  // it at once on the calling thread, and resolve their addresses by the stream. No allocation by
  // native kernels, no logging. A failure is fatal for the run.
  virtual base::Status launch(device::Stream& stream) = 0;
};

// Scratch that kernels need on this CPU beyond what the plan has.
struct MissingScratch {
  int64_t bytes = 0;  // taken from the heap
  // The kernel with the largest shortage: its op, the bytes it needs and the bytes in the plan.
  std::string op;
  int64_t needed = 0, planned = 0;

  void add(const MissingScratch& other) {  // of another provider
    const int64_t all = bytes + other.bytes;
    if (other.needed - other.planned > needed - planned) *this = other;
    bytes = all;
  }
};

class KernelProvider {
 public:
  virtual ~KernelProvider() = default;
  virtual std::string_view name() const = 0;
  // Unsupported (81) when the op is unknown; OutOfMemory (80) naming the op when it needs more
  // scratch than planned.
  virtual base::Result<std::unique_ptr<Kernel>> prepare(const plan::Instruction& instruction,
                                                        const AddressMap& addresses) = 0;
  // What takes long in preparing these instructions, done on all cores before. What fails is for
  // prepare() to tell.
  virtual void prepare_ahead(std::span<const plan::Instruction* const>, const AddressMap&) {}
  // After that: lets a stream that instructions are launched on use kernels of this provider. They
  // live as long as the provider.
  virtual void equip(device::Stream&) {}
  // Bytes of scratch the instruction's kernel needs on this CPU or GPU, for the profile: measured
  // by running it once on separate memory, where it cannot say so itself.
  virtual base::Result<int64_t> measure_scratch(const plan::Instruction& instruction,
                                                const AddressMap& addresses) = 0;
  // Before the first prepare: takes memory for kernels that need more scratch than the plan has,
  // once for each stream. Without it they are refused (80).
  virtual base::Result<MissingScratch> take_missing_scratch(const AddressMap&) {
    return MissingScratch();
  }
  // Things that did not go as planned but were repaired (an output that had to be copied into its
  // slice), for the metrics header.
  virtual int64_t repairs() const { return 0; }
};

std::unique_ptr<KernelProvider> make_native_provider();
// Kernels of a GPU, of kind Cuda, compiled while they are prepared. That is Unavailable (69)
// without NVRTC (DC6150), with an unknown one (DC6151) or one that is newer than the driver
// (DC6152).
std::unique_ptr<KernelProvider> make_cuda_provider(device::Device& device);
// Of these the one whose kernels run on that device.
std::unique_ptr<KernelProvider> make_provider(device::Device& device);
// Opens the plug-in libdcrun_aten.so next to the program (or $DCRUN_PLUGIN_DIR); Unavailable (69)
// with the reason if it cannot. `threads`: intra-op threads.
base::Result<std::unique_ptr<KernelProvider>> open_aten_provider(int threads);

}  // namespace dc::runtime::kernel
