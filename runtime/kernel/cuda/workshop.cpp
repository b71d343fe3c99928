#include "runtime/kernel/cuda/workshop.h"

#include <algorithm>

#include "runtime/kernel/cuda/block.h"
#include "src/base/cache_directory.h"
#include "src/base/on_all_cores.h"
#include "src/base/units.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;
using device::CudaDevice;
using device::CudaStream;

// Blocks of kBlockThreads that fill a multiprocessor (2048 threads).
constexpr int64_t kBlocksPerMultiprocessor = 8;
constexpr int64_t kScratchAlignment = 256;  // bytes
// A kernel that is launched with more says so before.
constexpr unsigned kSharedBytesOfEveryBlock = 48 << 10;

void issue_on(const CudaDevice& device, const Launch& launch, unsigned blocks,
              const void* parameters, device::Stream& stream) {
  if (blocks == 0) return;
  auto& own = static_cast<CudaStream&>(stream);
  device.use();
  void* all[] = {const_cast<void*>(parameters)};
  own.check(device.driver().launch(launch.function, blocks, 1, 1, launch.threads, 1, 1,
                                   launch.shared_bytes, own.handle(), all, nullptr),
            launch.what);
}

class CudaKernel final : public Kernel {
 public:
  CudaKernel(const CudaDevice& device, std::vector<Launch> launches)
      : device_(device), launches_(std::move(launches)) {}

  Status launch(device::Stream& stream) override {
    for (const Launch& launch : launches_)
      issue_on(device_, launch, launch.blocks, launch.parameters.data(), stream);
    return {};
  }

 private:
  const CudaDevice& device_;
  std::vector<Launch> launches_;
};

Status refused_by_gpu(const std::string& name, const std::string& why) {
  return Status(ErrorKind::Unavailable, "DC6156",
                "the GPU does not take the compiled kernel '" + name + "': " + why +
                    "; update the driver of this host's GPU, or empty the folder 'kernels' of the "
                    "cache (DCC_CACHE_DIR)");
}

}  // namespace

Result<std::unique_ptr<Workshop>> Workshop::open(CudaDevice& device) {
  int version = 0;
  (void)device.driver().driver_version(&version);
  DC_ASSIGN_OR_RETURN(Nvrtc nvrtc, Nvrtc::open(version));
  return std::unique_ptr<Workshop>(new Workshop(device, std::move(nvrtc), version));
}

Workshop::Workshop(CudaDevice& device, Nvrtc nvrtc, int driver_version)
    : device_(device),
      compiler_(std::move(nvrtc), device.architecture(), driver_version, base::cache_directory()) {}

Workshop::~Workshop() {
  device_.use();
  for (const auto& [text, module] : modules_) (void)device_.driver().unload_module(module);
}

Result<device::cuda::Module> Workshop::module(const KernelSource& source) {
  if (const auto found = modules_.find(source.text); found != modules_.end()) return found->second;
  std::string code;
  if (const auto ready = compiled_.find(source.text); ready != compiled_.end()) {
    code = std::move(compiled_.extract(ready).mapped());
  } else {
    DC_ASSIGN_OR_RETURN(code, compiler_.compile(source));
  }
  device_.use();
  device::cuda::Module module = nullptr;
  const int failed = device_.driver().load_module(&module, code.data());
  if (failed != device::cuda::kSuccess)
    return refused_by_gpu(source.name, device_.driver().explain(failed));
  modules_.emplace(source.text, module);
  return module;
}

Result<Launch> Workshop::launch(const KernelSource& source, unsigned blocks,
                                std::span<const std::byte> parameters) {
  if (lists_) {
    const bool is_known = modules_.contains(source.text) ||
                          std::ranges::count(listed_, source.text, &KernelSource::text) > 0;
    if (!is_known) listed_.push_back(source);
    return Launch();
  }
  DC_ASSIGN_OR_RETURN(const device::cuda::Module module, this->module(source));
  Launch made{nullptr,
              blocks,
              source.threads,
              source.shared_bytes,
              {parameters.begin(), parameters.end()},
              "kernel " + source.name};
  const device::cuda::Driver& driver = device_.driver();
  int failed = driver.get_function(&made.function, module, source.name.c_str());
  if (failed == device::cuda::kSuccess && source.shared_bytes > kSharedBytesOfEveryBlock)
    failed = driver.set_function_attribute(made.function, device::cuda::kMostSharedBytes,
                                           static_cast<int>(source.shared_bytes));
  if (failed != device::cuda::kSuccess)
    return refused_by_gpu(source.name, device_.driver().explain(failed));
  return made;
}

