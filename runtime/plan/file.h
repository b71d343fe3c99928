// Plan files: encode, decode. FlatBuffers types never leave the .cpp files.
//
// File layout: 8 bytes magic "DCPLAN1\0", 32 bytes SHA-256 of the payload, 8 bytes payload size
// (little endian), the FlatBuffers payload (identifier "DCP1").
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/plan/plan.h"

namespace dc::runtime::plan {

inline constexpr std::string_view kMagic{"DCPLAN1\0", 8};
inline constexpr int64_t kHeaderBytes = 48;
inline constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

std::string encode(const Plan& plan);  // same plan, same bytes on any host; at most kMaxFileBytes
std::string seal(std::string_view payload);  // header + payload, the digest computed

// Levels 0 (digest, sizes) and 1 (structure) on the bytes; BadInput or Mismatch (schema version)
// otherwise.
base::Result<Plan> decode(std::span<const uint8_t> file);

struct Loaded {
  Plan plan;
  std::string digest;  // SHA-256 of the payload, hex
};
// Maps the file and decodes it: levels 0 and 1. MissingInput or Io when it cannot be read. To run a
// plan or report on it, load it (runtime/verify/verify.h).
base::Result<Loaded> read(const std::string& path);

}  // namespace dc::runtime::plan
