// A flat file of token numbers, read by position: a file that is cut short meanwhile is an error
// of the read, never a signal.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/input_file.h"
#include "src/base/status.h"

namespace dc::runtime::train {

enum class TokenType : uint8_t { U16, U32, I64 };  // little endian
std::string_view name(TokenType type);             // "uint16"
int64_t byte_size(TokenType type);

class TokenFile {
 public:
  // `text`: "PATH[:uint16|uint32|int64]"; uint16 if no type is given. Usage (64) for another type;
  // BadInput (65) for a file whose size or first bytes show that it holds something else.
  static base::Result<TokenFile> open(const std::string& text);

  const std::string& path() const { return file_.path(); }
  TokenType type() const { return type_; }
  int64_t tokens() const { return tokens_; }

  // Tokens [first, first + out.size()); a uint64 beyond int64 shows as negative. `raw` is scratch
  // of at least out.size() * 8 bytes. Io (74) if the file has become shorter.
  base::Status read(int64_t first, std::span<int64_t> out, std::span<uint8_t> raw) const;

 private:
  base::Status check_looks() const;  // of the first bytes
  base::InputFile file_;
  TokenType type_ = TokenType::U16;
  int64_t tokens_ = 0;
};

// BadInput unless the token, at this position of the file, is in [0, vocabulary).
base::Status check_token(const TokenFile& file, int64_t position, int64_t token,
                         int64_t vocabulary);

}  // namespace dc::runtime::train
