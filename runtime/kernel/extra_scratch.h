// Scratch beyond the plan's: for a CPU whose kernels need more than the one the plan was made for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "runtime/kernel/kernel.h"

namespace dc::runtime::kernel {

// One block of memory per stream: kernels of a stream run one after the other.
class ExtraScratch {
 public:
  ExtraScratch() = default;
  ~ExtraScratch();
  ExtraScratch(const ExtraScratch&) = delete;
  ExtraScratch& operator=(const ExtraScratch&) = delete;

  using NeededBytes = std::function<base::Result<int64_t>(const plan::Instruction&)>;
  // Takes what the plan's kernels of this provider need at most beyond the plan, once. Those whose
  // need is an error are left out: preparing them says why. OutOfMemory (80), DC6118.
  base::Result<MissingScratch> take_missing(const plan::Plan& plan, plan::Provider provider,
                                            const NeededBytes& needed);

  struct Block {
    std::byte* data;
    int64_t bytes;
  };
  const std::map<int32_t, Block>& blocks() const { return blocks_; }  // by stream
  // Null where the stream has no block of at least so many bytes.
  std::byte* find(int32_t stream, int64_t bytes) const;

 private:
  std::map<int32_t, Block> blocks_;
};

// Bytes of scratch that the plan has for a kernel.
int64_t planned_scratch(const plan::Plan& plan, const plan::Instruction& kernel);
// The kernel needs more than planned, and there is no extra block: OutOfMemory (80), DC6115.
base::Status too_little_scratch(const plan::Plan& plan, const plan::Instruction& kernel,
                                int64_t needed);

}  // namespace dc::runtime::kernel
