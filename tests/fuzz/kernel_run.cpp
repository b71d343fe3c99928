#include "tests/fuzz/kernel_run.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "runtime/device/device.h"
#include "runtime/kernel/kernel.h"
#include "runtime/plan/extent.h"
#include "runtime/verify/effects.h"
#include "src/base/checked.h"
#include "src/base/shape.h"
#include "tests/fuzz/kernel_memory.h"

namespace dc::fuzz {
namespace {

using runtime::plan::ArgKind;
using Bytes = std::vector<std::byte>;

// Elements of a tensor that is run, at most; expanded ones have more than their memory.
constexpr int64_t kMostElements = int64_t{1} << 14;
// Elements for which a kernel may take memory while it is prepared here.
constexpr int64_t kMostPrepared = int64_t{1} << 20;

[[noreturn]] void fail(const KernelInstruction& instruction, const char* problem) {
  std::fprintf(stderr, "%s: %s\n", problem, describe(instruction).c_str());
  std::abort();
}

// A tensor's elements, were each dim at least 1; the largest number where they do not fit.
int64_t extent_of_sizes(const KernelTensor& tensor) {
  int64_t count = 1;
  for (const int64_t size : tensor.sizes)
    count = base::checked_mul(count, std::max<int64_t>(size, 1)).value_or(INT64_MAX);
  return count;
}

// Kernels that take memory for each element of an operand or of a row, up to 2^31 elements: more
// than a test has.
bool takes_too_much(const KernelInstruction& instruction) {
  constexpr std::array kTakes{std::string_view("aten.sort"), std::string_view("aten.topk"),
                              std::string_view("aten.embedding_dense"),
                              std::string_view("aten.native_layer_norm"),
                              std::string_view("aten._fused_rms_norm")};
  const bool takes = std::ranges::any_of(
      kTakes, [&](std::string_view op) { return instruction.op.starts_with(op); });
  const auto between = [](int64_t count) { return count > kMostPrepared && count <= INT32_MAX; };
  return takes && std::ranges::any_of(instruction.tensors, [&](const KernelTensor& tensor) {
           return between(extent_of_sizes(tensor)) || std::ranges::any_of(tensor.sizes, between);
         });
}

bool is_small(const KernelInstruction& instruction) {
  std::optional<int64_t> together = 1;  // indices are broadcast to one shape
  for (const runtime::plan::Arg& arg : instruction.args) {
    if (arg.kind != ArgKind::Tensors) continue;
    for (const int64_t id : arg.ints) {
      if (id < 0 || !together) continue;
      together = base::checked_mul(*together,
                                   extent_of_sizes(instruction.tensors[static_cast<size_t>(id)]));
    }
  }
  return together.value_or(INT64_MAX) <= kMostElements * 64 &&
         std::ranges::all_of(instruction.tensors, [](const KernelTensor& tensor) {
           return extent_of_sizes(tensor) <= kMostElements;
         });
}

// Result 0 is operand 0.
bool works_in_place(std::string_view op) {
  return std::ranges::any_of(runtime::verify::native_kernels(),
                             [op](const runtime::verify::NativeKernel& kernel) {
                               return kernel.op == op && kernel.in_place;
                             });
}

// An operand that is a result, or two results in one place: plans that say so are refused.
bool has_shared_results(const KernelInstruction& instruction) {
  for (size_t i = 0; i < instruction.outputs.size(); ++i) {
    const int32_t id = instruction.outputs[i];
    if (id < 0) continue;
    if (std::count(instruction.outputs.begin(), instruction.outputs.end(), id) > 1) return true;
    for (const runtime::plan::Arg& arg : instruction.args) {
      const bool in_place =
          i == 0 && &arg == &instruction.args.front() && works_in_place(instruction.op);
      if (arg.kind == ArgKind::Tensor && arg.i == id && !in_place) return true;
      if (arg.kind == ArgKind::Tensors && std::ranges::count(arg.ints, id) > 0) return true;
    }
  }
  return false;
}

// Numbers of ordinary size, indices that are often right, or any bits at all.
void fill(std::byte* begin, int64_t bytes, base::DType dtype, size_t how, std::mt19937& random) {
  const int64_t width = base::byte_size(dtype);
  for (int64_t at = 0; at + width <= bytes; at += width) {
    const uint64_t bits = static_cast<uint64_t>(random()) << 32 | random();
    const double real = static_cast<double>(static_cast<int32_t>(bits)) * 0x1p-30;
    const float narrow = static_cast<float>(real);
    if (how == 3) {
      std::memcpy(begin + at, &bits, static_cast<size_t>(width));
    } else if (dtype == base::DType::F64) {
      std::memcpy(begin + at, &real, sizeof(real));
    } else if (dtype == base::DType::F32) {
      std::memcpy(begin + at, &narrow, sizeof(narrow));
    } else if (base::is_floating(dtype)) {  // of bf16 the upper half; of f16 any number
      const auto half = static_cast<uint16_t>(bits % 0x7c00);
      std::memcpy(begin + at, &half, sizeof(half));
    } else {
      const int64_t index = static_cast<int64_t>(bits % (how == 2 ? 8 : 3));
      std::memcpy(begin + at, &index, static_cast<size_t>(width));
    }
  }
}

class Run {
 public:
  Run(const KernelInstruction& instruction, Choices& choices) : instruction_(instruction) {
    static KernelMemory memory;
    memory_ = &memory;
    plan_.mesh = {{"dp", 2}, {"tp", 2}};
    plan_.arena_bytes = {int64_t{1} << 40};
    rank_ = static_cast<int>(choices.below(4));
    contents_ = choices.below(4);
    random_.seed(static_cast<uint32_t>(choices.below(256)));
    for (size_t i = 0; i < instruction.tensors.size(); ++i) add(i, choices);
    step_.kind = runtime::plan::InstructionKind::Kernel;
    step_.provider = instruction.op == "dc.fused" ? runtime::plan::Provider::Fused
                                                  : runtime::plan::Provider::Native;
    step_.op = instruction.op;
    step_.args = instruction.args;
    step_.outputs = instruction.outputs;
    find_writable();
  }

