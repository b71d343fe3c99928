#include <cstdio>

#include "cli/commands/commands.h"
#include "src/base/text.h"
#include "src/cache/plan_cache.h"

namespace dc::cli {

base::Result<int64_t> parse_bytes(const std::string& text) {
  const std::optional<int64_t> bytes = base::parse_bytes(text);
  if (bytes) return *bytes;
  return base::Status(
      base::ErrorKind::Usage, "DC2802",
      "'" + text + "' is not a number of bytes; write for example 100000000, 512MiB or 2GiB");
}

base::Status run_cache_list() {
  const cache::PlanCache store(cache::PlanCache::default_directory());
  DC_ASSIGN_OR_RETURN(const std::vector<cache::Entry> entries, store.list());
  for (const cache::Entry& entry : entries) {
    std::printf("%s %10s\n", entry.key.c_str(), base::format_bytes(entry.bytes.v).c_str());
  }
  return {};
}

base::Status run_cache_collect(const CacheArguments& arguments) {
  DC_ASSIGN_OR_RETURN(const int64_t keep, parse_bytes(arguments.keep));
  const cache::PlanCache store(cache::PlanCache::default_directory());
  DC_ASSIGN_OR_RETURN(const int removed, store.collect(base::Bytes{keep}));
  std::printf("removed %d plan%s\n", removed, removed == 1 ? "" : "s");
  return {};
}

}  // namespace dc::cli
