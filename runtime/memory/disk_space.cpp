#include "runtime/memory/disk_space.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/plan/mesh.h"
#include "src/base/file.h"
#include "src/base/text.h"
#include "src/base/xxh64.h"

namespace dc::runtime::memory {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

constexpr int64_t kBlock = 256 << 10;

int64_t bytes_of(const plan::Tensor& tensor) {
  int64_t count = 1;
  for (int64_t size : tensor.sizes) count *= size;
  return count * base::byte_size(tensor.dtype);
}

// A file that no folder lists, so that it goes with its last descriptor. Where the file system
// cannot make one, it has a name for an instant.
int make_nameless(const std::string& folder) {
  const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file;
  std::string name = folder + "/.dcrun-offload-XXXXXX";
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) unlink(name.c_str());
  return named;
}

}  // namespace

Result<std::unique_ptr<DiskSpace>> DiskSpace::create(const plan::Plan& plan, int rank,
                                                     const std::string& folder) {
  const int64_t bytes = plan.arena_bytes[static_cast<size_t>(plan::Space::Disk)];
  const int file = make_nameless(folder);
  if (file < 0) {
    return Status(ErrorKind::CannotWrite, "DC6702",
                  "--offload-dir " + folder + ": no file can be made there (" +
                      std::strerror(errno) + "); choose a folder that exists and is writable");
  }
  std::unique_ptr<DiskSpace> space(new DiskSpace(plan, rank, file));
  if (const int error = base::take_room(file, bytes); error != 0) {
    return Status(ErrorKind::CannotWrite, "DC6703",
                  "--offload-dir " + folder + ": there is no room for the " +
                      std::to_string(bytes) + " bytes (" + base::format_bytes(bytes) +
                      ") that this rank offloads (" + std::strerror(error) +
                      "); free space, choose another folder, or compile with a smaller "
                      "--disk-memory");
  }
  space->cut_into_blocks();
  return space;
}

DiskSpace::~DiskSpace() { close(file_); }

int64_t DiskSpace::start_of(const plan::Tensor& tensor) const {
  return plan_.slices[static_cast<size_t>(tensor.slice)].offset + tensor.offset +
         plan::rank_offset(plan_, tensor, rank_);
}

void DiskSpace::cut_into_blocks() {
  std::vector<std::vector<int64_t>> cuts(plan_.slices.size());  // in the file
  for (size_t s = 0; s < plan_.slices.size(); ++s) {
    const plan::Slice& slice = plan_.slices[s];
    if (slice.space == plan::Space::Disk) cuts[s] = {slice.offset, slice.offset + slice.bytes};
  }
  for (const plan::Tensor& tensor : plan_.tensors) {
    std::vector<int64_t>& of_slice = cuts[static_cast<size_t>(tensor.slice)];
    if (of_slice.empty()) continue;
    of_slice.push_back(start_of(tensor));
    of_slice.push_back(start_of(tensor) + bytes_of(tensor));
  }
  const std::vector<std::byte> zeros(kBlock);
  for (size_t s = 0; s < cuts.size(); ++s) {
    first_block_.push_back(blocks_.size());
    std::sort(cuts[s].begin(), cuts[s].end());
    for (size_t i = 1; i < cuts[s].size(); ++i) {
      for (int64_t at = cuts[s][i - 1]; at < cuts[s][i]; at += kBlock) {
        Block block{at, std::min(kBlock, cuts[s][i] - at)};
        block.is_written = plan_.slices[s].program < 0;
        if (block.is_written)
          block.checksum = base::xxh64({zeros.data(), static_cast<size_t>(block.bytes)});
        blocks_.push_back(block);
      }
    }
  }
  first_block_.push_back(blocks_.size());
  one_block_.resize(kBlock);
}

DiskSpace::Extent DiskSpace::extent(int32_t id) const {
  const plan::Tensor& tensor = plan_.tensors[static_cast<size_t>(id)];
  const auto slice = static_cast<size_t>(tensor.slice);
  const auto block_at = [&](int64_t offset) {
    const auto from = blocks_.begin() + static_cast<ptrdiff_t>(first_block_[slice]);
    const auto to = blocks_.begin() + static_cast<ptrdiff_t>(first_block_[slice + 1]);
    const auto found =
        std::partition_point(from, to, [&](const Block& block) { return block.offset < offset; });
    return static_cast<size_t>(found - blocks_.begin());
  };
  const int64_t start = start_of(tensor);
  return {id, block_at(start), block_at(start + bytes_of(tensor))};
}

