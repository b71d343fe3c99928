// A content-addressed store of compiled plans.
//
// `plans/<key>.entry` holds a plan under the digest of the canonical graph and of everything else
// that decides a plan, so a re-exported file with other names in it still hits. An entry starts
// with a line that ties the plan behind it to this key. At every read that line, the plan's own
// digest and meaning are checked, and what the plan says about itself is compared with the request;
// a bad entry is moved to `quarantine/`. Writes go to a temporary, are flushed and renamed: readers
// never see half an entry. Nothing here makes a result differ, only faster.
#pragma once

#include <optional>
#include <string>
#include <string_view>
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
std::string key_of(const std::string& model_digest, const KeyParts& parts);

// What a plan must say about itself to answer a request.
struct Request {
  std::string model_digest, profile_digest, options, compiler;
  std::vector<std::string> notes;  // the plan's begin with these
  runtime::plan::Optimizer optimizer;
  std::vector<std::string> step_digest;
};

struct Entry {
  std::string key;
  base::Bytes bytes;
  int64_t last_used = 0;  // nanoseconds since 1970
};

struct Collected {  // how many were removed
  int plans = 0, kernels = 0;
};

struct CacheHit {
  std::string bytes;  // of the plan file
  runtime::plan::Plan plan;
};

class PlanCache {
 public:
  // An empty directory: no cache.
  explicit PlanCache(std::string directory) : directory_(std::move(directory)) {}

  bool enabled() const { return !directory_.empty(); }
  // The plan stored under this key, verified (levels 0 to 3), if it is what `request` asks for. A
  // bad entry is set aside and `warning` says so.
  std::optional<CacheHit> find(const std::string& key, const Request& request,
                               std::string& warning) const;
  base::Status store(const std::string& key, const std::string& plan_file) const;
  base::Result<std::vector<Entry>> list() const;  // by key
  // What dcrun keeps in the same folder: kernels of GPUs, by key.
  base::Result<std::vector<Entry>> list_kernels() const;
  // What the entry holds, for people; empty if it is damaged. It is not verified.
  std::optional<runtime::plan::Plan> peek(const std::string& key) const;
  // Removes the least recently used plans and kernels until the rest of both takes at most `keep`
  // bytes, and everything in quarantine.
  base::Result<Collected> collect(base::Bytes keep) const;

 private:
  base::Result<std::vector<Entry>> list(std::string_view folder, std::string_view extension) const;
  std::string path(std::string_view folder, const std::string& name) const;
  std::string plan_path(const std::string& key) const { return path("plans", key + ".entry"); }
  std::optional<std::string> set_aside(const std::string& key) const;
  std::string directory_;
};

}  // namespace dc::cache
