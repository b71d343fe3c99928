// CheckpointReader: any range of any value of a checkpoint, whichever ranks wrote its pieces.
//
// A piece is compared with its checksum before anything of it is used, and a file's size and header
// with what its writer noted. Files are mapped when first needed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/checkpoint/index.h"
#include "src/base/archive/safetensors.h"

namespace dc::runtime::checkpoint {

class CheckpointReader {
 public:
  // Reads index and manifests of the folder `path`. BadInput (65) naming the file that is damaged,
  // MissingInput (66) one that is not there, Mismatch (76) one of a newer format.
  static base::Result<std::unique_ptr<CheckpointReader>> open(const std::string& path);
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;

  const std::string& path() const { return path_; }
  const RunState& run() const { return index_.run; }

  struct Value {
    base::DType dtype = base::DType::F32;
    std::vector<int64_t> sizes;
  };
  const Value* find(const ValueId& id) const;  // null if absent
  std::vector<ValueId> values() const;         // sorted

  // Elements [first, first + count) of a value that is there, in row-major order and its own dtype.
  // BadInput (65) naming the file and the tensor if they are not what was written.
  base::Status read(const ValueId& id, int64_t first, int64_t count, std::byte* out);
  // Every byte of it.
  base::Status verify();

 private:
  struct Stored {
    Piece piece;
    bool is_checked = false;
  };
  struct Data {
    RankManifest::File wanted;
    bool is_open = false;
    std::vector<base::archive::SafetensorsFile> file;  // at most one
  };
  struct Entry {
    Value value;
    std::vector<Stored> pieces;  // by `first`; together the whole value
  };
  explicit CheckpointReader(std::string path) : path_(std::move(path)) {}
  base::Status add(const RankManifest& manifest, const std::string& file);
  base::Status check_coverage();
  base::Result<const base::archive::SafetensorsFile*> data(const std::string& file);
  // The bytes of a piece, once they are known to be right.
  base::Result<const std::byte*> checked(Stored& stored);
  base::Status damaged(const std::string& file, const std::string& what) const;

  std::string path_;
  CheckpointIndex index_;
  std::map<std::string, Data> files_;
  std::map<ValueId, Entry> entries_;
};

}  // namespace dc::runtime::checkpoint
