// RankFiles: what one rank writes into a checkpoint: its shard, its ranges of model.safetensors,
// and the manifest that says where everything is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/index.h"
#include "runtime/checkpoint/state_parts.h"
#include "runtime/checkpoint/weights_file.h"
#include "src/base/archive/safetensors.h"
#include "src/base/file.h"
#include "src/base/xxh64.h"

namespace dc::runtime::checkpoint {

class RankFiles {
 public:
  // Creates this rank's file in `folder`, which is empty; rank 0 also makes model.safetensors.
  // `parts`: from parts_to_save(); all ranks have the same parts, with other ranges. Call open()
  // after a barrier: when every rank has returned from create().
  static base::Result<RankFiles> create(const std::string& folder,
                                        const std::vector<StatePart>& parts,
                                        const TensorFile::Metadata& metadata, int rank, int world);
  // Opens what rank 0 made.
  base::Status open();

  // The next bytes of a part. Parts may take turns; one thread at a time.
  base::Status append(size_t part, std::span<const std::byte> bytes);
  // Everything reaches the disk, the manifest last. Its SHA-256.
  base::Result<std::string> finish();

 private:
  struct Target {
    Piece piece;
    bool is_shared = false;  // in model.safetensors
    int64_t offset = 0;      // of the piece in its file
    int64_t written = 0;     // bytes
    base::Xxh64 checksum;
  };
  using Layout = base::archive::SafetensorsLayout;
  RankFiles(std::string folder, int rank, int world)
      : folder_(std::move(folder)), rank_(rank), world_(world) {}
  base::Result<Layout> place_shared(const TensorFile::Metadata& metadata,
                                    const std::vector<FileTensor>& tensors);
  base::Result<Layout> place_own();
  base::Result<base::OutputFile> make(const std::string& name, const Layout& layout);

  std::string folder_;
  int rank_, world_;
  std::vector<Target> targets_;                 // by part
  std::vector<base::OutputFile> shared_, own_;  // at most one each
  std::vector<RankManifest::File> made_;
};

}  // namespace dc::runtime::checkpoint
