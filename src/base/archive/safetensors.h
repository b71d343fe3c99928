// safetensors files: reader over a mapping, and the layout a group of writers fills together.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/dtype.h"
#include "src/base/file.h"
#include "src/base/status.h"

namespace dc::base::archive {

struct SafeTensor {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  int64_t offset = 0;  // bytes from the start of the file
  int64_t bytes = 0;
};

class SafetensorsFile {
 public:
  // Refuses duplicate names, ranges with holes or overlap, sizes that contradict shape and dtype.
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<SafeTensor>& tensors() const { return tensors_; }  // by offset, then name
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const SafeTensor* find(std::string_view name) const;  // null if absent
  std::span<const uint8_t> bytes(const SafeTensor& tensor) const;

 private:
  SafetensorsFile() = default;
  MappedFile file_;
  std::vector<SafeTensor> tensors_;
  std::unordered_map<std::string, size_t> by_name_;  // lookups only
  std::map<std::string, std::string> metadata_;
};

// What a file with these tensors looks like, before any data exists. A pure function of its
// arguments: every rank computes it, one creates the file with `file_bytes` bytes
// (OutputFile::create), writes `header` at 0 and commits when all have written their ranges.
struct SafetensorsLayout {
  std::string header;               // the file's first bytes
  std::vector<SafeTensor> tensors;  // in the order given, with file offsets
  int64_t file_bytes = 0;
};
// `tensors` needs name, dtype and shape.
Result<SafetensorsLayout> layout_safetensors(std::vector<SafeTensor> tensors,
                                             const std::map<std::string, std::string>& metadata);

}  // namespace dc::base::archive
