// Compiles a case and trains its plan, all ranks as threads of this process.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/plan/file.h"
#include "tests/random/random_case.h"

namespace dc::test {

// What must not depend on the chain: losses and norms as the metrics print them, and the bytes of
// every saved tensor.
struct Numbers {
  std::vector<std::string> steps;
  std::map<std::string, std::vector<uint8_t>> tensors;
  bool operator==(const Numbers&) const = default;
};
// The first thing in which they differ; empty if none.
std::string difference(const Numbers& a, const Numbers& b);

// Encoded, decoded and verified up to level 3. `folder`: where the models lie.
base::Result<runtime::plan::Loaded> compile_case(const RandomCase& one, const std::string& folder,
                                                 int64_t reference_bytes);
// Memory is filled with NaN after its last use.
base::Result<Numbers> train_case(const RandomCase& one, const runtime::plan::Loaded& loaded,
                                 const std::string& folder);

}  // namespace dc::test
