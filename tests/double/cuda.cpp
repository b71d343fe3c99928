// The double of libcuda.so.1: the calls of runtime/device/cuda/driver.h, with its types.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/cuda/driver.h"
#include "tests/double/gpu.h"

namespace {

using dc::gpu_double::asked_to_fail;
using dc::gpu_double::Event;
using dc::gpu_double::Memory;
using dc::gpu_double::Stream;
namespace cuda = dc::runtime::device::cuda;

constexpr int kInvalidValue = 1, kIllegalAddress = 700, kNotFound = 500, kInvalidImage = 200;
constexpr int kInvalidHandle = 400;
// Of captures: forbidden within one, streams that have not come back, an event from outside, an
// event of one that is over.
constexpr int kUnsupported = 900, kUnjoined = 904, kIsolation = 905, kCapturedEvent = 907;

// The driver's own stream, which no other waits for: they are non-blocking. Leaked, as on a GPU.
Stream& default_stream() {
  static auto* const stream = new Stream();
  return *stream;
}
Stream& of(cuda::StreamHandle handle) {
  return handle == nullptr ? default_stream() : *reinterpret_cast<Stream*>(handle);
}
Event& of(cuda::EventHandle handle) { return *reinterpret_cast<Event*>(handle); }

// Every event of the process.
class Events {
 public:
  void keep(std::unique_ptr<Event> event) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(event));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Event>> kept_;
};
// As the default stream, it is not destroyed at the end of the program.
Events& events() {
  static auto* const all = new Events();
  return *all;
}

// The real time: a double has no other.
int64_t now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

void record(cuda::EventHandle event, cuda::StreamHandle stream) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(of(event).mutex);
    number = ++of(event).recorded;
  }
  of(stream).add([event, number] {
    const std::lock_guard lock(of(event).mutex);
    of(event).reached = number;
    of(event).time_ns = now();
    of(event).changed.notify_all();
  });
}

using Graph = std::shared_ptr<dc::gpu_double::Recording>;
Graph& of(cuda::GraphHandle handle) { return *reinterpret_cast<Graph*>(handle); }
Graph& of(cuda::GraphExec handle) { return *reinterpret_cast<Graph*>(handle); }

int copy_now(cuda::Address to, cuda::Address from, size_t bytes) {
  Memory& memory = Memory::instance();
  if (!memory.holds(to, bytes) || !memory.holds(from, bytes)) {
    dc::gpu_double::fail_for_good(kIllegalAddress);
    return kIllegalAddress;
  }
  std::memcpy(memory.resolve(to), memory.resolve(from), bytes);
  return 0;
}
int fill_now(cuda::Address to, unsigned char value, size_t bytes) {
  Memory& memory = Memory::instance();
  if (!memory.holds(to, bytes)) {
    dc::gpu_double::fail_for_good(kIllegalAddress);
    return kIllegalAddress;
  }
  std::memset(memory.resolve(to), value, bytes);
  return 0;
}

struct Kernel {
  dc::gpu_double::Entry entry;
  size_t bytes;  // of its parameters
  bool has_barriers;
  unsigned most_shared_bytes = 48 << 10;  // that it may be launched with
};

struct LoadedModule {
  void* library;
  int file;
  std::mutex mutex;             // of `kernels`
  std::list<Kernel> kernels{};  // that were asked for
};

std::string path_of(int file) { return "/proc/self/fd/" + std::to_string(file); }

// Addresses of the GPU among the parameters become those of their bytes.
void resolve_all(std::vector<std::byte>& parameters) {
  for (size_t at = 0; at + 8 <= parameters.size(); at += 8) {
    cuda::Address word = 0;
    std::memcpy(&word, parameters.data() + at, 8);
    std::byte* bytes = Memory::instance().resolve(word);
    std::memcpy(parameters.data() + at, &bytes, 8);
  }
}

// Held where modules are opened and closed: the thread sanitizer does not know the loader's lock.
std::mutex& loading() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

