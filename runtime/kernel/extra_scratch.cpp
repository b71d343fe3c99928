#include "runtime/kernel/extra_scratch.h"

#include <sys/mman.h>

#include <algorithm>

namespace dc::runtime::kernel {

ExtraScratch::~ExtraScratch() {
  for (const auto& [stream, block] : blocks_) munmap(block.data, static_cast<size_t>(block.bytes));
}

base::Result<MissingScratch> ExtraScratch::take_missing(const plan::Plan& plan,
                                                        plan::Provider provider,
                                                        const NeededBytes& needed) {
  MissingScratch missing;
  std::map<int32_t, int64_t> streams;  // bytes of the block of each
  for (const plan::Program& program : plan.programs) {
    for (const plan::Instruction& kernel : program.instructions) {
      if (kernel.kind != plan::InstructionKind::Kernel || kernel.provider != provider) continue;
      const base::Result<int64_t> bytes = needed(kernel);
      const int64_t planned = planned_scratch(plan, kernel);
      if (!bytes.ok() || *bytes <= planned) continue;
      int64_t& block = streams[kernel.stream];
      block = std::max(block, *bytes);
      if (*bytes - planned <= missing.needed - missing.planned) continue;
      missing.op = kernel.op;
      missing.needed = *bytes;
      missing.planned = planned;
    }
  }
  for (const auto& [stream, bytes] : streams) {
    void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      return base::Status(base::ErrorKind::OutOfMemory, "DC6118",
                          "there is no memory for " + std::to_string(bytes) +
                              " bytes of scratch that '" + missing.op +
                              "' needs beyond the plan; profile the model on this machine with "
                              "dcc profile and compile with --profile");
    }
    blocks_[stream] = {static_cast<std::byte*>(data), bytes};
    missing.bytes += bytes;
  }
  return missing;
}

std::byte* ExtraScratch::find(int32_t stream, int64_t bytes) const {
  const auto found = blocks_.find(stream);
  return found == blocks_.end() || found->second.bytes < bytes ? nullptr : found->second.data;
}

int64_t planned_scratch(const plan::Plan& plan, const plan::Instruction& kernel) {
  return kernel.scratch < 0 ? 0 : plan.slices[static_cast<size_t>(kernel.scratch)].bytes;
}

base::Status too_little_scratch(const plan::Plan& plan, const plan::Instruction& kernel,
                                int64_t needed) {
  base::Status status(base::ErrorKind::OutOfMemory, "DC6115",
                      "'" + kernel.op + "' needs " + std::to_string(needed) +
                          " bytes of scratch memory, but the plan has " +
                          std::to_string(planned_scratch(plan, kernel)) +
                          "; profile the model with dcc profile and compile with --profile");
  if (!kernel.module.empty()) status.add_context("in module " + kernel.module);
  return status;
}

}  // namespace dc::runtime::kernel
