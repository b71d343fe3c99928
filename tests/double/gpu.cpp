#include "tests/double/gpu.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tests/double/cuda_words.h"

namespace dc::gpu_double {
namespace {

constexpr size_t kReserved = size_t{1} << 36;
constexpr size_t kAlignment = 4096;

int64_t number(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

std::byte* map(size_t bytes, int protection) {
  void* at = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

size_t whole_pages(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::atomic<int> lasting{0};

}  // namespace

void fail_for_good(int error) {
  int none = 0;
  lasting.compare_exchange_strong(none, error);
}
int lasting_error() { return lasting.load(); }

namespace {

struct Calls {
  std::mutex mutex;
  std::map<std::string, int> counts;  // by name
};
Calls& calls() {
  static auto* const all = new Calls();
  return *all;
}

}  // namespace

int calls_of(const char* name) {
  const std::lock_guard lock(calls().mutex);
  return calls().counts[name];
}

int asked_to_fail(const char* name) {
  const std::lock_guard lock(calls().mutex);
  const int count = ++calls().counts[name];
  const char* wanted = std::getenv("DOUBLE_FAIL");
  for (std::string rest = wanted ? wanted : ""; !rest.empty();) {
    const size_t end = std::min(rest.find(','), rest.size());
    const std::string one = rest.substr(0, end);
    rest.erase(0, end + 1);
    const size_t first = one.find(':'), second = one.rfind(':');
    if (first == std::string::npos || second == first) continue;
    if (one.substr(0, first) == name && std::atoi(one.c_str() + first + 1) == count)
      return std::atoi(one.c_str() + second + 1);
  }
  return 0;
}

Memory& Memory::instance() {
  static auto* memory = new Memory();
  return *memory;
}

Memory::Memory()
    : shown_(map(kReserved, PROT_NONE)),
      hidden_(map(kReserved, PROT_NONE)),
      limit_(static_cast<size_t>(number("DOUBLE_MEMORY", int64_t{1} << 32))) {}

uint64_t Memory::take_address(size_t pages_bytes) {
  if (next_ + pages_bytes + kAlignment > kReserved) return 0;
  const uint64_t address = reinterpret_cast<uintptr_t>(shown_ + next_);
  next_ += pages_bytes + kAlignment;  // one page that belongs to none
  return address;
}

uint64_t Memory::allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const size_t taken = whole_pages(bytes);
  if (used_ + taken > limit_) return 0;
  const uint64_t address = take_address(taken);
  if (address == 0 || mprotect(resolve(address), taken, PROT_READ | PROT_WRITE) != 0) return 0;
  std::fill_n(resolve(address), taken, std::byte{0xA5});  // a GPU's memory is not zero either
  used_ += taken;
  blocks_.push_back({address, bytes});
  return address;
}

bool Memory::end(uint64_t address, bool is_imported) {
  const std::lock_guard lock(mutex_);
  const auto block = std::ranges::find(blocks_, address, &Block::address);
  if (block == blocks_.end() || block->is_imported != is_imported) return false;
  const size_t taken = whole_pages(block->bytes);
  if (!is_imported) used_ -= taken;
  (void)mmap(resolve(address), taken, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (block->file >= 0) close(block->file);
  blocks_.erase(block);
  return true;
}
bool Memory::release(uint64_t address) { return end(address, false); }
bool Memory::close_import(uint64_t address) { return end(address, true); }

int Memory::share(uint64_t address, size_t* bytes) {
  const std::lock_guard lock(mutex_);
  const auto block = std::ranges::find(blocks_, address, &Block::address);
  if (block == blocks_.end() || block->is_imported) return -1;
  *bytes = block->bytes;
  if (block->file >= 0) return block->file;
  const size_t taken = whole_pages(block->bytes);
  const int file = memfd_create("memory of a GPU that is none", MFD_CLOEXEC);
  if (file < 0 || write(file, resolve(address), taken) != static_cast<ssize_t>(taken) ||
      mmap(resolve(address), taken, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) ==
          MAP_FAILED)
    return -1;
  block->file = file;
  return file;
}

uint64_t Memory::import(int file, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const size_t taken = whole_pages(bytes);
  const uint64_t address = take_address(taken);
  if (address == 0 || mmap(resolve(address), taken, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                           file, 0) == MAP_FAILED)
    return 0;
  blocks_.push_back({address, bytes, -1, true});
  return address;
}

bool Memory::add_host(const void* at, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(at);
  const std::lock_guard lock(mutex_);
  for (const auto& [other, length] : host_)
    if (begin < other + length && other < begin + bytes) return false;
  host_[begin] = bytes;
  return true;
}
bool Memory::remove_host(const void* at) {
  const std::lock_guard lock(mutex_);
  return host_.erase(reinterpret_cast<uintptr_t>(at)) == 1;
}
bool Memory::reaches(uint64_t address, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(host_, [&](const auto& known) {
    return address >= known.first && address + bytes <= known.first + known.second;
  });
}

std::byte* Memory::resolve(uint64_t address) const {
  const uint64_t offset = address - reinterpret_cast<uintptr_t>(shown_);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver gives addresses as numbers
  return offset < kReserved ? hidden_ + offset : reinterpret_cast<std::byte*>(address);
}

bool Memory::is_of_gpu(uint64_t address) const {
  return address - reinterpret_cast<uintptr_t>(shown_) < kReserved;
}

bool Memory::holds(uint64_t address, size_t bytes) const {
  if (!is_of_gpu(address)) return address != 0;
  const std::lock_guard lock(mutex_);
  return std::any_of(blocks_.begin(), blocks_.end(), [&](const auto& block) {
    return address >= block.address && address - block.address <= block.bytes &&
           bytes <= block.bytes - (address - block.address);
  });
}

void Memory::limit(size_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
}
size_t Memory::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return limit_ - std::min(used_, limit_);
}
size_t Memory::total_bytes() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}

namespace {

std::mutex streams_mutex;
std::vector<Stream*>& streams() {
  static auto* all = new std::vector<Stream*>();
  return *all;
}

}  // namespace

std::vector<Stream*> Stream::all() {
  const std::lock_guard lock(streams_mutex);
  return streams();
}

Stream::Stream() {
  {
    const std::lock_guard lock(streams_mutex);
    streams().push_back(this);
  }
  static std::atomic<uint32_t> made{0};
  random_.seed(static_cast<uint32_t>(number("DOUBLE_SEED", 1)) * 1000 + ++made);
  thread_ = std::thread([this] { run(); });
}
Stream::~Stream() {
  {
    const std::lock_guard lock(streams_mutex);
    std::erase(streams(), this);
  }
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

size_t Recording::add(Piece piece) {
  pieces.push_back(std::move(piece));
  return pieces.size() - 1;
}

bool Recording::come_before(const Places& wanted, const Places& last) const {
  std::vector<bool> seen(pieces.size());
  Places left = last;
  while (!left.empty()) {
    const size_t piece = left.back();
    left.pop_back();
    if (seen[piece]) continue;
    seen[piece] = true;
    left.insert(left.end(), pieces[piece].after.begin(), pieces[piece].after.end());
  }
  return std::ranges::all_of(wanted, [&](size_t piece) { return seen[piece]; });
}

void Recording::run() const {
  static thread_local std::minstd_rand random(static_cast<uint32_t>(number("DOUBLE_SEED", 1)));
  std::vector<bool> done(pieces.size());
  size_t left = pieces.size();
  for (size_t i = 0; i < pieces.size(); ++i) {
    done[i] = pieces[i].is_gone;
    if (done[i]) --left;
  }
  for (; left > 0; --left) {
    Places ready;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const Places& after = pieces[i].after;
      if (!done[i] && std::ranges::all_of(after, [&](size_t piece) { return done[piece]; }))
        ready.push_back(i);
    }
    const size_t chosen = ready[random() % ready.size()];
    if (lasting_error() == 0) pieces[chosen].work();
    done[chosen] = true;
  }
}

void Stream::add(std::function<void()> work, std::optional<Fill> fill) {
  if (captured.recording != nullptr) {
    captured.last = {captured.recording->add({std::move(work), captured.last, fill})};
    return;
  }
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  changed_.notify_all();
}

void Stream::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return work_.empty() && !busy_; });
}