Status DiskSpace::write(const Extent& extent, const std::byte* from) {
  for (size_t i = extent.first; i < extent.last; ++i) {
    DC_RETURN_IF_ERROR(write_block(blocks_[i], extent.tensor, from));
    from += blocks_[i].bytes;
  }
  return base::ok_status();
}

Status DiskSpace::read(const Extent& extent, std::byte* to) const {
  for (size_t i = extent.first; i < extent.last; ++i) {
    DC_RETURN_IF_ERROR(read_block(blocks_[i], extent.tensor, to));
    to += blocks_[i].bytes;
  }
  return base::ok_status();
}

Status DiskSpace::write_part(int32_t tensor, int64_t first, std::span<const std::byte> bytes) {
  const Extent all = extent(tensor);
  int64_t at = 0;  // offset of the block in the tensor
  for (size_t i = all.first; i < all.last; at += blocks_[i++].bytes) {
    const int64_t from = std::max(first, at);
    const int64_t to = std::min(first + static_cast<int64_t>(bytes.size()), at + blocks_[i].bytes);
    if (from >= to) continue;
    const bool whole = to - from == blocks_[i].bytes;
    if (!whole) DC_RETURN_IF_ERROR(read_block(blocks_[i], tensor, one_block_.data()));
    std::memcpy(one_block_.data() + (from - at), bytes.data() + (from - first),
                static_cast<size_t>(to - from));
    DC_RETURN_IF_ERROR(write_block(blocks_[i], tensor, one_block_.data()));
  }
  return base::ok_status();
}

Status DiskSpace::read_part(int32_t tensor, int64_t first, std::span<std::byte> bytes) {
  const Extent all = extent(tensor);
  int64_t at = 0;
  for (size_t i = all.first; i < all.last; at += blocks_[i++].bytes) {
    const int64_t from = std::max(first, at);
    const int64_t to = std::min(first + static_cast<int64_t>(bytes.size()), at + blocks_[i].bytes);
    if (from >= to) continue;
    DC_RETURN_IF_ERROR(read_block(blocks_[i], tensor, one_block_.data()));
    std::memcpy(bytes.data() + (from - first), one_block_.data() + (from - at),
                static_cast<size_t>(to - from));
  }
  return base::ok_status();
}

void DiskSpace::forget(int32_t slice) {
  const auto id = static_cast<size_t>(slice);
  for (size_t i = first_block_[id]; i < first_block_[id + 1]; ++i) blocks_[i].is_written = false;
}

Status DiskSpace::write_block(Block& block, int32_t tensor, const std::byte* from) {
  block.checksum = base::xxh64({from, static_cast<size_t>(block.bytes)});
  for (int64_t done = 0; done < block.bytes;) {
    const ssize_t count =
        pwrite(file_, from + done, static_cast<size_t>(block.bytes - done), block.offset + done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return failed("writing", tensor, count < 0 ? errno : ENOSPC);
    done += count;
  }
  block.is_written = true;
  return base::ok_status();
}

Status DiskSpace::read_block(const Block& block, int32_t tensor, std::byte* to) const {
  const std::string& name = plan_.tensors[static_cast<size_t>(tensor)].name;
  if (!block.is_written) {
    return Status(
        ErrorKind::Internal, "DC6706",
        "'" + name + "' is reloaded from disk before it was offloaded; please report this");
  }
  for (int64_t done = 0; done < block.bytes;) {
    const ssize_t count =
        pread(file_, to + done, static_cast<size_t>(block.bytes - done), block.offset + done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return failed("reading", tensor, count < 0 ? errno : EIO);
    done += count;
  }
  if (base::xxh64({to, static_cast<size_t>(block.bytes)}) == block.checksum)
    return base::ok_status();
  return Status(ErrorKind::Io, "DC6705",
                "'" + name +
                    "' came back from disk damaged: its checksum does not match what was "
                    "offloaded; check the disk, or choose another --offload-dir");
}

Status DiskSpace::failed(const char* what, int32_t tensor, int error) const {
  return Status(ErrorKind::Io, "DC6704",
                std::string(what) + " the offloaded '" +
                    plan_.tensors[static_cast<size_t>(tensor)].name + "' failed: " +
                    std::strerror(error) + "; check the disk, or choose another --offload-dir");
}

}  // namespace dc::runtime::memory
