// Plan files: encode, decode, verify. FlatBuffers types never leave the .cpp files.
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
// Level 2 (meaning): ids, shapes, overflow, bounds of every slice, every read has a write before
// it, no two live slices overlap. Level 3: streams that share bytes wait for each other. Checks
// level 1's ids and counts again, so that it may be called on any plan. README.md lists the codes.
base::Status verify_meaning(const Plan& plan);
// Maps the file, decodes, verifies levels 0 to 3. MissingInput or Io when it cannot be read.
struct Loaded {
  Plan plan;
  std::string digest;
};  // digest: SHA-256 of the payload, hex
base::Result<Loaded> load(const std::string& path);

}  // namespace dc::runtime::plan
