#include "runtime/device/cuda/cuda_device.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>

namespace dc::runtime::device {
namespace {

using base::ErrorKind;
using base::Status;
using cuda::address_of;
using Memory = base::Result<std::unique_ptr<DeviceMemory>>;

class GpuMemory final : public DeviceMemory {
 public:
  GpuMemory(const CudaDevice& device, cuda::Address address, int64_t bytes)
      : DeviceMemory(cuda::pointer_to(address), bytes), device_(device) {}
  ~GpuMemory() override {
    device_.use();
    (void)device_.driver().free(address_of(base()));
  }

 private:
  const CudaDevice& device_;
};

class PinnedMemory final : public DeviceMemory {
 public:
  PinnedMemory(const CudaDevice& device, void* at, int64_t bytes)
      : DeviceMemory(static_cast<std::byte*>(at), bytes), device_(device) {}
  ~PinnedMemory() override {
    device_.use();
    (void)device_.driver().free_host(base());
  }

 private:
  const CudaDevice& device_;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(const CudaDevice& device) : device_(device) {
    device_.use();
    created_ = device_.driver().create_event(&handle_, cuda::kBlockingSync | cuda::kDisableTiming);
  }
  ~CudaEvent() override {
    device_.use();
    if (created_ == cuda::kSuccess) (void)device_.driver().destroy_event(handle_);
  }

  // The host sleeps until a signal is issued, then until the GPU has come to it.
  bool wait(uint32_t value) override {
    uint32_t issued = issued_.load(std::memory_order_acquire);
    while (issued < value && !cancelled_.load(std::memory_order_acquire)) {
      issued_.wait(issued, std::memory_order_acquire);
      issued = issued_.load(std::memory_order_acquire);
    }
    if (cancelled_.load(std::memory_order_acquire)) return false;
    device_.use();
    return device_.driver().synchronize_event(handle_) == cuda::kSuccess;
  }
  void cancel() override {
    cancelled_.store(true, std::memory_order_release);
    issued_.store(kAll, std::memory_order_release);
    issued_.notify_all();
  }

  int record(cuda::StreamHandle stream, uint32_t value) {
    const int result =
        created_ == cuda::kSuccess ? device_.driver().record_event(handle_, stream) : created_;
    if (issued_.load(std::memory_order_relaxed) < value)
      issued_.store(value, std::memory_order_release);
    issued_.notify_all();
    return result;
  }
  bool is_cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  bool is_issued(uint32_t value) const { return issued_.load(std::memory_order_acquire) >= value; }
  cuda::EventHandle handle() const { return handle_; }

 private:
  static constexpr uint32_t kAll = UINT32_MAX;
  const CudaDevice& device_;
  cuda::EventHandle handle_ = nullptr;
  int created_ = cuda::kSuccess;
  std::atomic<uint32_t> issued_{0};
  std::atomic<bool> cancelled_{false};
};

// An event of the driver that keeps the time. One that could not be created fails what is issued.
class CudaTimestamp final : public Timestamp {
 public:
  explicit CudaTimestamp(const CudaDevice& device) : device_(device) {
    device_.use();
    created_ = device_.driver().create_event(&handle_, 0);
  }
  ~CudaTimestamp() override {
    device_.use();
    if (created_ == cuda::kSuccess) (void)device_.driver().destroy_event(handle_);
  }

  int record(cuda::StreamHandle stream, unsigned flags) const {
    if (created_ != cuda::kSuccess) return created_;
    return device_.driver().record_event_with_flags(handle_, stream, flags);
  }
  base::Result<int64_t> since(const Timestamp& earlier) const override {
    float milliseconds = 0;
    device_.use();
    const int failed = device_.driver().elapsed_time(
        &milliseconds, static_cast<const CudaTimestamp&>(earlier).handle_, handle_);
    if (failed == cuda::kSuccess) return std::llround(static_cast<double>(milliseconds) * 1e6);
    return Status(ErrorKind::Unavailable, "DC6148",
                  "the GPU does not say how long its work took: " +
                      device_.driver().explain(failed) + "; update the driver of this host's GPU");
  }
  bool is_written() const override {
    device_.use();
    return device_.driver().query_event(handle_) != cuda::kNotReady;
  }