  KernelOutcome run(Choices& choices) {
    static const auto provider = runtime::kernel::make_native_provider();
    KernelOutcome outcome;
    const auto needed = provider->measure_scratch(step_, addresses());
    const int64_t bytes = needed.ok() ? *needed : 0;
    if (bytes < 0) fail(instruction_, "the kernel asks for negative scratch");
    const bool has_scratch = bytes > 0 && bytes <= KernelMemory::kScratch;
    if (has_scratch) add_scratch(bytes);
    const bool too_little = has_scratch && choices.one_in(8);
    if (too_little) plan_.slices.back().bytes -= 1;
    auto kernel = provider->prepare(step_, addresses());
    outcome.error = kernel.status().ok() ? "" : kernel.status().to_string();
    if (needed.ok() != kernel.ok() && bytes == 0)
      fail(instruction_, "measured and prepared differ");
    if (!kernel.ok()) return outcome;
    if (too_little || (bytes > 0 && !has_scratch))
      fail(instruction_, "the kernel was prepared without its scratch");
    outcome.prepared = true;
    if (!is_small(instruction_)) return outcome;
    outcome.launched = true;
    const base::Status status = launch(**kernel);
    outcome.failed = !status.ok();
    if (outcome.failed) outcome.error = status.to_string();
    return outcome;
  }

 private:
  runtime::kernel::AddressMap addresses() const {
    return runtime::kernel::AddressMap(plan_, memory_->data(), rank_);
  }

  void add(size_t index, Choices& choices) {
    runtime::plan::Tensor tensor = instruction_.tensors[index];
    const int64_t bytes = runtime::plan::reach_bytes(tensor).value_or(0);
    const int64_t begin = KernelMemory::place(index, bytes, !choices.one_in(3));
    tensor.slice = static_cast<int32_t>(plan_.slices.size());
    plan_.slices.push_back({runtime::plan::Space::Device, begin, bytes, -1, 0, 0});
    plan_.tensors.push_back(tensor);
    parts_.push_back(KernelMemory::part(index, begin, bytes));
  }

