#include <cctype>
#include <cstdio>
#include <limits>

#include "cli/commands/commands.h"
#include "src/base/text.h"
#include "src/cache/plan_cache.h"

namespace dc::cli {

base::Result<int64_t> parse_bytes(const std::string& text) {
  const auto bad = [&] {
    return base::Status(
        base::ErrorKind::Usage, "DC2802",
        "'" + text + "' is not a number of bytes; write for example 100000000, 512MiB or 2GiB");
  };
  size_t digits = 0;
  while (digits < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[digits])) || text[digits] == '.'))
    ++digits;
  if (digits == 0) return bad();
  const std::string unit = text.substr(digits);
  double scale = 0;
  if (unit.empty() || unit == "B") scale = 1;
  if (unit == "KiB" || unit == "K") scale = 1024.0;
  if (unit == "MiB" || unit == "M") scale = 1024.0 * 1024;
  if (unit == "GiB" || unit == "G") scale = 1024.0 * 1024 * 1024;
  double number = 0;
  try {
    number = std::stod(text.substr(0, digits));
  } catch (const std::exception&) {
    return bad();
  }
  const double bytes = number * scale;
  if (scale == 0 || bytes < 0 || bytes >= static_cast<double>(std::numeric_limits<int64_t>::max()))
    return bad();
  return static_cast<int64_t>(bytes);
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
