// Whether a plan may be run: memory, shapes, effects, order. README.md says what is demanded.
#pragma once

#include <string>

#include "runtime/plan/file.h"
#include "src/base/status.h"

namespace dc::runtime::verify {

// Level 2 (meaning): ids, shapes, overflow, bounds of every slice, every read has a write before
// it, no two live slices overlap. Level 3: streams that share bytes wait for each other. Checks
// level 1's ids and counts again, so that it may be called on any plan. BadInput otherwise.
base::Status verify_meaning(const plan::Plan& plan);

// Reads the file and verifies levels 0 to 3. Errors as read() and verify_meaning() give them.
base::Result<plan::Loaded> load(const std::string& path);

}  // namespace dc::runtime::verify
