// Fuzz target: arbitrary bytes as an entry of the plan cache, and as a plan that was stored under a
// key. An entry is served only if it answers the request; any other is set aside, and the cache can
// be listed and cleared.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "runtime/plan/file.h"
#include "src/base/file.h"
#include "src/base/sha256.h"
#include "src/cache/plan_cache.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace dc;  // NOLINT

class Folder {
 public:
  Folder() {
    // In memory where there is such a folder: a store flushes to the disk.
    std::string name = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    name += "/dcc-cache-fuzz-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What the tests' good plan answers.
cache::Request request() {
  cache::Request request;
  request.model_digest = std::string(64, 'a');
  request.options = "zero=3 world=2";
  request.compiler = "dcc test";
  return request;
}

void look(const cache::PlanCache& cache, const std::string& key) {
  (void)cache.peek(key);
  std::string warning;
  const auto found = cache.find(key, request(), warning);
  if (found && found->plan.model_digest != request().model_digest) std::abort();
  if (!found && cache.find(key, request(), warning)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder folder;
  static const std::string key = base::sha256_hex("key");
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const cache::PlanCache cache(folder.path());
  // As a plan that somebody sealed and stored.
  if (!cache.store(key, runtime::plan::seal(bytes)).ok()) std::abort();
  look(cache, key);
  // As the whole entry.
  const std::string entry = folder.path() + "/plans/" + key + ".entry";
  if (!base::write_file_atomically(entry, bytes).ok()) std::abort();
  if (!cache.list().ok()) std::abort();
  look(cache, key);
  if (!cache.collect(base::Bytes{0}).ok()) std::abort();
  return 0;
}