extern "C" {

// The double's own, for tests that find it by its name.
int doubleCallsOf(const char* name) { return dc::gpu_double::calls_of(name); }

// Drivers say so here, also where CUDA_VISIBLE_DEVICES is empty.
int cuInit(unsigned) {
  const char* own = std::getenv("DOUBLE_GPUS");
  return own && std::atoi(own) == 0 ? 100 : asked_to_fail("cuInit");
}
int cuDriverGetVersion(int* version) {
  const char* own = std::getenv("DOUBLE_VERSION");
  *version = own ? std::atoi(own) : 13000;
  return 0;
}
int cuDeviceGetCount(int* count) {
  const char* own = std::getenv("DOUBLE_GPUS");
  *count = own ? std::atoi(own) : 1;
  return asked_to_fail("cuDeviceGetCount");
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return asked_to_fail("cuDeviceGet");
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  const char* own = std::getenv("DOUBLE_ARCHITECTURE");
  const int architecture = own ? std::atoi(own) : 90;
  *value = attribute == cuda::kMultiprocessors      ? 4
           : attribute == cuda::kClockRate          ? 1'000'000
           : attribute == cuda::kMemoryClockRate    ? 2'000'000
           : attribute == cuda::kMajor              ? architecture / 10
           : attribute == cuda::kMinor              ? architecture % 10
           : attribute == cuda::kSharedBytesOfBlock ? (architecture >= 90   ? 227 << 10
                                                       : architecture == 80 ? 163 << 10
                                                                            : 99 << 10)
                                                    : 0;
  return 0;
}
int cuDeviceGetName(char* name, int length, int) {
  std::strncpy(name, "a GPU that is none", static_cast<size_t>(length));
  return 0;
}
int cuDeviceGetUuid_v2(cuda::Uuid* uuid, int device) {
  std::snprintf(uuid->bytes, sizeof uuid->bytes, "double %d", device);
  return 0;
}
int cuDevicePrimaryCtxRetain(cuda::Context* context, int) {
  *context = reinterpret_cast<cuda::Context>(&Memory::instance());
  return asked_to_fail("cuDevicePrimaryCtxRetain");
}
int cuCtxSetCurrent(cuda::Context) { return 0; }
int cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = Memory::instance().free_bytes();
  *total = Memory::instance().total_bytes();
  return 0;
}
int cuMemAlloc_v2(cuda::Address* address, size_t bytes) {
  DC_MAY_FAIL(cuMemAlloc);
  if (bytes == 0) return kInvalidValue;
  *address = Memory::instance().allocate(bytes);
  return *address != 0 ? 0 : cuda::kOutOfMemory;
}
int cuMemFree_v2(cuda::Address address) {
  default_stream().drain();
  return Memory::instance().release(address) ? 0 : kInvalidValue;
}
int cuMemHostAlloc(void** address, size_t bytes, unsigned) {
  DC_MAY_FAIL(cuMemHostAlloc);
  if (bytes == 0) return kInvalidValue;
  *address = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (*address != nullptr) (void)Memory::instance().add_host(*address, bytes);
  return *address ? 0 : cuda::kOutOfMemory;
}
int cuMemFreeHost(void* address) {
  (void)Memory::instance().remove_host(address);
  std::free(address);
  return 0;
}
// From the host it returns when the bytes are taken, not when they are there; to the host when all
// is done.
int cuMemcpy(cuda::Address to, cuda::Address from, size_t bytes) {
  DC_MAY_FAIL(cuMemcpy);
  Memory& memory = Memory::instance();
  if (!memory.is_of_gpu(to)) {
    default_stream().drain();
    return copy_now(to, from, bytes);
  }
  if (!memory.holds(to, bytes) || memory.is_of_gpu(from)) {
    default_stream().add([=] { (void)copy_now(to, from, bytes); });
    return 0;
  }
  const auto* begin = memory.resolve(from);
  default_stream().add([to, taken = std::vector<std::byte>(begin, begin + bytes)] {
    (void)copy_now(to, reinterpret_cast<uintptr_t>(taken.data()), taken.size());
  });
  return 0;
}
int cuMemcpyAsync(cuda::Address to, cuda::Address from, size_t bytes, cuda::StreamHandle stream) {
  DC_MAY_FAIL(cuMemcpyAsync);
  of(stream).add([=] { (void)copy_now(to, from, bytes); });
  return 0;
}
int cuMemsetD8_v2(cuda::Address to, unsigned char value, size_t bytes) {
  DC_MAY_FAIL(cuMemsetD8);
  default_stream().add([=] { (void)fill_now(to, value, bytes); });
  return 0;
}
int cuMemsetD8Async(cuda::Address to, unsigned char value, size_t bytes,
                    cuda::StreamHandle stream) {
  DC_MAY_FAIL(cuMemsetD8Async);
  if (bytes == 0) return kInvalidValue;
  of(stream).add([=] { (void)fill_now(to, value, bytes); }, dc::gpu_double::Fill{to, value, bytes});
  return 0;
}

