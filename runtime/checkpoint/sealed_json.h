// Sealed JSON: a small document that carries the digest of its text, so that every flipped bit and
// every missing byte is noticed.
//
//   {"format":"dcc-checkpoint","version":1,"sha256":"...",
//   "body":{...}}
//
// The digest is that of all bytes behind the first line. Later versions keep this first line.
#pragma once

#include <string>
#include <string_view>

#include "src/base/json.h"
#include "src/base/status.h"

namespace dc::runtime::checkpoint {

struct SealedFormat {
  std::string_view name;
  int version = 1;
};

// `body`: the text of a JSON value.
std::string seal(const SealedFormat& format, std::string_view body);

// The body. BadInput (65) if `text` is damaged or of another format, Mismatch (76) if it is of a
// newer version. `path` names it in errors.
base::Result<base::JsonValue> unseal(const SealedFormat& format, std::string_view text,
                                     const std::string& path);

}  // namespace dc::runtime::checkpoint
