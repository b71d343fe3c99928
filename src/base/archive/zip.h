// Reader of ZIP containers (ZIP64 included) over a mapped file: stored and deflated entries.
//
// Made for files from strangers. Opening checks the whole directory: counts, sizes and ratios under
// limits, no two entries of one name, no name that leaves the root, no overlap, nothing outside the
// file, local headers that agree with the directory. Contents are checked by CRC when inflated, and
// on request (verify_crc) when stored, because stored entries are used in place.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/file.h"
#include "src/base/status.h"

namespace dc::base::archive {

struct ZipLimits {
  uint64_t max_entries = 1 << 20;
  uint64_t max_inflated_bytes = uint64_t{1} << 32;  // one deflated entry
  uint64_t max_total_inflated_bytes = uint64_t{1} << 33;
  uint64_t max_ratio = 400;  // of deflated entries above free_ratio_bytes
  uint64_t free_ratio_bytes = 1 << 20;
  uint64_t max_name_bytes = 4096;
};

struct ZipEntry {
  std::string name;  // as in the file, root folder included
  uint64_t size = 0;
  uint64_t packed_size = 0;
  uint64_t data_offset = 0;  // of the packed bytes in the file
  uint32_t crc = 0;
  bool deflated = false;
};

class ZipArchive {
 public:
  static Result<ZipArchive> open(const std::string& path, const ZipLimits& limits = {});

  // First path component of the first entry; empty if that entry has none.
  const std::string& root() const { return root_; }
  const std::vector<ZipEntry>& entries() const { return entries_; }  // in directory order
  const std::string& path() const { return file_.path(); }

  // An entry by its name below the root folder ("models/model.json"); null if there is none.
  const ZipEntry* find(std::string_view name) const;
  // The name without the root folder; empty for entries outside the root.
  std::string_view below_root(const ZipEntry& entry) const;

  // The bytes of a stored entry, in place; BadInput for a deflated one.
  Result<std::span<const uint8_t>> stored(const ZipEntry& entry) const;
  // A copy of the contents, CRC checked.
  Result<std::vector<uint8_t>> read(const ZipEntry& entry) const;
  Status verify_crc(const ZipEntry& entry) const;

 private:
  ZipArchive() = default;
  std::span<const uint8_t> packed(const ZipEntry& entry) const;
  Status check_crc(const ZipEntry& entry, std::span<const uint8_t> contents) const;
  MappedFile file_;
  std::vector<ZipEntry> entries_;
  std::unordered_map<std::string, size_t> by_name_;  // lookups only
  std::string root_;
};

}  // namespace dc::base::archive
