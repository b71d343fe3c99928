// kernel_table PLAN...: each distinct operator of the model in the plans, natively and in libtorch,
// on one thread; a line of JSON for each, times being processor time:
//   {"kernel": its signature, "calls": in one step, "bytes": read and written,
//    "native_ns": [median, lowest, highest], "aten_ns": [...]}
// Both run on the plan's addresses, in turns: 9 rounds of at least 2 ms each.
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/kernel/kernel.h"
#include "runtime/plan/file.h"
#include "runtime/plan/kernel_signature.h"
#include "src/base/file.h"

namespace dc::runtime {
namespace {

constexpr int kRounds = 9;
constexpr int64_t kRoundNs = 2'000'000;

// Processor time of this thread: other programs on the machine change it less than the clock.
int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

class Table {
 public:
  explicit Table(plan::Plan plan) : plan_(std::move(plan)) {
    size_ = static_cast<size_t>(std::max<int64_t>(plan_.arena_bytes[0], 64));
    memory_ = static_cast<std::byte*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
  }
  ~Table() { munmap(memory_, size_); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  int print(kernel::KernelProvider& aten) {
    if (memory_ == MAP_FAILED) return fail("there is no memory for the plan's arena");
    std::map<std::string, std::pair<const plan::Instruction*, int64_t>> distinct;
    for (const plan::ProgramRun& run : plan_.step) {
      for (const plan::Instruction& in :
           plan_.programs[static_cast<size_t>(run.program)].instructions) {
        const bool compared = in.kind == plan::InstructionKind::Kernel &&
                              in.provider == plan::Provider::Native && in.op.starts_with("aten.");
        if (!compared) continue;
        auto& [first, calls] = distinct[plan::signature_of(plan_, in).text()];
        first = first == nullptr ? &in : first;
        calls += run.repeat;
      }
    }
    for (const auto& [text, entry] : distinct) print_row(aten, text, *entry.first, entry.second);
    return 0;
  }

 private:
  using Kernels = base::Result<std::unique_ptr<kernel::Kernel>>;

  static int fail(const std::string& text) {
    std::fprintf(stderr, "kernel_table: %s\n", text.c_str());
    return 1;
  }

  kernel::AddressMap addresses() const { return kernel::AddressMap(plan_, memory_, 0); }

  void print_row(kernel::KernelProvider& aten, const std::string& text, const plan::Instruction& in,
                 int64_t calls) {
    fill_operands(in);
    const auto native_provider = kernel::make_native_provider();
    Kernels native = prepare(*native_provider, in, plan::Provider::Native);
    Kernels torch = prepare(aten, in, plan::Provider::Aten);
    if (!native.ok() || !torch.ok()) {
      std::fprintf(stderr, "%s: %s%s\n", text.c_str(), native.status().to_string().c_str(),
                   torch.status().to_string().c_str());
      return;
    }
    std::vector<int64_t> times[2];
    const int64_t repeats = std::max({repeats_of(**native), repeats_of(**torch), int64_t{1}});
    for (int round = 0; round < kRounds; ++round) {
      times[0].push_back(time(**native, repeats));
      times[1].push_back(time(**torch, repeats));
    }
    std::printf("{\"kernel\": \"%s\", \"calls\": %ld, \"bytes\": %ld", text.c_str(),
                static_cast<long>(calls), static_cast<long>(bytes_of(in)));
    for (int side = 0; side < 2; ++side) {
      std::sort(times[side].begin(), times[side].end());
      std::printf(", \"%s_ns\": [%ld, %ld, %ld]", side == 0 ? "native" : "aten",
                  static_cast<long>(times[side][kRounds / 2]),
                  static_cast<long>(times[side].front()), static_cast<long>(times[side].back()));
    }
    std::printf("}\n");
  }

  // With scratch of its own size.
  Kernels prepare(kernel::KernelProvider& provider, plan::Instruction in, plan::Provider which) {
    in.provider = which;
    const auto bytes = provider.measure_scratch(in, addresses());
    if (!bytes.ok()) return bytes.status();
    scratch_.push_back(std::make_unique<plan::Plan>(plan_));
    plan::Plan& plan = *scratch_.back();
    plan.programs = {plan::Program{"one", {in}}};
    plan.programs[0].instructions[0].scratch = -1;
    const kernel::AddressMap map(plan, memory_, 0);
    DC_RETURN_IF_ERROR(provider.take_missing_scratch(map).status());
    return provider.prepare(plan.programs[0].instructions[0], map);
  }

  static int64_t time(kernel::Kernel& kernel, int64_t repeats) {
    const auto stream = device::cpu_device().make_stream();
    const int64_t begin = now_ns();
    for (int64_t i = 0; i < repeats; ++i) {
      if (!kernel.launch(*stream).ok()) return 0;
    }
    return (now_ns() - begin) / repeats;
  }
  static int64_t repeats_of(kernel::Kernel& kernel) {
    time(kernel, 2);
    return kRoundNs / std::max<int64_t>(time(kernel, 3), 1);
  }

  std::vector<int32_t> operands_of(const plan::Instruction& in) const {
    std::vector<int32_t> ids;
    for (const plan::Arg& arg : in.args) {
      if (arg.kind == plan::ArgKind::Tensor) ids.push_back(static_cast<int32_t>(arg.i));
      if (arg.kind != plan::ArgKind::Tensors) continue;
      for (const int64_t id : arg.ints)
        if (id >= 0) ids.push_back(static_cast<int32_t>(id));
    }
    return ids;
  }

  // Elements that are in memory: a broadcast dim counts once.
  int64_t bytes_of(const plan::Instruction& in) const {
    std::vector<int32_t> ids = operands_of(in);
    ids.insert(ids.end(), in.outputs.begin(), in.outputs.end());
    int64_t bytes = 0;
    for (const int32_t id : ids) {
      if (id < 0) continue;
      const plan::Tensor& tensor = plan_.tensors[static_cast<size_t>(id)];
      int64_t count = 1;
      for (size_t dim = 0; dim < tensor.sizes.size(); ++dim)
        count *= tensor.strides[dim] == 0 ? 1 : tensor.sizes[dim];
      bytes += count * base::byte_size(tensor.dtype);
    }
    return bytes;
  }

  // Numbers around zero; indices that the smallest dim of what they choose from has.
  void fill_operands(const plan::Instruction& in) {
    std::mt19937 random(1);
    int64_t bound = 2;
    if (in.op.find("embedding") != std::string::npos ||
        in.op.find("nll_loss") != std::string::npos || in.op.find("index") != std::string::npos ||
        in.op.find("gather") != std::string::npos || in.op.find("scatter") != std::string::npos) {
      bound = INT64_MAX;
      std::vector<int32_t> chosen = operands_of(in);
      chosen.push_back(in.outputs[0]);
      for (const int32_t id : chosen) {
        const plan::Tensor& tensor = plan_.tensors[static_cast<size_t>(id)];
        if (tensor.dtype == base::DType::I64 || tensor.sizes.empty()) continue;
        const bool is_table =
            in.op.find("embedding") == std::string::npos || tensor.sizes.size() == 2;
        for (const int64_t size : tensor.sizes)
          if (is_table && size > 1) bound = std::min(bound, size);
      }
      if (in.op == "aten.embedding.default") bound = plan_.tensors[operands_of(in)[0]].sizes[0];
      if (in.op == "aten.embedding_dense_backward.default")
        bound = plan_.tensors[in.outputs[0]].sizes[0];
      if (in.op.starts_with("aten.nll_loss")) bound = plan_.tensors[self_of(in)].sizes[1];
    }
    for (const int32_t id : operands_of(in)) fill(id, random, bound);
  }
  static int32_t self_of(const plan::Instruction& in) {
    for (const plan::Arg& arg : in.args)
      if (arg.name == "self") return static_cast<int32_t>(arg.i);
    return 0;
  }

  void fill(int32_t id, std::mt19937& random, int64_t bound) {
    const kernel::BoundTensor tensor = addresses().bind(id);
    int64_t extent = 1;
    for (size_t dim = 0; dim < tensor.sizes.size(); ++dim)
      extent += (tensor.sizes[dim] - 1) * tensor.strides[dim];
    std::uniform_real_distribution<float> real(-2, 2);
    auto* bytes = static_cast<std::byte*>(tensor.data);
    for (int64_t i = 0; i < extent; ++i) {
      const float x = real(random);
      if (tensor.dtype == base::DType::F32) reinterpret_cast<float*>(bytes)[i] = x;
      if (tensor.dtype == base::DType::BF16) {
        reinterpret_cast<uint16_t*>(bytes)[i] =
            static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
      }
      if (tensor.dtype == base::DType::I64)
        reinterpret_cast<int64_t*>(bytes)[i] = static_cast<int64_t>(random() % bound);
      if (tensor.dtype == base::DType::Bool) bytes[i] = static_cast<std::byte>(random() % 2);
    }
  }

  plan::Plan plan_;
  std::byte* memory_ = nullptr;
  size_t size_ = 0;
  std::vector<std::unique_ptr<plan::Plan>> scratch_;  // kernels keep references to them
};

int run(int argc, char** argv) {
  auto aten = kernel::open_aten_provider(1);
  if (!aten.ok()) {
    std::fprintf(stderr, "%s\n", aten.status().to_string().c_str());
    return 69;
  }
  for (int i = 1; i < argc; ++i) {
    const auto file = base::read_file(argv[i], int64_t{1} << 32);
    if (!file.ok()) return 66;
    auto plan = plan::decode({reinterpret_cast<const uint8_t*>(file->data()), file->size()});
    if (!plan.ok()) return 65;
    if (const int failed = Table(*std::move(plan)).print(**aten); failed != 0) return failed;
  }
  return 0;
}

}  // namespace
}  // namespace dc::runtime

int main(int argc, char** argv) { return dc::runtime::run(argc, argv); }
