// A content-addressed store of compiled plans.
//
// Two levels. `direct/<key>` maps the digest of the raw archive entries (weights excluded) and everything else that decides a plan to the key
// of the plan; it answers without reading the graph. `plans/<key>.dcp` holds plans under the digest of the canonical graph, so a
// re-exported file with other names in it still hits. Entries carry a checksum that is verified at every read; a bad entry is moved to `quarantine/`.
// Writes go to a temporary, are flushed and renamed: readers never see half an entry. Nothing here makes a result differ, only faster.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/base/units.h"

namespace dc::cache {

// What a plan depends on, besides the model.
struct KeyParts {
  std::string profile_digest;  // empty without a profile
  std::string options;         // CompileOptions::canonical() and the training configuration
  std::string compiler;        // build id
  std::string schema_version;  // of the plan format
};
// `subject`: the archive digest (direct) or the canonical graph digest (plan).
std::string key_of(const std::string& subject, const KeyParts& parts);

struct Entry {
  std::string key;
  base::Bytes bytes;
  int64_t last_used = 0;  // seconds since 1970
};

class PlanCache {
 public:
  // $DCC_CACHE_DIR, else $XDG_CACHE_HOME/dcc, else $HOME/.cache/dcc, else empty (no cache).
  static std::string default_directory();
  explicit PlanCache(std::string directory) : directory_(std::move(directory)) {}

  std::optional<std::string> find_direct(const std::string& direct_key) const;  // the plan key
  // The plan file's bytes, verified (levels 0 to 2). A bad entry is set aside and `warning` says so.
  std::optional<std::string> find_plan(const std::string& plan_key, std::string& warning) const;
  base::Status store(const std::string& direct_key, const std::string& plan_key, const std::string& plan_file) const;
  base::Result<std::vector<Entry>> list() const;               // by key
  base::Result<int> collect(base::Bytes keep) const;            // removes the least recently used plans above `keep` bytes; how many

 private:
  std::string path(const char* folder, const std::string& name) const;
  void set_aside(const std::string& plan_key) const;
  std::string directory_;
};

}  // namespace dc::cache