int cuStreamCreateWithPriority(cuda::StreamHandle* stream, unsigned, int) {
  DC_MAY_FAIL(cuStreamCreateWithPriority);
  *stream = reinterpret_cast<cuda::StreamHandle>(new Stream());
  return 0;
}
int cuStreamDestroy_v2(cuda::StreamHandle stream) {
  delete &of(stream);
  return 0;
}
int cuStreamSynchronize(cuda::StreamHandle stream) {
  if (of(stream).captured.recording != nullptr) return kUnsupported;
  of(stream).drain();
  DC_MAY_FAIL(cuStreamSynchronize);
  return 0;
}
int cuStreamQuery(cuda::StreamHandle stream) {
  if (of(stream).captured.recording != nullptr) return kUnsupported;
  return of(stream).is_at_rest() ? dc::gpu_double::lasting_error() : cuda::kNotReady;
}
int cuStreamWaitEvent(cuda::StreamHandle stream, cuda::EventHandle event, unsigned) {
  DC_MAY_FAIL(cuStreamWaitEvent);
  dc::gpu_double::Captured &own = of(stream).captured, &other = of(event).captured;
  if (other.recording != nullptr) {
    if (other.recording->ended) return kCapturedEvent;
    if (own.recording != nullptr && own.recording != other.recording) return kIsolation;
    own.recording = other.recording;
    own.last.insert(own.last.end(), other.last.begin(), other.last.end());
    return 0;
  }
  if (own.recording != nullptr && of(event).recorded != 0) return kIsolation;
  uint64_t wanted = 0;
  {
    const std::lock_guard lock(of(event).mutex);
    wanted = of(event).recorded;
  }
  of(stream).add([event, wanted] {
    std::unique_lock lock(of(event).mutex);
    of(event).changed.wait(
        lock, [&] { return of(event).reached >= wanted || dc::gpu_double::lasting_error() != 0; });
  });
  return 0;
}

int cuStreamBeginCapture_v2(cuda::StreamHandle stream, int) {
  DC_MAY_FAIL(cuStreamBeginCapture);
  if (of(stream).captured.recording != nullptr) return kInvalidValue;
  of(stream).captured = {std::make_shared<dc::gpu_double::Recording>(), {}};
  return 0;
}
int cuStreamEndCapture(cuda::StreamHandle stream, cuda::GraphHandle* graph) {
  DC_MAY_FAIL(cuStreamEndCapture);
  const dc::gpu_double::Captured own = of(stream).captured;
  *graph = nullptr;
  if (own.recording == nullptr) return kInvalidValue;
  own.recording->ended = true;
  bool joined = true;
  for (Stream* other : Stream::all()) {
    if (other->captured.recording != own.recording) continue;
    joined = joined && own.recording->come_before(other->captured.last, own.last);
    other->captured = {};
  }
  if (!joined) return kUnjoined;
  *graph = reinterpret_cast<cuda::GraphHandle>(new Graph(own.recording));
  return 0;
}
int cuGraphInstantiateWithFlags(cuda::GraphExec* exec, cuda::GraphHandle graph,
                                unsigned long long) {
  DC_MAY_FAIL(cuGraphInstantiate);
  *exec = reinterpret_cast<cuda::GraphExec>(
      new Graph(std::make_shared<dc::gpu_double::Recording>(*of(graph))));
  return 0;
}
int cuGraphLaunch(cuda::GraphExec exec, cuda::StreamHandle stream) {
  DC_MAY_FAIL(cuGraphLaunch);
  if (of(stream).captured.recording != nullptr) return kUnsupported;
  of(stream).add([recording = of(exec)] { recording->run(); });
  return 0;
}
int cuGraphDestroy(cuda::GraphHandle graph) {
  delete &of(graph);
  return 0;
}
int cuGraphExecDestroy(cuda::GraphExec exec) {
  delete &of(exec);
  return 0;
}

