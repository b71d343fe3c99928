// The checked device: the CPU with memory that the host cannot read or write. A device address lies
// in a reservation without access rights; the bytes lie in a second reservation, a distance away
// that is drawn at random, and are mapped nowhere else. Streams add the distance while work runs.
// So any other use of a device address ends the process with SIGSEGV, and so does a kernel that
// leaves the memory that was allocated.
#include <sys/mman.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "runtime/device/device.h"
#include "runtime/device/host_stream.h"
#include "runtime/device/memory_map.h"
#include "src/base/units.h"

namespace dc::runtime::device {
namespace {

using base::Status;
using Memory = base::Result<std::unique_ptr<DeviceMemory>>;

// Of address space, for all that a process ever allocates: addresses are not used twice.
constexpr int64_t kReserved = int64_t{1} << 38;
// Allocations begin at huge pages and have one without access between them.
constexpr int64_t kStep = int64_t{2} << 20;

std::byte* reserve(int64_t bytes) {
  void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
}

// Page-aligned and below `limit`.
int64_t random_distance(int64_t limit) {
  uint64_t drawn = 0;
  if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) drawn = 0;
  return static_cast<int64_t>(drawn % static_cast<uint64_t>(limit / kStep)) * kStep;
}

// The two reservations.
class HiddenSpace {
 public:
  // Null if there is no address space for it.
  static HiddenSpace* instance() {
    static HiddenSpace* space = [] {
      std::byte *shown = reserve(kReserved), *hidden = reserve(2 * kReserved);
      return shown && hidden ? new HiddenSpace(shown, hidden + random_distance(kReserved))
                             : nullptr;
    }();
    return space;
  }

  AddressWindow window() const {
    return {shown_, kReserved, static_cast<uint64_t>(hidden_ - shown_)};
  }

  // Maps shared memory at a hidden address. Returns the address that the window translates to it,
  // or null.
  std::byte* map(int descriptor, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    const int64_t begin = used_, taken = base::round_up(bytes, kStep) + kStep;
    if (begin + taken > kReserved) {
      errno = ENOMEM;
      return nullptr;
    }
    void* mapped = mmap(hidden_ + begin, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_FIXED, descriptor, 0);
    if (mapped == MAP_FAILED) return nullptr;
    used_ += taken;
    return shown_ + begin;
  }
  void unmap(std::byte* shown, int64_t bytes) const {
    // Where it fails, the bytes stay mapped until the end.
    (void)mmap(hidden_ + (shown - shown_), static_cast<size_t>(bytes), PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }

 private:
  HiddenSpace(std::byte* shown, std::byte* hidden) : shown_(shown), hidden_(hidden) {}
  std::byte *shown_, *hidden_;
  std::mutex mutex_;
  int64_t used_ = 0;
};

class HiddenMemory final : public DeviceMemory {
 public:
  HiddenMemory(HiddenSpace& space, std::byte* shown, int64_t bytes)
      : DeviceMemory(shown, bytes), space_(space) {}
  ~HiddenMemory() override { space_.unmap(base(), bytes()); }

 private:
  HiddenSpace& space_;
};

class HostMemory final : public DeviceMemory {
 public:
  explicit HostMemory(Mapping mapping)
      : DeviceMemory(mapping.base(), mapping.bytes()), mapping_(std::move(mapping)) {}

 private:
  Mapping mapping_;
};

class CheckedDevice final : public Device {
 public:
  explicit CheckedDevice(HiddenSpace& space) : space_(space), window_(space.window()) {}
  base::DeviceKind kind() const override { return base::DeviceKind::Checked; }

  Memory allocate(int64_t bytes) override {
    DC_ASSIGN_OR_RETURN(const Descriptor memory, make_shared_memory(bytes));
    return map_shared(memory.get(), bytes);
  }
  Memory map_shared(int descriptor, int64_t bytes) override {
    std::byte* shown = space_.map(descriptor, bytes);
    if (shown == nullptr) {
      return Status(base::ErrorKind::OutOfMemory, "DC6133",
                    "cannot map " + std::to_string(bytes) + " bytes of the checked device (" +
                        std::strerror(errno) + "); free memory, or run with --device cpu");
    }
    return std::unique_ptr<DeviceMemory>(std::make_unique<HiddenMemory>(space_, shown, bytes));
  }
  Memory allocate_host(int64_t bytes) override {
    DC_ASSIGN_OR_RETURN(Mapping mapping, Mapping::committed(bytes));
    return std::unique_ptr<DeviceMemory>(std::make_unique<HostMemory>(std::move(mapping)));
  }

  Status upload(std::byte* to, std::span<const std::byte> from) override {
    if (!from.empty()) std::memcpy(window_.resolve(to), from.data(), from.size());
    return base::ok_status();
  }
  Status download(std::span<std::byte> to, const std::byte* from) override {
    if (!to.empty()) std::memcpy(to.data(), window_.resolve(from), to.size());
    return base::ok_status();
  }

  std::unique_ptr<Stream> make_stream() override { return std::make_unique<HostStream>(window_); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<HostEvent>(); }
  std::unique_ptr<Timestamp> make_timestamp() override { return std::make_unique<HostTimestamp>(); }

 private:
  HiddenSpace& space_;
  AddressWindow window_;
};

}  // namespace

base::Result<Device*> open_checked_device() {
  static Device* device = [] {
    HiddenSpace* space = HiddenSpace::instance();
    return space ? new CheckedDevice(*space) : nullptr;
  }();
  if (device) return device;
  return Status(base::ErrorKind::OutOfMemory, "DC6132",
                "there is no address space for the checked device (768 GiB are reserved, not "
                "used); raise this session's limit (ulimit -v), or run with --device cpu");
}

}  // namespace dc::runtime::device
