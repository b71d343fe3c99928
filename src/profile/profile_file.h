// prof.json: the measurements of `dcc profile` as a file. Schema: schemas/profile.schema.json.
#pragma once

#include <string>

#include "src/base/measurements.h"
#include "src/base/status.h"

namespace dc::profile {

inline constexpr int kProfileVersion = 2;

struct Profile {
  base::Measurements measurements;
  std::string digest;  // SHA-256 of the file
};

std::string to_json(const base::Measurements& measurements);  // stable: same records, same text
// BadInput (65) with line and cause; Mismatch (76) for another version.
base::Result<Profile> parse_profile(const std::string& text, const std::string& what);
base::Result<Profile> read_profile(const std::string& path);
base::Status write_profile(const std::string& path, const base::Measurements& measurements);

}  // namespace dc::profile