int cuEventCreate(cuda::EventHandle* event, unsigned flags) {
  DC_MAY_FAIL(cuEventCreate);
  auto made = std::make_unique<Event>();
  made->keeps_time = (flags & cuda::kDisableTiming) == 0;
  *event = reinterpret_cast<cuda::EventHandle>(made.get());
  events().keep(std::move(made));
  return 0;
}
// Streams may still come to it, as on a GPU: the memory stays (events() has it).
int cuEventDestroy_v2(cuda::EventHandle) { return 0; }
int cuEventRecord(cuda::EventHandle event, cuda::StreamHandle stream) {
  DC_MAY_FAIL(cuEventRecord);
  of(event).captured = of(stream).captured;
  if (of(event).captured.recording == nullptr) record(event, stream);
  return 0;
}
// What is external is part of the graph, and is recorded by each of its launches.
int cuEventRecordWithFlags(cuda::EventHandle event, cuda::StreamHandle stream, unsigned flags) {
  DC_MAY_FAIL(cuEventRecordWithFlags);
  const bool captures = of(stream).captured.recording != nullptr;
  if (flags != (captures ? cuda::kExternal : 0)) return kInvalidValue;
  if (!captures) {
    record(event, stream);
    return 0;
  }
  of(stream).add([event] {
    const std::lock_guard lock(of(event).mutex);
    of(event).reached = ++of(event).recorded;
    of(event).time_ns = now();
    of(event).changed.notify_all();
  });
  return 0;
}
int cuEventElapsedTime(float* milliseconds, cuda::EventHandle begin, cuda::EventHandle end) {
  DC_MAY_FAIL(cuEventElapsedTime);
  int64_t times[2] = {};
  for (const int i : {0, 1}) {
    Event& event = of(i == 0 ? begin : end);
    const std::lock_guard lock(event.mutex);
    if (!event.keeps_time || event.recorded == 0) return kInvalidHandle;
    if (event.reached < event.recorded) return cuda::kNotReady;
    times[i] = event.time_ns;
  }
  *milliseconds = static_cast<float>(static_cast<double>(times[1] - times[0]) * 1e-6);
  return 0;
}
int cuEventQuery(cuda::EventHandle event) {
  const std::lock_guard lock(of(event).mutex);
  return of(event).reached < of(event).recorded ? cuda::kNotReady : 0;
}
int cuEventSynchronize(cuda::EventHandle event) {
  std::unique_lock lock(of(event).mutex);
  const uint64_t wanted = of(event).recorded;
  while (of(event).reached < wanted) {
    if (const int error = dc::gpu_double::lasting_error(); error != 0) return error;
    of(event).changed.wait_for(lock, std::chrono::milliseconds(10));
  }
  return 0;
}

