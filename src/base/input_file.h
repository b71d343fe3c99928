// A regular file read by position, for data that another program might cut short meanwhile.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "src/base/status.h"

namespace dc::base {

class InputFile {
 public:
  // MissingInput (66) if it is not there, BadInput (65) if it is no regular file.
  static Result<InputFile> open(const std::string& path);
  InputFile() = default;
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // bytes, when it was opened

  // Fills `out` with the bytes from `offset` on; Io (74) if the file no longer has them. Threads
  // may read at the same time.
  Status read_at(int64_t offset, std::span<uint8_t> out) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

}  // namespace dc::base
