#include "runtime/kernel/aten/serving_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>

namespace dc::runtime::kernel::aten {
namespace {

thread_local Session* current_session = nullptr;
std::atomic<int64_t> without_session{0};

// Read without a lock at every release. A range is valid while its end is not 0.
struct Range {
  std::atomic<uintptr_t> begin{0}, end{0};
};
std::array<Range, 256> ranges;
std::atomic<size_t> range_count{0};
std::mutex range_mutex;

bool is_planned(const void* address) {
  const auto value = reinterpret_cast<uintptr_t>(address);
  const size_t count = range_count.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i) {
    if (value < ranges[i].end.load(std::memory_order_acquire) &&
        value >= ranges[i].begin.load(std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

void* heap(size_t bytes) {
  void* address = nullptr;
  if (posix_memalign(&address, 64, bytes) != 0) throw std::bad_alloc();
  return address;
}

void release(void* address) {
  if (address == nullptr) return;
  if (current_session != nullptr) current_session->released(address);
  if (!is_planned(address)) std::free(address);
}

// The context of every pointer is the pointer itself: oneDNN asks for memory through the raw
// interface, which demands it.
class ServingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* address = nullptr;
    if (bytes > 0 && current_session != nullptr) {
      address = current_session->serve(bytes);
    } else if (bytes > 0) {
      without_session.fetch_add(1, std::memory_order_relaxed);
      address = heap(bytes);
    }
    return {address, address, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

SessionScope::SessionScope(Session* session) : previous_(current_session) {
  current_session = session;
}
SessionScope::~SessionScope() { current_session = previous_; }

void* RecordingSession::serve(size_t bytes) {
  void* address = heap(bytes);
  allocations_.push_back(Allocation{static_cast<int64_t>(bytes), clock_++});
  addresses_.push_back(address);
  return address;
}

void RecordingSession::released(void* address) {
  const int32_t index = find(address);
  if (index < 0) return;
  allocations_[index].end = clock_++;
  addresses_[index] = nullptr;
}

int32_t RecordingSession::find(const void* address) const {
  for (size_t i = 0; i < addresses_.size(); ++i) {
    if (addresses_[i] == address && address != nullptr) return static_cast<int32_t>(i);
  }
  return -1;
}

void ReplaySession::add(void* address, int64_t bytes) {
  places_.push_back(Place{static_cast<char*>(address), static_cast<size_t>(bytes)});
}

void ReplaySession::resolve(const device::Stream& stream) {
  for (Place& place : places_) place.address = stream.resolve(place.address);
}

void ReplaySession::restart() {
  next_ = 0;
  for (Place& place : places_) place.live = false;
}

// Scratch is reused within an op. If the op keeps something longer than it did when recorded, the
// address is not given out twice.
bool ReplaySession::is_free(const Place& place, size_t before) const {
  for (size_t i = 0; i < before; ++i) {
    const Place& other = places_[i];
    if (other.live && place.address < other.address + other.bytes &&
        other.address < place.address + place.bytes) {
      return false;
    }
  }
  return true;
}

void* ReplaySession::serve(size_t bytes) {
  if (next_ < places_.size()) {
    Place& place = places_[next_];
    if (place.bytes == bytes && is_free(place, next_)) {
      ++next_;
      place.live = true;
      return place.address;
    }
    ++next_;
  }
  ++unexpected_;
  return heap(bytes);
}

void ReplaySession::released(void* address) {
  for (Place& place : places_) {
    if (place.live && place.address == address) {
      place.live = false;
      return;
    }
  }
}

void install_serving_allocator() {
  static const bool installed = [] {
    c10::SetCPUAllocator(new ServingAllocator, /*priority=*/255);  // lives until the end
    return true;
  }();
  (void)installed;
}

bool add_planned_range(const void* begin, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(range_mutex);
  const auto start = reinterpret_cast<uintptr_t>(begin);
  size_t index = 0;
  while (index < range_count && ranges[index].end != 0) ++index;
  if (index == ranges.size()) return false;
  ranges[index].begin = start;
  ranges[index].end = start + static_cast<uintptr_t>(bytes);
  if (index == range_count) range_count = index + 1;
  return true;
}

void remove_planned_range(const void* begin) {
  const std::lock_guard<std::mutex> lock(range_mutex);
  for (size_t i = 0; i < range_count; ++i) {
    if (ranges[i].begin != reinterpret_cast<uintptr_t>(begin) || ranges[i].end == 0) continue;
    ranges[i].end = 0;
    return;
  }
}

int64_t allocations_without_session() { return without_session.load(); }

}  // namespace dc::runtime::kernel::aten