// An image is what the double of NVRTC has made: a mark, a size, a shared library.
int cuModuleLoadData(cuda::Module* module, const void* image) {
  DC_MAY_FAIL(cuModuleLoadData);
  dc::gpu_double::Image head;
  std::memcpy(&head, image, sizeof head);
  if (std::memcmp(head.mark, dc::gpu_double::Image::kMark, sizeof head.mark) != 0)
    return kInvalidImage;
  // Open as long as the module is: the loader takes libraries of one path for one.
  const int file = memfd_create("module", MFD_CLOEXEC);
  const auto* bytes = static_cast<const char*>(image) + sizeof head;
  const bool written = write(file, bytes, head.bytes) == static_cast<ssize_t>(head.bytes);
  const std::string path = path_of(file);
  const std::lock_guard lock(loading());
  void* library = written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (library == nullptr) {
    std::fprintf(stderr, "the double loads no module: %s\n", dlerror());
    close(file);
    return kInvalidImage;
  }
  *module = reinterpret_cast<cuda::Module>(new LoadedModule{library, file, {}, {}});
  return 0;
}
int cuModuleUnload(cuda::Module module) {
  const auto* loaded = reinterpret_cast<const LoadedModule*>(module);
  {
    const std::lock_guard lock(loading());
    dlclose(loaded->library);
    // The loader may keep it nevertheless: then no other module may get its path.
    void* const kept = dlopen(path_of(loaded->file).c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (kept == nullptr) close(loaded->file);
    if (kept != nullptr) dlclose(kept);
  }
  delete loaded;
  return 0;
}
int cuModuleGetFunction(cuda::Function* function, cuda::Module module, const char* name) {
  auto& loaded = *reinterpret_cast<LoadedModule*>(module);
  void* library = loaded.library;
  void* entry = dlsym(library, name);
  const auto* bytes =
      static_cast<const size_t*>(dlsym(library, (std::string(name) + "_bytes").c_str()));
  const auto* has_barriers = static_cast<const bool*>(dlsym(library, "gpu_double_has_barriers"));
  if (entry == nullptr || bytes == nullptr || has_barriers == nullptr) return kNotFound;
  const std::lock_guard lock(loaded.mutex);
  loaded.kernels.push_back({reinterpret_cast<dc::gpu_double::Entry>(entry), *bytes, *has_barriers});
  *function = reinterpret_cast<cuda::Function>(&loaded.kernels.back());
  return 0;
}
int cuFuncSetAttribute(cuda::Function function, int attribute, int value) {
  DC_MAY_FAIL(cuFuncSetAttribute);
  int most = 0;
  (void)cuDeviceGetAttribute(&most, cuda::kSharedBytesOfBlock, 0);
  if (attribute != cuda::kMostSharedBytes || value > most) return kInvalidValue;
  reinterpret_cast<Kernel*>(function)->most_shared_bytes = static_cast<unsigned>(value);
  return 0;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, cuda::Function, int, size_t) {
  DC_MAY_FAIL(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  *blocks = 2;
  return 0;
}
int cuLaunchKernel(cuda::Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   cuda::StreamHandle stream, void** parameters, void**) {
  DC_MAY_FAIL(cuLaunchKernel);
  if (grid_x == 0 || block_x == 0 || block_x > 1024 || grid_y != 1 || grid_z != 1 || block_y != 1 ||
      block_z != 1)
    return kInvalidValue;
  const auto& kernel = *reinterpret_cast<const Kernel*>(function);
  if (shared_bytes > kernel.most_shared_bytes) return kInvalidValue;
  std::vector<std::byte> taken(kernel.bytes);  // parameters are read when a kernel is launched
  std::memcpy(taken.data(), parameters[0], taken.size());
  of(stream).add([kernel, taken, grid_x, block_x]() mutable {
    resolve_all(taken);
    dc::gpu_double::run_kernel(kernel.entry, {{grid_x, 1, 1}, {block_x, 1, 1}}, taken.data(),
                               kernel.has_barriers);
  });
  return 0;
}

int cuGetErrorName(int error, const char** name) {
  *name = error == cuda::kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == kIllegalAddress  ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                      : "CUDA_ERROR_OF_THE_DOUBLE";
  return 0;
}
int cuGetErrorString(int error, const char** text) {
  *text = error == cuda::kOutOfMemory ? "out of memory" : "an error of the double";
  return 0;
}

}  // extern "C"
