#include "runtime/checkpoint/sealed_json.h"

#include <charconv>

#include "src/base/sha256.h"

namespace dc::runtime::checkpoint {
namespace {

using base::ErrorKind;
using base::JsonValue;
using base::Result;
using base::Status;

std::string opening(const SealedFormat& format) {
  return R"({"format":")" + std::string(format.name) + R"(","version":)";
}

std::string digest_line(std::string_view rest) {
  return R"(,"sha256":")" + base::sha256_hex(rest) + "\",\n";
}

Status damaged(const std::string& path, const std::string& what) {
  return Status(ErrorKind::BadInput, "DC6801",
                path + " " + what + "; it is damaged or not of a checkpoint");
}

}  // namespace

std::string seal(const SealedFormat& format, std::string_view body) {
  const std::string rest = "\"body\":" + std::string(body) + "}\n";
  return opening(format) + std::to_string(format.version) + digest_line(rest) + rest;
}

Result<JsonValue> unseal(const SealedFormat& format, std::string_view text,
                         const std::string& path) {
  const std::string start = opening(format);
  if (!text.starts_with(start)) {
    return damaged(path, "does not begin as a file of format " + std::string(format.name));
  }
  int version = 0;
  const char* digits = text.data() + start.size();
  const auto [end, error] = std::from_chars(digits, text.data() + text.size(), version);
  const size_t head = static_cast<size_t>(end - text.data());
  const size_t line = text.find('\n', head);
  if (error != std::errc() || line == std::string_view::npos || version < 1) {
    return damaged(path, "has no whole first line");
  }
  if (version > format.version) {
    return Status(ErrorKind::Mismatch, "DC6802",
                  path + " has version " + std::to_string(version) + " of format " +
                      std::string(format.name) + ", this program reads up to version " +
                      std::to_string(format.version) + "; use the newer program that wrote it");
  }
  const std::string_view rest = text.substr(line + 1);
  if (text.substr(head, line + 1 - head) != digest_line(rest)) {
    return damaged(path, "does not match its own SHA-256");
  }
  DC_ASSIGN_OR_RETURN(JsonValue document, base::parse_json_value(text, path));
  DC_ASSIGN_OR_RETURN(const JsonValue* body, document.require("body"));
  return *body;
}

}  // namespace dc::runtime::checkpoint
