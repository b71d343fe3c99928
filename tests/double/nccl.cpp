// The double of libnccl.so.2: the calls of runtime/comm/nccl_library.h, with its types. Ranks are
// threads or processes of one host; what they send goes through a file that all of them map.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/nccl_library.h"
#include "tests/double/gpu.h"

namespace dc::runtime::comm {
namespace {

using gpu_double::asked_to_fail;
using gpu_double::Memory;
using gpu_double::Stream;
using std::chrono::microseconds;

constexpr int kMostRanks = 8, kInvalidArgument = 4, kSystemError = 2;
constexpr size_t kPieceBytes = 32 << 10;

// Of one rank to another.
struct Mailbox {
  std::atomic<uint32_t> full;
  uint32_t bytes;
  uint64_t whole;  // bytes of what this is a piece of
  std::byte data[kPieceBytes];
};
// Zero-filled memory is a valid state in which no rank has come yet.
struct Shared {
  std::atomic<int> attached;
  Mailbox boxes[kMostRanks][kMostRanks];
};

struct Transfer {
  bool sends;
  std::byte* at;
  size_t bytes;
  int peer;
  size_t done = 0;
};

int number_of(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

// DOUBLE_NCCL_ERROR=rank:n:error: that rank's n-th group is not done, and the error is the state.
int error_of_group(int rank, int number) {
  int its_rank = 0, its_number = 0, error = 0;
  const char* text = std::getenv("DOUBLE_NCCL_ERROR");
  if (text == nullptr || std::sscanf(text, "%d:%d:%d", &its_rank, &its_number, &error) != 3)
    return 0;
  return its_rank == rank && its_number == number ? error : 0;
}

// Of this thread.
std::minstd_rand& draws() {
  static std::atomic<uint32_t> threads{0};
  static thread_local std::minstd_rand random(
      static_cast<uint32_t>(number_of("DOUBLE_SEED", 1)) * 1000 + ++threads);
  return random;
}
void pause_at_random() {
  std::this_thread::sleep_for(microseconds(draws()() % 4 == 0 ? draws()() % 300 : 20));
}

}  // namespace

// What a handle stands for. The library's own threads and the streams keep it too.
struct State {
  std::string path;
  int rank = 0, ranks = 0;
  Shared* shared = nullptr;
  std::atomic<int> result{kNcclInProgress};
  std::atomic<bool> aborted{false};
  std::atomic<int> under_way{0}, moving{0};  // groups on streams, and those that are at work
  int groups = 0;

