// A content-addressed store of compiled plans.
//
// Two levels. `direct/<key>` maps the digest of the raw archive entries (weights excluded) and
// everything else that decides a plan to the key of the plan; it answers without reading the graph.
// `plans/<key>.entry` holds plans under the digest of the canonical graph, so a re-exported file
// with other names in it still hits. An entry starts with a line that ties the plan behind it to
// this key; that line, the plan's own digest and its meaning are checked at every read, and a bad
// entry is moved to `quarantine/`. Writes go to a temporary, are flushed and renamed: readers never
// see half an entry. Nothing here makes a result differ, only faster.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"
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
  int64_t last_used = 0;  // nanoseconds since 1970
};

struct Found {
  std::string bytes;  // of the plan file
  runtime::plan::Plan plan;
};

class PlanCache {
 public:
  // $DCC_CACHE_DIR, else $XDG_CACHE_HOME/dcc, else $HOME/.cache/dcc, else empty (no cache).
  static std::string default_directory();
  explicit PlanCache(std::string directory) : directory_(std::move(directory)) {}

  bool enabled() const { return !directory_.empty(); }
  std::optional<std::string> find_direct(const std::string& direct_key) const;  // the plan key
  // The plan stored under this key, verified (levels 0 to 3). A bad entry is set aside and
  // `warning` says so.
  std::optional<Found> find_plan(const std::string& plan_key, std::string& warning) const;
  base::Status store(const std::string& direct_key, const std::string& plan_key,
                     const std::string& plan_file) const;
  base::Result<std::vector<Entry>> list() const;  // by key
  // Removes the least recently used plans above `keep` bytes, what points to them and what was set
  // aside; how many plans.
  base::Result<int> collect(base::Bytes keep) const;

 private:
  std::string path(const char* folder, const std::string& name) const;
  std::string plan_path(const std::string& key) const { return path("plans", key + ".entry"); }
  void set_aside(const std::string& plan_key) const;
  void remove_dangling() const;
  std::string directory_;
};

}  // namespace dc::cache