bool Workshop::has_tensor_cores(int shared_bytes) const {
  constexpr int kOldest = 80;
  return architecture() >= kOldest &&
         device_.attribute(device::cuda::kSharedBytesOfBlock) >= shared_bytes;
}

unsigned Workshop::blocks_for(int64_t elements) const {
  const int64_t most = kBlocksPerMultiprocessor * device_.attribute(device::cuda::kMultiprocessors);
  return static_cast<unsigned>(
      std::min((elements + kBlockThreads - 1) / kBlockThreads, std::max<int64_t>(most, 1)));
}

void Workshop::keep_resident(Launch& launch) const {
  if (launch.function == nullptr) return;
  device_.use();
  int of_one = 0;
  const int failed = device_.driver().resident_blocks(
      &of_one, launch.function, static_cast<int>(launch.threads), launch.shared_bytes);
  if (failed != device::cuda::kSuccess || of_one == 0) return;
  const auto all =
      static_cast<unsigned>(of_one * device_.attribute(device::cuda::kMultiprocessors));
  launch.blocks = std::min(launch.blocks, all);
}

void Workshop::begin_kernel(std::byte* planned, int64_t bytes) {
  planned_ = planned;
  planned_bytes_ = bytes;
  const auto place = static_cast<int64_t>(reinterpret_cast<uintptr_t>(planned));
  skipped_bytes_ = base::round_up(place, kScratchAlignment) - place;
  asked_bytes_ = 0;
  measures_ = lists_ = false;
}

void Workshop::begin_measurement() {
  begin_kernel(nullptr, 0);
  skipped_bytes_ = kScratchAlignment - base::kAlignment;  // the most that it can be
  measures_ = true;
}

void Workshop::begin_listing() {
  begin_measurement();
  lists_ = true;
}

void Workshop::compile_listed() {
  std::vector<std::string> codes(listed_.size());
  (void)base::on_all_cores(static_cast<int64_t>(listed_.size()), [&](int64_t i) -> Status {
    const auto at = static_cast<size_t>(i);
    DC_ASSIGN_OR_RETURN(codes[at], compiler_.compile(listed_[at]));
    return {};
  });
  compiler_.end_processes();
  for (size_t i = 0; i < listed_.size(); ++i)
    if (!codes[i].empty()) compiled_[listed_[i].text] = std::move(codes[i]);
  listed_.clear();
}

std::byte* Workshop::planned_scratch(int64_t bytes) {
  alignas(kScratchAlignment) static std::byte nowhere{};
  const int64_t first = asked_bytes_ > 0 ? asked_bytes_ : skipped_bytes_;
  const int64_t end = first + base::round_up(bytes, kScratchAlignment);
  if (!measures_ && end > planned_bytes_) return nullptr;
  asked_bytes_ = end;
  return measures_ ? &nowhere : planned_ + first;
}

Result<std::byte*> Workshop::scratch(int32_t stream, int64_t bytes) {
  if (std::byte* const planned = planned_scratch(bytes); planned != nullptr) return planned;
  // Kernels that were prepared before hold addresses, so memory that is too small stays.
  std::vector<std::unique_ptr<device::DeviceMemory>>& all = scratch_[stream];
  for (const auto& memory : all)
    if (memory->bytes() >= bytes) return memory->base();
  constexpr int64_t kLeast = 64 << 10;
  DC_ASSIGN_OR_RETURN(std::unique_ptr<device::DeviceMemory> memory,
                      device_.allocate(std::max(bytes, kLeast)));
  all.push_back(std::move(memory));
  return all.back()->base();
}

Result<unsigned*> Workshop::block_counter(int32_t stream) {
  std::unique_ptr<device::DeviceMemory>& counter = counters_[stream];
  if (counter == nullptr) {
    DC_ASSIGN_OR_RETURN(counter, device_.allocate(sizeof(unsigned)));
  }
  return reinterpret_cast<unsigned*>(counter->base());
}

void Workshop::issue(const Launch& launch, unsigned blocks, const void* parameters,
                     device::Stream& stream) const {
  issue_on(device_, launch, blocks, parameters, stream);
}

std::unique_ptr<Kernel> Workshop::kernel(std::vector<Launch> launches) const {
  return std::make_unique<CudaKernel>(device_, std::move(launches));
}

}  // namespace dc::runtime::kernel::cuda