bool Stream::is_at_rest() {
  const std::lock_guard lock(mutex_);
  return work_.empty() && !busy_;
}

void Stream::run() {
  const int64_t longest = number("DOUBLE_PAUSE_US", 50);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return over_ || !work_.empty(); });
    if (work_.empty()) return;
    const auto work = std::move(work_.front());
    work_.pop_front();
    busy_ = true;
    lock.unlock();
    if (longest > 0 && random_() % 4 == 0) {
      const auto pause = static_cast<int64_t>(random_()) % longest;
      std::this_thread::sleep_for(std::chrono::microseconds(pause));
    }
    if (lasting_error() == 0) work();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

namespace {

class Block;
thread_local GpuPlace place_now;  // of the thread of a block whose turn it is
thread_local Block* block_now = nullptr;

// What takes turns: a context that goes on where it passed its turn on.
struct Turn {
  ucontext_t context{};
  void* place[5]{};  // of __builtin_setjmp
  bool begun = false;
};

// To a context for the first time by its ucontext_t. After that without a system call, where no
// sanitizer must know of it.
#if defined(DC_DOUBLE_SANITIZED) || !defined(__x86_64__)
void pass(Turn& from, Turn& to) { swapcontext(&from.context, &to.context); }
void end(Turn&) {}  // its uc_link has the turn then
#else
[[gnu::noinline]] void pass(Turn& from, Turn& to) {
  if (__builtin_setjmp(from.place) != 0) return;
  if (to.begun) __builtin_longjmp(to.place, 1);
  to.begun = true;
  setcontext(&to.context);
}
[[gnu::noinline]] void end(Turn& to) { __builtin_longjmp(to.place, 1); }
#endif

// 0, 1 ... in an order drawn at random.
std::vector<unsigned> drawn_order(unsigned count) {
  static thread_local std::minstd_rand random(static_cast<uint32_t>(number("DOUBLE_SEED", 1)));
  std::vector<unsigned> order(count);
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::shuffle(order, random);
  return order;
}

// Threads that wait until all of them have come.
struct Barrier {
  unsigned threads = 0, arrived = 0;
  uint64_t passed = 0;  // times
  void open_if_full() {
    if (arrived < threads || threads == 0) return;
    arrived = 0;
    ++passed;
  }
};

// What a thread copies while it computes, in groups.
struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};
struct Copies {
  std::vector<Copy> begun;
  std::deque<std::vector<Copy>> groups;

