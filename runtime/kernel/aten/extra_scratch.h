// Scratch beyond the plan's: for a CPU whose kernels need more than the one the plan was made for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace dc::runtime::kernel::aten {

// One block of memory per stream: kernels of a stream run one after the other.
class ExtraScratch {
 public:
  ExtraScratch() = default;
  ~ExtraScratch();
  ExtraScratch(const ExtraScratch&) = delete;
  ExtraScratch& operator=(const ExtraScratch&) = delete;

  // False if there is no memory. Only once per stream.
  bool take(int32_t stream, int64_t bytes);
  // Null where the stream has no block of at least so many bytes.
  std::byte* find(int32_t stream, int64_t bytes) const;

 private:
  struct Block {
    std::byte* data;
    int64_t bytes;
  };
  std::map<int32_t, Block> blocks_;
};

}  // namespace dc::runtime::kernel::aten
