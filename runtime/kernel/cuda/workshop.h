// Workshop: makes kernels of a GPU from their text, and has what they use while they are launched.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernel/cuda/kernel_compiler.h"
#include "runtime/kernel/kernel.h"

namespace dc::runtime::kernel::cuda {

// A kernel of a loaded module with its parameter.
struct Launch {
  device::cuda::Function function = nullptr;
  unsigned blocks = 0;                     // none: nothing is launched
  unsigned threads = 0, shared_bytes = 0;  // of a block
  std::vector<std::byte> parameters;
  std::string what;  // for errors
};

class Workshop {
 public:
  // With the newest NVRTC that the GPU's driver goes with, as Nvrtc::open.
  static base::Result<std::unique_ptr<Workshop>> open(device::CudaDevice& device);
  ~Workshop();
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;

  // Compiles the text, unless that was done, and loads what it gives. As KernelCompiler::compile;
  // Unavailable (69), DC6156, if the GPU does not take the machine code.
  base::Result<Launch> launch(const KernelSource& source, unsigned blocks,
                              std::span<const std::byte> parameters);
  template <typename Parameters>
  base::Result<Launch> launch(const KernelSource& source, unsigned blocks,
                              const Parameters& parameters) {
    return launch(source, blocks, std::as_bytes(std::span(&parameters, 1)));
  }

  // Of the GPU, 90 of compute capability 9.0.
  int architecture() const { return device_.architecture(); }
  // Whether it has the instructions of kernels/warp.h and so much shared memory for a block.
  bool has_tensor_cores(int shared_bytes) const;
  // Blocks for so many elements, at most as many as the GPU has room for at once.
  unsigned blocks_for(int64_t elements) const;
  // Leaves out blocks that would begin when others have ended, of a kernel whose threads take more
  // elements instead.
  void keep_resident(Launch& launch) const;
  // What the plan has for the instruction whose kernel is made next.
  void begin_kernel(std::byte* planned, int64_t bytes);
  // The next kernel is made to see what it needs, and never runs.
  void begin_measurement();
  // The next kernels are not made: their texts are noted, and scratch is as in a measurement.
  void begin_listing();
  // Compiles on all cores what was noted. What does not compile is for launch() to tell.
  void compile_listed();
  // Of both that follow, since then.
  int64_t scratch_bytes() const { return asked_bytes_; }
  // The plan's memory for the kernel, on 256 bytes, as cuBLASLt wants its workspace; null if it has
  // not as much left.
  std::byte* planned_scratch(int64_t bytes);
  // The same; where it has not, memory for kernels of one of the plan's streams, each while it
  // runs: at most once for a kernel. OutOfMemory (80).
  base::Result<std::byte*> scratch(int32_t stream, int64_t bytes);
  // A count of blocks that is 0 whenever a kernel of the stream begins, if each leaves it so.
  // OutOfMemory (80).
  base::Result<unsigned*> block_counter(int32_t stream);
  // Issues a launch with other parameters than its own, on so many blocks.
  void issue(const Launch& launch, unsigned blocks, const void* parameters,
             device::Stream& stream) const;
  // A kernel that launches these one after the other.
  std::unique_ptr<Kernel> kernel(std::vector<Launch> launches) const;
  // A kernel of one launch; the arguments and errors are those of launch().
  template <typename Parameters>
  base::Result<std::unique_ptr<Kernel>> kernel(const KernelSource& source, unsigned blocks,
                                               const Parameters& parameters) {
    std::vector<Launch> launches(1);
    DC_ASSIGN_OR_RETURN(launches[0], launch(source, blocks, parameters));
    return kernel(std::move(launches));
  }

 private:
  Workshop(device::CudaDevice& device, Nvrtc nvrtc, int driver_version);
  base::Result<device::cuda::Module> module(const KernelSource& source);

  device::CudaDevice& device_;
  KernelCompiler compiler_;
  std::vector<KernelSource> listed_;                                               // each text once
  std::map<std::string, std::string> compiled_;                                    // by text
  std::map<std::string, device::cuda::Module> modules_;                            // by text
  std::map<int32_t, std::vector<std::unique_ptr<device::DeviceMemory>>> scratch_;  // by stream
  std::map<int32_t, std::unique_ptr<device::DeviceMemory>> counters_;              // by stream
  std::byte* planned_ = nullptr;
  int64_t planned_bytes_ = 0, skipped_bytes_ = 0, asked_bytes_ = 0;
  bool measures_ = false, lists_ = false;
};

}  // namespace dc::runtime::kernel::cuda
