// The identity of an exported training step: what a plan compiled from an archive and the archive
// given for its weights must have in common.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "src/base/archive/zip.h"
#include "src/base/json_events.h"
#include "src/base/sha256.h"
#include "src/base/status.h"

namespace dc::base::archive {

// What each digest covers: nodes, types and signature of models/*.json; the bytes of all constants;
// input names, roles and labels, aliases and optimizer of extra/dcc.json.
inline constexpr std::array<std::string_view, 3> kStepParts = {"graph", "constants",
                                                               "inputs or optimizer"};
using StepDigest = std::array<std::string, 3>;  // SHA-256, hex, in the order of kStepParts

// Hashes a graph that the caller parses for itself, so that it is not parsed again.
class GraphHash {
 public:
  GraphHash();
  ~GraphHash();
  GraphHash(const GraphHash&) = delete;
  GraphHash& operator=(const GraphHash&) = delete;
  JsonEvents& events();  // those of all of one document

  // After the document. The graphs behind it may follow.
  Sha256& finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// An entry below models/ whose events `hash` has received.
struct ReadEntry {
  const ZipEntry* entry = nullptr;
  GraphHash* hash = nullptr;  // has no further use
};

// Weights, initializers, ranges of inputs, sample inputs, stack traces, names of entries and their
// order do not count: the same model with other values has the same digest. BadInput for what is
// no JSON.
Result<StepDigest> step_digest(const ZipArchive& archive, const ReadEntry& read = {});

}  // namespace dc::base::archive
