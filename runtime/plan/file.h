// Plan files: encode, decode, verify. FlatBuffers types never leave the .cpp files.
//
// File layout: 8 bytes magic "DCPLAN1\0", 32 bytes SHA-256 of the payload, 8 bytes payload size (little endian), the FlatBuffers payload (identifier "DCP1").
#pragma once

#include <span>
#include <string>

#include "runtime/plan/plan.h"

namespace dc::runtime::plan {

inline constexpr int kMaxLevel = 2;

std::string encode(const Plan& plan);  // same plan, same bytes on any host

// Levels 0 (digest, sizes) and 1 (structure) on the bytes; BadInput or Mismatch (schema version) otherwise.
base::Result<Plan> decode(std::span<const uint8_t> file);
// Level 2 (meaning): ids, shapes, overflow, bounds of every slice, every read has a write before it, no two live slices overlap.
base::Status verify_meaning(const Plan& plan);
// Maps the file, decodes, verifies levels 0 to 2.
struct Loaded { Plan plan; std::string digest; };  // digest: SHA-256 of the payload, hex
base::Result<Loaded> load(const std::string& path);

}  // namespace dc::runtime::plan
