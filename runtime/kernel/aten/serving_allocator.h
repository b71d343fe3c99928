// libtorch's CPU allocator, replaced: while an op runs, its allocations are recorded or served from
// planned addresses.
//
// Each thread has at most one session. Without one, memory comes from the heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/device/stream.h"
#include "runtime/kernel/aten/scratch_layout.h"

namespace dc::runtime::kernel::aten {

class Session {
 public:
  virtual void* serve(size_t bytes) = 0;  // never null
  virtual void released(void* address) = 0;

 protected:
  ~Session() = default;
};

// Makes a session the calling thread's for a while.
class SessionScope {
 public:
  explicit SessionScope(Session* session);
  ~SessionScope();
  SessionScope(const SessionScope&) = delete;
  SessionScope& operator=(const SessionScope&) = delete;

 private:
  Session* previous_;
};

// Serves from the heap and writes down what it sees.
class RecordingSession final : public Session {
 public:
  void* serve(size_t bytes) override;
  void released(void* address) override;
  const std::vector<Allocation>& allocations() const { return allocations_; }
  int32_t find(const void* address) const;  // the allocation living there, or -1

 private:
  std::vector<Allocation> allocations_;
  std::vector<void*> addresses_;  // null once released
  int32_t clock_ = 0;
};

// Serves the recorded sequence from planned addresses. Anything else comes from the heap and is
// counted.
class ReplaySession final : public Session {
 public:
  void add(void* address, int64_t bytes);
  // Serves from where the host's cores find the planned addresses.
  void resolve(const device::Stream& stream);
  void restart();
  void* serve(size_t bytes) override;
  void released(void* address) override;
  int64_t unexpected() const { return unexpected_; }

 private:
  struct Place {
    char* address;
    size_t bytes;
    bool live = false;
  };
  bool is_free(const Place& place, size_t before) const;

  std::vector<Place> places_;
  size_t next_ = 0;
  int64_t unexpected_ = 0;
};

void install_serving_allocator();  // once per process; later calls do nothing

// Memory that belongs to the plan: releasing an address in it does nothing. False if there are too
// many ranges.
bool add_planned_range(const void* begin, int64_t bytes);
void remove_planned_range(const void* begin);

// Allocations by threads without a session since the start (libtorch's workers, tensors made while
// preparing).
int64_t allocations_without_session();

}  // namespace dc::runtime::kernel::aten