  void add_scratch(int64_t bytes) {
    const int64_t begin = KernelMemory::place_scratch(bytes);
    step_.scratch = static_cast<int32_t>(plan_.slices.size());
    plan_.slices.push_back({runtime::plan::Space::Device, begin, bytes, -1, 0, 0});
    parts_.push_back(KernelMemory::scratch_part(begin, bytes));
  }

  // By the verifier's table.
  void find_writable() {
    writable_.assign(plan_.tensors.size(), false);
    const auto mark = [&](int64_t id) {
      if (id >= 0) writable_[static_cast<size_t>(id)] = true;
    };
    for (const int32_t id : step_.outputs) mark(id);
    for (const auto& row : runtime::verify::native_kernels()) {
      if (row.op != step_.op) continue;
      for (size_t i = 0; i < std::min(row.operands.size(), step_.args.size()); ++i)
        if (row.operands[i] != 'r' && step_.args[i].kind == ArgKind::Tensor) mark(step_.args[i].i);
    }
  }

  base::Status launch(runtime::kernel::Kernel& kernel) {
    std::vector<Bytes> before;
    for (size_t i = 0; i < parts_.size(); ++i) {
      memory_->open(parts_[i]);
      std::byte* begin = memory_->data() + parts_[i].begin;
      const auto dtype = i < plan_.tensors.size() ? plan_.tensors[i].dtype : base::DType::U8;
      fill(begin, parts_[i].bytes, dtype, i < plan_.tensors.size() ? contents_ : 3, random_);
      before.emplace_back(begin, begin + parts_[i].bytes);
    }
    const auto stream = runtime::device::cpu_device().make_stream();
    base::Status status = kernel.launch(*stream);
    for (size_t i = 0; i < parts_.size(); ++i) {
      memory_->close(parts_[i]);
      if (!memory_->is_intact(parts_[i]))
        fail(instruction_, "the kernel wrote outside of its tensors");
      if (i >= plan_.tensors.size()) continue;
      if (writable_[i]) put_back(i, before[i]);
      if (!std::equal(before[i].begin(), before[i].end(), memory_->data() + parts_[i].begin))
        fail(instruction_, "the kernel wrote to an operand or between a result's elements");
    }
    return status;
  }

  // Gives the tensor's elements what they were, so that what differs still is none of them.
  void put_back(size_t index, const Bytes& before) {
    const runtime::plan::Tensor& tensor = plan_.tensors[index];
    const auto width = static_cast<size_t>(base::byte_size(tensor.dtype));
    std::byte* begin = memory_->data() + parts_[index].begin;
    std::vector<int64_t> at(tensor.sizes.size(), 0);
    for (int64_t left = base::numel(tensor.sizes); left > 0; --left) {
      int64_t place = 0;
      for (size_t dim = 0; dim < at.size(); ++dim) place += at[dim] * tensor.strides[dim];
      const size_t byte = static_cast<size_t>(place) * width;
      std::memcpy(begin + byte, before.data() + byte, width);
      for (size_t dim = at.size(); dim-- > 0;) {
        if (++at[dim] < tensor.sizes[dim]) break;
        at[dim] = 0;
      }
    }
  }

  const KernelInstruction& instruction_;
  KernelMemory* memory_;
  runtime::plan::Plan plan_;
  runtime::plan::Instruction step_;
  std::vector<KernelMemory::Part> parts_;  // of each tensor, then of scratch
  std::vector<bool> writable_;
  int rank_ = 0;
  size_t contents_ = 0;
  std::mt19937 random_;
};

}  // namespace

KernelOutcome run_kernel(const KernelInstruction& instruction, Choices& choices) {
  if (instruction.tensors.size() > KernelMemory::kWindows || has_shared_results(instruction) ||
      takes_too_much(instruction))
    return {};
  return Run(instruction, choices).run(choices);
}

KernelOutcome run_mutated(std::span<const uint8_t> bytes) {
  Choices choices(bytes);
  const size_t row = choices.below(65536) % kernel_rows().size();
  KernelInstruction instruction = parse(kernel_rows()[row]);
  mutate(instruction, choices);
  if (!fit(instruction, KernelMemory::kWindow)) return {};
  return run_kernel(instruction, choices);
}

}  // namespace dc::fuzz