  ~State() {
    if (shared != nullptr) munmap(shared, sizeof(Shared));
  }
};
struct OpaqueNcclComm {
  std::shared_ptr<State> state;
  std::thread background;
  void join() {
    if (background.joinable()) background.join();
  }
};

namespace {

void attach(State& state) {
  const int file = open(state.path.c_str(), O_RDWR | O_CLOEXEC);
  void* at = file < 0 ? MAP_FAILED
                      : mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  if (at == MAP_FAILED) {
    state.result = kSystemError;
    return;
  }
  state.shared = static_cast<Shared*>(at);
  if (++state.shared->attached == state.ranks) unlink(state.path.c_str());
  while (state.shared->attached < state.ranks && !state.aborted) pause_at_random();
  state.result = kNcclSuccess;
}

// Whether a piece could be moved.
bool advance(State& state, Transfer& what) {
  const int from = what.sends ? state.rank : what.peer, to = what.sends ? what.peer : state.rank;
  Mailbox& box = state.shared->boxes[from][to];
  if ((box.full.load(std::memory_order_acquire) != 0) == what.sends) return false;
  if (what.sends) {
    box.bytes = static_cast<uint32_t>(std::min(kPieceBytes, what.bytes - what.done));
    box.whole = what.bytes;
    std::memcpy(box.data, what.at + what.done, box.bytes);
  } else if (box.whole != what.bytes) {
    std::fprintf(stderr, "the double of NCCL: rank %d sent %zu bytes, rank %d expects %zu\n", from,
                 static_cast<size_t>(box.whole), to, what.bytes);
    state.result = kInvalidArgument;
    return false;
  } else {
    std::memcpy(what.at + what.done, box.data, box.bytes);
  }
  what.done += box.bytes;
  box.full.store(what.sends ? 1 : 0, std::memory_order_release);
  return true;
}

// Does the transfers of a group, in an order drawn at random; those to one peer, and those from
// one, each in their order.
void transfer(State& state, std::vector<Transfer> all) {
  ++state.moving;
  while (!state.aborted && gpu_double::lasting_error() == 0) {
    std::vector<size_t> ready;
    bool seen[2][kMostRanks] = {};
    for (size_t i = 0; i < all.size(); ++i) {
      bool& before = seen[all[i].sends ? 1 : 0][all[i].peer];
      if (all[i].done == all[i].bytes || before) continue;
      before = true;
      ready.push_back(i);
    }
    if (ready.empty()) break;
    bool moved = false;
    if (state.result == kNcclSuccess || state.result == kNcclInProgress) {
      std::shuffle(ready.begin(), ready.end(), draws());
      for (const size_t i : ready) moved = advance(state, all[i]) || moved;
    }
    if (!moved || draws()() % 8 == 0) pause_at_random();
  }
  --state.moving;
  --state.under_way;
}

struct Group {
  int depth = 0;
  OpaqueNcclComm* comm = nullptr;
  Stream* stream = nullptr;
  std::vector<Transfer> transfers;
  int failed = kNcclSuccess;  // the first result that is none
};
thread_local Group group;

// A call that NCCL does not allow now: before the last is over, or within another's group.
int check(OpaqueNcclComm* comm, Stream* stream) {
  if (comm->state->result == kNcclInProgress) return kNcclInvalidUsage;
  if (comm->state->result != kNcclSuccess) return comm->state->result;
  if (group.comm != nullptr && (group.comm != comm || group.stream != stream))
    return kNcclInvalidUsage;
  group.comm = comm;
  group.stream = stream;
  return kNcclSuccess;
}

int add(OpaqueNcclComm* comm, device::cuda::StreamHandle handle, bool sends, const void* at,
        size_t bytes, int peer) {
  if (const int failed = check(comm, reinterpret_cast<Stream*>(handle)); failed != 0) return failed;
  const State& state = *comm->state;
  const auto address = reinterpret_cast<uint64_t>(at);
  if (peer < 0 || peer >= state.ranks || peer == state.rank || bytes == 0) return kInvalidArgument;
  if (!Memory::instance().holds(address, bytes)) return kInvalidArgument;
  group.transfers.push_back({sends, Memory::instance().resolve(address), bytes, peer});
  return kNcclSuccess;
}

// Later, as NCCL does for a communicator that does not block, the stream gets the work.
int issue_group() {
  const Group done = std::exchange(group, Group());
  if (done.failed != kNcclSuccess || done.transfers.empty()) return done.failed;
  const std::shared_ptr<State> state = done.comm->state;
  const int error = error_of_group(state->rank, ++state->groups);
  state->result = kNcclInProgress;
  ++state->under_way;
  done.comm->join();
  done.comm->background = std::thread([=, stream = done.stream, all = done.transfers] {
    std::this_thread::sleep_for(
        microseconds(number_of("DOUBLE_NCCL_ISSUE_US", state->groups * 37 % 200)));
    if (const auto all = Stream::all(); std::ranges::count(all, stream) == 0) {
      std::fprintf(stderr, "the double of NCCL: the stream of a group ended before the group\n");
      std::abort();
    }
    stream->add([=] {
      if (error != 0) state->result = error;
      transfer(*state, all);
    });
    int in_progress = kNcclInProgress;
    state->result.compare_exchange_strong(in_progress, kNcclSuccess);
  });
  return kNcclInProgress;
}

// Outside of a group a call is one of its own.
template <typename Calls>
int in_group(Calls calls) {
  const int result = calls();
  if (group.failed == kNcclSuccess) group.failed = result;
  return group.depth > 0 ? result : issue_group();
}

}  // namespace
}  // namespace dc::runtime::comm

using namespace dc::runtime::comm;  // NOLINT: the functions below belong to no namespace
using dc::runtime::device::cuda::StreamHandle;

#undef DC_MAY_FAIL
#define DC_MAY_FAIL(name) \
  if (const int asked = asked_to_fail(#name); asked != 0) return asked

extern "C" {

int ncclGetVersion(int* version) {
  *version = number_of("DOUBLE_NCCL", 22809);
  return kNcclSuccess;
}
const char* ncclGetErrorString(int result) {
  return result == kNcclRemoteError ? "remote process exited or there was a network error"
                                    : "an error of the double of NCCL";
}
const char* ncclGetLastError(NcclComm) { return ""; }

int ncclGetUniqueId(NcclId* id) {
  DC_MAY_FAIL(ncclGetUniqueId);
  std::strcpy(id->bytes, "/tmp/nccl_double_XXXXXX");
  const int file = mkstemp(id->bytes);
  if (file < 0 || ftruncate(file, sizeof(Shared)) != 0) return kSystemError;
  close(file);
  return kNcclSuccess;
}
int ncclCommInitRankConfig(NcclComm* comm, int ranks, NcclId id, int rank, NcclConfig* config) {
  DC_MAY_FAIL(ncclCommInitRankConfig);
  if (config->magic != 0xcafebeef || config->blocking != 0 || ranks > kMostRanks || rank >= ranks)
    return kInvalidArgument;
  auto state = std::make_shared<State>();
  state->path = id.bytes;
  state->rank = rank;
  state->ranks = ranks;
  *comm = new OpaqueNcclComm{state, std::thread([state] { attach(*state); })};
  return kNcclInProgress;
}
int ncclCommGetAsyncError(NcclComm comm, int* result) {
  *result = comm->state->result;
  return kNcclSuccess;
}
int ncclCommFinalize(NcclComm comm) {
  DC_MAY_FAIL(ncclCommFinalize);
  if (const int failed = check(comm, nullptr); failed != 0) return failed;
  group = Group();
  comm->state->result = kNcclInProgress;
  comm->join();
  comm->background = std::thread([state = comm->state] {
    while (state->under_way > 0 && !state->aborted) pause_at_random();
    state->result = kNcclSuccess;
  });
  return kNcclInProgress;
}
int ncclCommDestroy(NcclComm comm) {
  if (comm->state->under_way > 0) std::abort();  // not finalized
  comm->join();
  delete comm;
  return kNcclSuccess;
}
// Returns when nothing of it works on the device any more.
int ncclCommAbort(NcclComm comm) {
  comm->state->aborted = true;
  comm->join();
  while (comm->state->moving > 0) pause_at_random();
  unlink(comm->state->path.c_str());
  delete comm;
  return kNcclSuccess;
}
int ncclCommRegister(NcclComm comm, void* memory, size_t bytes, void** handle) {
  DC_MAY_FAIL(ncclCommRegister);
  if (!Memory::instance().holds(reinterpret_cast<uint64_t>(memory), bytes)) return kInvalidArgument;
  *handle = comm;
  return kNcclSuccess;
}
int ncclCommDeregister(NcclComm comm, void* handle) {
  return handle == comm ? kNcclSuccess : kInvalidArgument;
}

int ncclSend(const void* from, size_t bytes, int, int peer, NcclComm comm, StreamHandle stream) {
  DC_MAY_FAIL(ncclSend);
  return in_group([&] { return add(comm, stream, true, from, bytes, peer); });
}
int ncclRecv(void* to, size_t bytes, int, int peer, NcclComm comm, StreamHandle stream) {
  DC_MAY_FAIL(ncclRecv);
  return in_group([&] { return add(comm, stream, false, to, bytes, peer); });
}
int ncclAllGather(const void* from, void* to, size_t bytes, int, NcclComm comm,
                  StreamHandle stream) {
  DC_MAY_FAIL(ncclAllGather);
  return in_group([&] {
    if (const int failed = check(comm, reinterpret_cast<Stream*>(stream)); failed != 0)
      return failed;
    const State& state = *comm->state;
    auto* whole = static_cast<std::byte*>(to);
    std::byte* own = whole + static_cast<size_t>(state.rank) * bytes;
    Memory& memory = Memory::instance();
    for (const auto* end : {own, static_cast<std::byte*>(const_cast<void*>(from))})
      if (!memory.holds(reinterpret_cast<uint64_t>(end), bytes)) return kInvalidArgument;
    if (own != from) {
      reinterpret_cast<Stream*>(stream)->add([=, &memory] {
        std::memcpy(memory.resolve(reinterpret_cast<uint64_t>(own)),
                    memory.resolve(reinterpret_cast<uint64_t>(from)), bytes);
      });
    }
    for (int peer = 0; peer < state.ranks; ++peer) {
      if (peer == state.rank) continue;
      int failed = add(comm, stream, true, from, bytes, peer);
      if (failed == kNcclSuccess)
        failed = add(comm, stream, false, whole + static_cast<size_t>(peer) * bytes, bytes, peer);
      if (failed != kNcclSuccess) return failed;
    }
    return kNcclSuccess;
  });
}
int ncclGroupStart() {
  ++group.depth;
  return kNcclSuccess;
}
int ncclGroupEnd() {
  DC_MAY_FAIL(ncclGroupEnd);
  return --group.depth > 0 ? kNcclSuccess : issue_group();
}

}  // extern "C"