  void wait(size_t left) {
    for (; groups.size() > left; groups.pop_front())
      for (const Copy& copy : groups.front()) {
        if (copy.from != nullptr) std::memcpy(copy.to, copy.from, copy.bytes);
        if (copy.from == nullptr) std::memset(copy.to, 0, copy.bytes);
      }
  }
};

// The threads of a block: contexts that take turns, each until its end or until it waits for
// others.
class Block {
 public:
  Block(Entry entry, const void* parameters, unsigned threads)
      : entry_(entry),
        parameters_(parameters),
        threads_(threads),
        ended_(threads),
        warps_((threads + kWarp - 1) / kWarp),
        groups_((threads + kGroup - 1) / kGroup),
        copies_(threads),
        stacks_(new char[threads * kStack]) {
    turns_.begun = true;
  }

  void run(GpuPlace place) {
    place_ = place;
    const auto count = static_cast<unsigned>(threads_.size());
    block_ = {count};
    for (size_t w = 0; w < warps_.size(); ++w)
      warps_[w] = {{std::min(kWarp, count - static_cast<unsigned>(w) * kWarp)}};
    std::ranges::fill(groups_, Barrier{kGroup});
    named_ = {};
    std::ranges::fill(copies_, Copies());
    for (size_t t = 0; t < count; ++t) begin_thread(t);
    goes_on_ = true;
    for (bool any = true; any;) {
      if (!goes_on_) fail("the threads of a block wait for some that do not come");
      any = goes_on_ = false;
      for (const unsigned next : drawn_order(count)) {
        now_ = next;
        if (ended_[now_]) continue;
        any = true;
        place_now = place_;
        place_now.thread[0] = static_cast<unsigned>(now_);
        block_now = this;
        pass(turns_, threads_[now_]);
      }
    }
  }
  void barrier() {
    ++block_.arrived;
    wait_at(block_);
  }
  void together(void* own, void (*all)(void* const* lanes)) {
    Warp& warp = warps_[now_ / kWarp];
    if (warp.barrier.threads != kWarp || (warp.barrier.arrived > 0 && warp.all != all))
      fail("the threads of a warp do not all do the same");
    warp.all = all;
    warp.lanes[now_ % kWarp] = own;
    if (++warp.barrier.arrived == kWarp) all(warp.lanes);
    wait_at(warp.barrier);
  }
  void meet_group() {
    Barrier& group = groups_[now_ / kGroup];
    ++group.arrived;
    wait_at(group);
  }
  void meet(int which, unsigned threads, bool waits) {
    Barrier& barrier = named_.at(static_cast<size_t>(which));
    if (barrier.arrived > 0 && barrier.threads != threads)
      fail("the threads that meet at a barrier differ in how many they are");
    barrier.threads = threads;
    ++barrier.arrived;
    if (waits)
      wait_at(barrier);
    else
      barrier.open_if_full();
  }
  Copies& copies() { return copies_[now_]; }

