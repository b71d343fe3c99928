// DiskSpace: the arena of memory space `disk`: a file without a name, with a checksum in memory for
// every block of it.
//
// Every slice of the plan is cut into blocks, at the ends of the tensors that are copied and at
// most every 256 KiB, so that a copy always writes and reads whole blocks. What is read is checked
// against what was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"
#include "src/base/status.h"

namespace dc::runtime::memory {

class DiskSpace {
 public:
  // Makes the file in `folder` and reserves its bytes. Nothing is left there however the process
  // ends. CannotWrite (73): no such folder, no permission, no room. The plan must outlive it.
  static base::Result<std::unique_ptr<DiskSpace>> create(const plan::Plan& plan, int rank,
                                                         const std::string& folder);
  ~DiskSpace();
  DiskSpace(const DiskSpace&) = delete;
  DiskSpace& operator=(const DiskSpace&) = delete;

  // The bytes of a copied tensor that this rank sees.
  struct Extent {
    int32_t tensor = -1;
    size_t first = 0, last = 0;  // blocks [first, last)
  };
  Extent extent(int32_t tensor) const;

  // From and to memory of the extent's size. Allocate nothing. Different extents may be used by
  // different threads. Io (74), naming the tensor, when the disk fails, and when what comes back is
  // not what was written.
  base::Status write(const Extent& extent, const std::byte* from);
  base::Status read(const Extent& extent, std::byte* to) const;

  // Bytes [first, first + bytes) of a contiguous tensor: for filling the state and for saving, on
  // one thread, while nothing is copied. State starts as zeros.
  base::Status write_part(int32_t tensor, int64_t first, std::span<const std::byte> bytes);
  base::Status read_part(int32_t tensor, int64_t first, std::span<std::byte> bytes);

  // The slice is dead: reading it before it is written again is an error (Internal).
  void forget(int32_t slice);

 private:
  struct Block {
    int64_t offset = 0, bytes = 0;  // in the file
    uint64_t checksum = 0;
    bool is_written = false;
  };
  DiskSpace(const plan::Plan& plan, int rank, int file) : plan_(plan), rank_(rank), file_(file) {}
  void cut_into_blocks();
  int64_t start_of(const plan::Tensor& tensor) const;  // in the file
  base::Status write_block(Block& block, int32_t tensor, const std::byte* from);
  base::Status read_block(const Block& block, int32_t tensor, std::byte* to) const;
  base::Status failed(const char* what, int32_t tensor, int error) const;

  const plan::Plan& plan_;
  int rank_;
  int file_;
  std::vector<Block> blocks_;         // by slice, then by offset
  std::vector<size_t> first_block_;   // by slice, with one more entry for the end
  std::vector<std::byte> one_block_;  // for parts of blocks
};

}  // namespace dc::runtime::memory
