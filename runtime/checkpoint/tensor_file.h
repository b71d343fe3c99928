// TensorFile: a safetensors file that all ranks write together, each its own ranges.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/kernel/kernel.h"
#include "src/base/file.h"
#include "src/base/status.h"

namespace dc::runtime::checkpoint {

struct FileTensor {
  std::string name;
  base::DType dtype = base::DType::F32;
  std::vector<int64_t> sizes;
  int64_t numel() const;
};

class TensorFile {
 public:
  using Metadata = std::map<std::string, std::string>;

  // Collective. Rank 0 creates a temporary file next to `path` and writes the header.
  static base::Result<TensorFile> create(const std::string& path, std::vector<FileTensor> tensors,
                                         const Metadata& metadata, comm::Communicator& control);
  // Writes elements from `first` on of the tensor `name`, which is one of the file's: bytes of its
  // own dtype.
  base::Status write_bytes(const std::string& name, int64_t first,
                           std::span<const std::byte> bytes);
  // Collective: everything reaches the disk, then the file appears under its name, unless `mine` or
  // any rank's writing failed.
  base::Status finish(base::Status mine);

 private:
  TensorFile(base::OutputFile file, comm::Communicator& control)
      : file_(std::move(file)), control_(&control) {}

  base::OutputFile file_;
  comm::Communicator* control_;
  std::vector<FileTensor> tensors_;
  std::unordered_map<std::string, size_t> by_name_;  // lookups only
  std::vector<int64_t> offsets_;                     // of each tensor, from the start of the file
};

}  // namespace dc::runtime::checkpoint