 private:
  const CudaDevice& device_;
  cuda::EventHandle handle_ = nullptr;
  int created_ = cuda::kSuccess;
};

// What a failed call says.
Status gpu_failure(const cuda::Driver& driver, int result, std::string_view what) {
  const bool memory = result == cuda::kOutOfMemory;
  return Status(memory ? ErrorKind::OutOfMemory : ErrorKind::Unavailable, "DC6143",
                std::string(what) + " failed on the GPU: " + driver.explain(result) +
                    "; look for its cause in the kernel's log (Xid), and run again");
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

base::Result<Device*> open(int local_rank) {
  DC_ASSIGN_OR_RETURN(const cuda::Driver* driver, cuda::open_driver());
  int count = 0, device = 0;
  int failed = driver->device_count(&count);
  if (failed != cuda::kSuccess) return cuda::no_gpu(driver->explain(failed));
  if (count == 0) return cuda::no_gpu(cuda::kShowsNone);
  const int ordinal = local_rank % count;
  cuda::Context context = nullptr;
  failed = driver->device_get(&device, ordinal);
  if (failed == cuda::kSuccess) failed = driver->retain_context(&context, device);
  if (failed != cuda::kSuccess) return cuda::no_gpu(driver->explain(failed));
  return new CudaDevice(*driver, context, device);  // lives until the end
}

}  // namespace

CudaStream::CudaStream(const cuda::Driver& driver, cuda::Context context)
    : Stream(AddressWindow()), driver_(driver), context_(context), failed_(base::ok_status()) {
  use();
  check(driver_.create_stream(&handle_, cuda::kNonBlocking, 0), "the creation of a stream");
}

CudaStream::~CudaStream() {
  use();
  if (handle_) (void)driver_.destroy_stream(handle_);
}

void CudaStream::check(int result, std::string_view what) {
  if (result == cuda::kSuccess || !failed_.ok()) return;
  failed_ = gpu_failure(driver_, result, what);
}

// Pieces no longer than the distance do not overlap; they go from the end that is read first.
void CudaStream::copy(std::byte* to, const std::byte* from, int64_t bytes) {
  use();
  const int64_t distance = to > from ? to - from : from - to;
  const int64_t piece = distance == 0 ? bytes : std::min(bytes, distance);
  for (int64_t done = 0; done < bytes; done += piece) {
    const int64_t part = std::min(piece, bytes - done);
    const int64_t at = to > from ? bytes - done - part : done;
    check(driver_.copy_async(address_of(to + at), address_of(from + at), static_cast<size_t>(part),
                             handle_),
          "a copy");
  }
}

void CudaStream::write(uint32_t* to, uint32_t value) {
  use();
  check(driver_.write_value(handle_, address_of(to), value, 0), "a note of progress");
}

void CudaStream::wait_for(const uint32_t* at, uint32_t value) {
  use();
  check(driver_.wait_value(handle_, address_of(at), value, cuda::kAtLeast), "a wait for a number");
}

void CudaStream::fill(std::byte* to, std::byte value, int64_t bytes) {
  if (bytes == 0) return;
  use();
  check(driver_.fill_async(address_of(to), static_cast<unsigned char>(value),
                           static_cast<size_t>(bytes), handle_),
        "a fill");
}

void CudaStream::signal(Event& event, uint32_t value) {
  use();
  check(static_cast<CudaEvent&>(event).record(handle_, value), "an event");
}

bool CudaStream::wait(Event& event, uint32_t value) {
  auto& own = static_cast<CudaEvent&>(event);
  if (own.is_cancelled()) return false;
  DC_CHECK(own.is_issued(value));
  use();
  check(driver_.wait_event(handle_, own.handle(), 0), "a wait");
  return true;
}

void CudaStream::write_timestamp(Timestamp& to) {
  use();
  check(static_cast<CudaTimestamp&>(to).record(handle_, recording_ ? cuda::kExternal : 0),
        "a timestamp");
}

Status CudaStream::drain() {
  use();
  check(driver_.synchronize_stream(handle_), "the work on a stream");
  return failed_;
}

bool CudaStream::is_at_rest() const {
  use();
  return driver_.query_stream(handle_) != cuda::kNotReady;
}

// Fills, and copies from pageable memory, go on after the call; streams do not wait for them.
int CudaDevice::finish() const { return driver_.synchronize_stream(nullptr); }

// The driver refuses to allocate nothing.
Memory CudaDevice::allocate(int64_t bytes) {
  use();
  cuda::Address address = 0;
  const auto taken = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  int failed = driver_.allocate(&address, taken);
  if (failed == cuda::kSuccess) {
    auto memory = std::make_unique<GpuMemory>(*this, address, bytes);
    failed = driver_.fill(address, 0, taken);
    if (failed == cuda::kSuccess) failed = finish();
    if (failed == cuda::kSuccess) return std::unique_ptr<DeviceMemory>(std::move(memory));
  }
  size_t free = 0, total = 0;
  (void)driver_.memory_info(&free, &total);
  return Status(ErrorKind::OutOfMemory, "DC6144",
                "the GPU has no " + std::to_string(bytes) + " bytes for this rank (" +
                    std::to_string(free) + " of " + std::to_string(total) + " are free; " +
                    driver_.explain(failed) +
                    "); end what else uses it, or compile with less --memory");
}

Memory CudaDevice::map_shared(int, int64_t) {
  return Status(
      ErrorKind::Unsupported, "DC6145",
      "memory of a GPU is not made of a host's descriptor: ranks on GPUs are connected by "
      "add_gpus(); please report this");
}

Memory CudaDevice::allocate_host(int64_t bytes) {
  use();
  void* at = nullptr;
  const auto taken = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  const int failed = driver_.allocate_host(&at, taken, cuda::kPortable);
  if (failed == cuda::kSuccess)
    return std::unique_ptr<DeviceMemory>(std::make_unique<PinnedMemory>(*this, at, bytes));
  return Status(ErrorKind::OutOfMemory, "DC6146",
                "the host has no " + std::to_string(bytes) +
                    " bytes of memory that a GPU's copies reach (" + driver_.explain(failed) +
                    "); compile with less --offload-memory");
}

Status CudaDevice::upload(std::byte* to, std::span<const std::byte> from) {
  if (from.empty()) return base::ok_status();
  use();
  int failed = driver_.copy(address_of(to), address_of(from.data()), from.size());
  if (failed == cuda::kSuccess) failed = finish();
  return failed == cuda::kSuccess ? base::ok_status() : gpu_failure(driver_, failed, "an upload");
}

Status CudaDevice::download(std::span<std::byte> to, const std::byte* from) {
  if (to.empty()) return base::ok_status();
  use();
  const int failed = driver_.copy(address_of(to.data()), address_of(from), to.size());
  return failed == cuda::kSuccess ? base::ok_status() : gpu_failure(driver_, failed, "a download");
}

std::unique_ptr<Stream> CudaDevice::make_stream() {
  return std::make_unique<CudaStream>(driver_, context_);
}
std::unique_ptr<Event> CudaDevice::make_event() { return std::make_unique<CudaEvent>(*this); }
std::unique_ptr<Timestamp> CudaDevice::make_timestamp() {
  return std::make_unique<CudaTimestamp>(*this);
}

std::optional<base::GpuIdentity> CudaDevice::gpu() const {
  use();
  base::GpuIdentity gpu;
  char name[256] = {};
  (void)driver_.device_name(name, sizeof name - 1, ordinal_);
  gpu.name = name;
  gpu.compute_capability =
      std::to_string(attribute(cuda::kMajor)) + "." + std::to_string(attribute(cuda::kMinor));
  int version = 0;
  (void)driver_.driver_version(&version);
  gpu.driver = version_text(version);
  gpu.multiprocessors = attribute(cuda::kMultiprocessors);
  size_t free = 0, total = 0;
  (void)driver_.memory_info(&free, &total);
  gpu.memory_bytes = static_cast<int64_t>(total);
  gpu.clock_khz = attribute(cuda::kClockRate);
  gpu.memory_clock_khz = attribute(cuda::kMemoryClockRate);
  return gpu;
}

int CudaDevice::attribute(int which) const {
  int value = 0;
  (void)driver_.device_attribute(&value, which, ordinal_);
  return value;
}
cuda::Uuid CudaDevice::uuid() const {
  cuda::Uuid uuid{};
  (void)driver_.device_uuid(&uuid, ordinal_);
  return uuid;
}
int CudaDevice::architecture() const {
  return 10 * attribute(cuda::kMajor) + attribute(cuda::kMinor);
}

base::Result<Device*> open_cuda_device(int local_rank) {
  static const base::Result<Device*>* device = new base::Result<Device*>(open(local_rank));
  return *device;
}

}  // namespace dc::runtime::device