 private:
  static constexpr unsigned kWarp = 32, kGroup = 4 * kWarp;
  struct Warp {
    Barrier barrier;
    void (*all)(void* const* lanes) = nullptr;  // what its threads do together
    void* lanes[kWarp] = {};
  };

  void wait_at(Barrier& barrier) {
    const uint64_t before = barrier.passed;
    barrier.open_if_full();
    do pass(threads_[now_], turns_);
    while (barrier.passed == before);
    goes_on_ = true;
  }
  [[noreturn]] static void fail(const char* why) {
    std::fprintf(stderr, "the double of a GPU: %s\n", why);
    std::abort();
  }
  void leave(Barrier& barrier) {
    --barrier.threads;
    barrier.open_if_full();
  }

  // Not inlined: getcontext may return twice, and the caller's variables must not mind.
  [[gnu::noinline]] void begin_thread(size_t thread) {
    ucontext_t& context = threads_[thread].context;
    getcontext(&context);
    context.uc_stack = {stacks_.get() + thread * kStack, 0, kStack};
    context.uc_link = &turns_.context;
    const auto self = reinterpret_cast<uintptr_t>(this);
    makecontext(&context, reinterpret_cast<void (*)()>(begin), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
    threads_[thread].begun = false;
    ended_[thread] = false;
  }
  static void begin(unsigned high, unsigned low) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): makecontext passes numbers
    auto* self = reinterpret_cast<Block*>((static_cast<uintptr_t>(high) << 32) | low);
    self->goes_on_ = true;
    self->entry_(self->parameters_);
    self->ended_[self->now_] = self->goes_on_ = true;
    self->leave(self->block_);
    self->leave(self->warps_[self->now_ / kWarp].barrier);
    end(self->turns_);
  }

  static constexpr size_t kStack = 64 << 10;
  Entry entry_;
  const void* parameters_;
  GpuPlace place_{};
  size_t now_ = 0;
  Turn turns_;
  std::vector<Turn> threads_;
  std::vector<bool> ended_;
  bool goes_on_ = true;  // some thread, since the last round
  Barrier block_;
  std::vector<Warp> warps_;
  std::vector<Barrier> groups_;
  std::array<Barrier, 16> named_;
  std::vector<Copies> copies_;
  std::unique_ptr<char[]> stacks_;
};

}  // namespace

void run_kernel(Entry entry, const Shape& shape, const void* parameters, bool has_barriers) {
  Block block(entry, parameters, has_barriers ? shape.block[0] : 0);
  for (const unsigned b : drawn_order(shape.grid[0])) {
    GpuPlace place{};
    place.block[0] = b;
    place.block_size[0] = shape.block[0];
    place.grid_size[0] = shape.grid[0];
    if (has_barriers) {
      block.run(place);
      continue;
    }
    for (const unsigned t : drawn_order(shape.block[0])) {
      place.thread[0] = t;
      place_now = place;
      entry(parameters);
    }
  }
}

}  // namespace dc::gpu_double

extern "C" const GpuPlace* gpu_double_place() { return &dc::gpu_double::place_now; }
extern "C" void gpu_double_barrier() { dc::gpu_double::block_now->barrier(); }
extern "C" void gpu_double_together(void* own, void (*all)(void* const* lanes)) {
  dc::gpu_double::block_now->together(own, all);
}
extern "C" void gpu_double_meet_group() { dc::gpu_double::block_now->meet_group(); }
extern "C" void gpu_double_meet(int barrier, unsigned threads, bool waits) {
  dc::gpu_double::block_now->meet(barrier, threads, waits);
}
extern "C" void gpu_double_copy(void* to, const void* from, size_t bytes) {
  dc::gpu_double::block_now->copies().begun.push_back({to, from, bytes});
}
extern "C" void gpu_double_end_group() {
  auto& copies = dc::gpu_double::block_now->copies();
  copies.groups.push_back(std::move(copies.begun));
  copies.begun.clear();
}
extern "C" void gpu_double_wait(unsigned left) { dc::gpu_double::block_now->copies().wait(left); }
