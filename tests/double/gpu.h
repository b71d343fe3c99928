// A GPU that is none: what the doubles of libcuda and libnvrtc share. See README.md.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

namespace dc::gpu_double {

// The error that all later calls give, as after a fault of a kernel.
void fail_for_good(int error);
int lasting_error();
// DOUBLE_FAIL=name:n:error, several behind each other with commas: the error of this call, counted
// by name over all threads; 0 if it is not to fail.
int asked_to_fail(const char* name);
// How many there were, of those that can be asked to fail.
int calls_of(const char* name);

// Begins a call of the driver, which fails for good after a fault.
#define DC_MAY_FAIL(name)                                                               \
  if (const int asked = dc::gpu_double::asked_to_fail(#name); asked != 0) return asked; \
  if (dc::gpu_double::lasting_error() != 0) return dc::gpu_double::lasting_error()

// Memory that the host cannot touch: at `shown` there is nothing, the bytes are elsewhere.
class Memory {
 public:
  static Memory& instance();
  // 0 if the GPU is full.
  uint64_t allocate(size_t bytes);
  bool release(uint64_t address);
  // Where the bytes of an address are for who works on the GPU; other addresses stay as they are.
  std::byte* resolve(uint64_t address) const;
  bool is_of_gpu(uint64_t address) const;
  // Whether all of [address, address + bytes) is one allocation, or memory of the host.
  bool holds(uint64_t address, size_t bytes) const;
  // Memory of the host that was allocated for the GPU or registered: only there streams write and
  // wait for numbers. False if some of it is registered, or if it is not.
  bool add_host(const void* at, size_t bytes);
  bool remove_host(const void* at);
  bool reaches(uint64_t address, size_t bytes) const;
  // A file with the bytes of an allocation, in which they are from now on; -1 if there is none. For
  // times when no stream uses them.
  int share(uint64_t address, size_t* bytes);
  // The bytes of such a file of another process; 0 if they cannot be mapped. Not to be released.
  uint64_t import(int file, size_t bytes);
  bool close_import(uint64_t address);
  void limit(size_t bytes);
  size_t free_bytes() const, total_bytes() const;

 private:
  Memory();
  struct Block {
    uint64_t address;
    size_t bytes;
    int file = -1;  // where the bytes are shared
    bool is_imported = false;
  };
  // The next address that is free, for so many whole pages; 0 if there is none.
  uint64_t take_address(size_t pages_bytes);
  bool end(uint64_t address, bool is_imported);
  mutable std::mutex mutex_;
  std::byte *shown_ = nullptr, *hidden_ = nullptr;
  size_t next_ = 0, used_ = 0, limit_ = 0;
  std::deque<Block> blocks_;
  std::map<uint64_t, size_t> host_;  // bytes by address
};

// Bytes of memory become one value.
struct Fill {
  uint64_t to;
  unsigned char value;
  size_t bytes;
};

// Work that is captured: each piece after some others.
class Recording {
 public:
  using Places = std::vector<size_t>;  // of pieces
  struct Piece {
    std::function<void()> work;
    Places after;
    std::optional<Fill> fill;  // if that is its work
    bool is_gone = false;
  };
  size_t add(Piece piece);
  // Whether all of these pieces are, or come before, some of `last`.
  bool come_before(const Places& wanted, const Places& last) const;
  void run() const;  // in an order drawn at random among those that are legal

  bool ended = false;
  std::vector<Piece> pieces;
};

// Where a stream or an event is in a recording.
struct Captured {
  std::shared_ptr<Recording> recording;  // none: not in one
  Recording::Places last;
};

// Times that an event was recorded, and how many of these the GPU has come to.
struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, reached = 0;
  bool keeps_time = true;
  int64_t time_ns = 0;  // of the last one that was reached
  Captured captured;
};

// Work in order on a separate thread, each piece after a pause of random length.
class Stream {
 public:
  Stream();
  ~Stream();
  // Work that is captured is not done. `fill`: if that is all.
  void add(std::function<void()> work, std::optional<Fill> fill = std::nullopt);
  void drain();
  bool is_at_rest();

  static std::vector<Stream*> all();

  Captured captured;

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool busy_ = false, over_ = false;
  std::minstd_rand random_;
  std::thread thread_;
};

// What the double of NVRTC gives for machine code: this, then a shared library of so many bytes.
struct Image {
  static constexpr char kMark[8] = {'D', 'O', 'U', 'B', 'L', 'E', '0', '1'};
  char mark[8];
  uint64_t bytes;
};

// A kernel of a compiled module runs for every thread of every block, blocks one after the other,
// and so the threads of a block where the module has no barriers; in orders drawn at random.
using Entry = void (*)(const void* parameters);
struct Shape {
  unsigned grid[3], block[3];
};
void run_kernel(Entry entry, const Shape& shape, const void* parameters, bool has_barriers);

}  // namespace dc::gpu_double
