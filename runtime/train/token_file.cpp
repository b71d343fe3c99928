#include "runtime/train/token_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace dc::runtime::train {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

constexpr std::array<TokenType, 3> kTypes = {TokenType::I64, TokenType::U32, TokenType::U16};
constexpr size_t kLook = 4096;         // bytes that are looked at
constexpr size_t kFewestToJudge = 64;  // numbers; fewer prove nothing

bool exists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

// A safetensors file begins with the size of its header, which is JSON.
bool is_safetensors(std::span<const uint8_t> bytes, int64_t size) {
  uint64_t header = 0;
  if (bytes.size() < sizeof header + 2) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header <= static_cast<uint64_t>(size) - sizeof header && bytes[8] == '{' &&
         bytes[9] == '"';
}

bool is_text(std::span<const uint8_t> bytes) {
  return bytes.size() >= 2 * kFewestToJudge &&
         std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) {
           return (b >= 0x20 && b < 0x7f) || b == '\n' || b == '\r' || b == '\t';
         });
}

// Whether of every `wide` bytes all but the first `narrow` are zero, and not all of those.
bool is_wider(std::span<const uint8_t> bytes, size_t narrow, size_t wide) {
  bool has_low = false;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i % wide < narrow) {
      has_low = has_low || bytes[i] != 0;
    } else if (bytes[i] != 0) {
      return false;
    }
  }
  return has_low && bytes.size() >= wide * kFewestToJudge;
}

// The types of which the file could hold a whole number.
std::string other_types(const std::string& path, int64_t size) {
  if (size % 2 != 0) {
    return ", nor of any other type; make it again: it is cut off, or holds no tokens";
  }
  std::string text = "; name the right type: " + path + ":uint16";
  if (size % 4 == 0) text += " or " + path + ":uint32";
  return text + ", or make it again if it is cut off";
}

}  // namespace

std::string_view name(TokenType type) {
  switch (type) {
    case TokenType::U16:
      return "uint16";
    case TokenType::U32:
      return "uint32";
    case TokenType::I64:
      return "int64";
  }
  return "";
}

int64_t byte_size(TokenType type) { return int64_t{2} << static_cast<int>(type); }

Result<TokenFile> TokenFile::open(const std::string& text) {
  TokenFile file;
  std::string path = text;
  const size_t colon = text.rfind(':');
  if (colon != std::string::npos && !exists(text)) {
    const std::string element = text.substr(colon + 1);
    const auto type = std::find_if(kTypes.begin(), kTypes.end(),
                                   [&element](TokenType t) { return name(t) == element; });
    if (type == kTypes.end()) {
      return Status(ErrorKind::Usage, "DC6203",
                    "--data " + text + ": unknown element type '" + element +
                        "'; use uint16, uint32 or int64");
    }
    file.type_ = *type;
    path = text.substr(0, colon);
  }
  DC_ASSIGN_OR_RETURN(file.file_, base::InputFile::open(path));
  DC_RETURN_IF_ERROR(file.check_looks());
  const int64_t size = file.file_.size(), bytes = byte_size(file.type_);
  if (size % bytes != 0) {
    return Status(ErrorKind::BadInput, "DC6215",
                  path + ": " + std::to_string(size) + " bytes are no whole number of " +
                      std::string(name(file.type_)) + " tokens" + other_types(path, size));
  }
  file.tokens_ = size / bytes;
  return file;
}

Status TokenFile::check_looks() const {
  std::vector<uint8_t> bytes(static_cast<size_t>(std::min<int64_t>(kLook, file_.size())));
  DC_RETURN_IF_ERROR(file_.read_at(0, bytes));
  const auto refuse = [this](const char* what) {
    return Status(ErrorKind::BadInput, "DC6217", path() + " " + what);
  };
  constexpr std::string_view kNumpy = "\x93NUMPY";
  if (bytes.size() >= kNumpy.size() && std::memcmp(bytes.data(), kNumpy.data(), kNumpy.size()) == 0)
    return refuse("is a NumPy file with a header; write the plain numbers with array.tofile()");
  if (is_safetensors(bytes, file_.size()))
    return refuse("is a safetensors file; give it the suffix .safetensors");
  if (is_text(bytes)) {
    return refuse(
        "is text, not token numbers; tokenise it first and write the numbers as uint16, uint32 or "
        "int64");
  }
  const auto narrow = static_cast<size_t>(byte_size(type_));
  for (const TokenType type : kTypes) {  // the widest first: its zeros include the others'
    const auto wide = static_cast<size_t>(byte_size(type));
    if (wide <= narrow || !is_wider(bytes, narrow, wide)) continue;
    const size_t zeros = wide / narrow - 1;
    return Status(ErrorKind::BadInput, "DC6218",
                  path() + ": read as " + std::string(name(type_)) + ", " +
                      (zeros == 1 ? "every second number is"
                                  : std::to_string(zeros) + " of every " +
                                        std::to_string(zeros + 1) + " numbers are") +
                      " 0, as in a file of " + std::string(name(type)) + "; give " + path() + ":" +
                      std::string(name(type)) +
                      " (a file that does have such zeros must be written with wider numbers)");
  }
  return base::ok_status();
}

Status TokenFile::read(int64_t first, std::span<int64_t> out, std::span<uint8_t> raw) const {
  const auto bytes = static_cast<size_t>(byte_size(type_));
  const std::span<uint8_t> part = raw.first(out.size() * bytes);
  DC_RETURN_IF_ERROR(file_.read_at(first * static_cast<int64_t>(bytes), part));
  for (size_t i = 0; i < out.size(); ++i) {
    uint64_t value = 0;
    std::memcpy(&value, part.data() + i * bytes, bytes);
    out[i] = static_cast<int64_t>(value);
  }
  return base::ok_status();
}

Status check_token(const TokenFile& file, int64_t position, int64_t token, int64_t vocabulary) {
  if (token >= 0 && token < vocabulary) return base::ok_status();
  return Status(ErrorKind::BadInput, "DC6211",
                file.path() + ": token " + std::to_string(token) + " at byte " +
                    std::to_string(position * byte_size(file.type())) +
                    " is outside the vocabulary of " + std::to_string(vocabulary) +
                    "; was the file made with another tokenizer, or is its element type wrong?");
}

}  // namespace dc::runtime::train
