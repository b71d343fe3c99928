// A GPU by CUDA's driver: memory, streams and events of one device. Kernels for it are the
// business of runtime/kernel/cuda, which launches on CudaStream::handle().
#pragma once

#include <string_view>

#include "runtime/device/cuda/driver.h"
#include "runtime/device/device.h"

namespace dc::runtime::device {

// Calls return when the work is issued. The first failure of a call stays, and drain() reports it.
class CudaStream final : public Stream {
 public:
  CudaStream(const cuda::Driver& driver, cuda::Context context);
  ~CudaStream() override;
  void copy(std::byte* to, const std::byte* from, int64_t bytes) override;
  void fill(std::byte* to, std::byte value, int64_t bytes) override;
  // Of events of this device. A wait is issued after the signal that it waits for.
  void signal(Event& event, uint32_t value) override;
  bool wait(Event& event, uint32_t value) override;
  void write_timestamp(Timestamp& to) override;  // of this device
  base::Status drain() override;
  bool is_at_rest() const override;

  // Writes a number, when everything issued before is done, into 4 bytes of host memory that the
  // device allocated or registered.
  void write(uint32_t* to, uint32_t value);
  // What is issued afterwards runs when 4 bytes of such memory are at least a value, as numbers
  // that begin again after 2^32 are compared. The GPU does not compute while it waits.
  void wait_for(const uint32_t* at, uint32_t value);
  // The first failure of a call that issued to this stream; drain() also hears of what failed
  // later.
  const base::Status& failure() const { return failed_; }

  cuda::StreamHandle handle() const { return handle_; }
  // Whether the driver records what is issued, in place of doing it.
  void set_recording(bool recording) { recording_ = recording; }
  // A kernel that graphs whose first stream this is have in place of fills (cuda_fills.h); null:
  // none. It outlives them.
  void set_fill_kernel(cuda::Function kernel) { fill_kernel_ = kernel; }
  cuda::Function fill_kernel() const { return fill_kernel_; }
  // Notes the result of a call that issued `what` to this stream.
  void check(int result, std::string_view what);

 private:
  void use() const { (void)driver_.set_context(context_); }  // on the calling thread

  const cuda::Driver& driver_;
  cuda::Context context_;
  cuda::StreamHandle handle_ = nullptr;
  cuda::Function fill_kernel_ = nullptr;
  bool recording_ = false;
  base::Status failed_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(const cuda::Driver& driver, cuda::Context context, int ordinal)
      : driver_(driver), context_(context), ordinal_(ordinal) {}
  base::DeviceKind kind() const override { return base::DeviceKind::Cuda; }
  bool works_beside_host() const override { return true; }

  base::Result<std::unique_ptr<DeviceMemory>> allocate(int64_t bytes) override;
  // Unsupported (81): memory of a GPU is not made of a host's descriptor.
  base::Result<std::unique_ptr<DeviceMemory>> map_shared(int descriptor, int64_t bytes) override;
  base::Result<std::unique_ptr<DeviceMemory>> allocate_host(int64_t bytes) override;
  base::Status upload(std::byte* to, std::span<const std::byte> from) override;
  base::Status download(std::span<std::byte> to, const std::byte* from) override;
  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Event> make_event() override;
  std::unique_ptr<Timestamp> make_timestamp() override;
  base::Result<std::unique_ptr<Graph>> record(std::span<Stream* const> streams,
                                              const std::function<base::Status()>& issue) override;

  std::optional<base::GpuIdentity> gpu() const override;

  const cuda::Driver& driver() const { return driver_; }
  void use() const { (void)driver_.set_context(context_); }  // on the calling thread
  // Equal in processes that use the same GPU.
  cuda::Uuid uuid() const;
  // The GPU's architecture, 90 of compute capability 9.0.
  int architecture() const;
  int attribute(int which) const;

 private:
  int finish() const;  // what the driver does outside of streams
  base::Status not_recorded(int error) const;

  const cuda::Driver& driver_;
  cuda::Context context_;
  int ordinal_;
};

// The process's GPU: the one of its place among the ranks of its host, of those that
// CUDA_VISIBLE_DEVICES shows; they begin anew where there are fewer. The first call chooses.
// Unavailable (69): no driver, or no GPU.
base::Result<Device*> open_cuda_device(int local_rank);

}  // namespace dc::runtime::device
