#include <algorithm>
#include <cstdio>
#include <ctime>

#include "cli/commands/commands.h"
#include "runtime/report/report.h"
#include "src/base/cache_directory.h"
#include "src/base/text.h"
#include "src/cache/plan_cache.h"

namespace dc::cli {

base::Result<int64_t> parse_bytes(const std::string& option, const std::string& text) {
  const std::optional<int64_t> bytes = base::parse_bytes(text);
  if (bytes) return *bytes;
  return base::Status(base::ErrorKind::Usage, "DC2802",
                      option + ": '" + text +
                          "' is not a number of bytes; write for example 100000000, 512MiB (of "
                          "2^20 bytes) or 20MB (of "
                          "10^6)");
}

namespace {

// The day and minute, in UTC: the same for all who share a cache.
std::string date(int64_t nanoseconds) {
  const std::time_t seconds = nanoseconds / 1'000'000'000;
  std::tm parts{};
  char text[32];
  if (gmtime_r(&seconds, &parts) == nullptr ||
      std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts) == 0)
    return "?";
  return text;
}

// "step of 10409280 parameters (cfe43ccb7207)": archives do not name their model.
std::string model_of(const runtime::plan::Plan& plan) {
  return plan.name + " of " + std::to_string(runtime::report::parameter_facts(plan).elements) +
         " parameters (" + plan.model_digest.substr(0, 12) + ")";
}

base::Result<cache::PlanCache> open_cache() {
  std::string folder = base::cache_directory();
  if (!folder.empty()) return cache::PlanCache(std::move(folder));
  return base::Status(base::ErrorKind::Usage, "DC2819",
                      "there is no cache: DCC_CACHE_DIR, XDG_CACHE_HOME and HOME are not set; set "
                      "DCC_CACHE_DIR to its folder");
}

}  // namespace

base::Status run_cache_list() {
  DC_ASSIGN_OR_RETURN(const cache::PlanCache store, open_cache());
  DC_ASSIGN_OR_RETURN(std::vector<cache::Entry> entries, store.list());
  std::sort(entries.begin(), entries.end(), [](const cache::Entry& a, const cache::Entry& b) {
    return a.last_used != b.last_used ? a.last_used > b.last_used : a.key < b.key;
  });
  for (const cache::Entry& entry : entries) {
    const std::optional<runtime::plan::Plan> plan = store.peek(entry.key);
    std::printf("%s UTC %10s  %.12s  %s\n", date(entry.last_used).c_str(),
                base::format_bytes(entry.bytes.v).c_str(), entry.key.c_str(),
                plan ? (model_of(*plan) + ", " + plan->options).c_str() : "(damaged)");
  }
  DC_ASSIGN_OR_RETURN(const std::vector<cache::Entry> kernels, store.list_kernels());
  if (kernels.empty()) return {};
  base::Bytes bytes{0};
  int64_t last_used = 0;
  for (const cache::Entry& kernel : kernels) {
    bytes += kernel.bytes;
    last_used = std::max(last_used, kernel.last_used);
  }
  std::printf("%s UTC %10s  %s of GPUs\n", date(last_used).c_str(),
              base::format_bytes(bytes.v).c_str(),
              base::count_of(static_cast<int64_t>(kernels.size()), "kernel").c_str());
  return {};
}

base::Status run_cache_collect(const CacheArguments& arguments) {
  DC_ASSIGN_OR_RETURN(const int64_t keep, parse_bytes("--keep", arguments.keep));
  DC_ASSIGN_OR_RETURN(const cache::PlanCache store, open_cache());
  DC_ASSIGN_OR_RETURN(const cache::Collected removed, store.collect(base::Bytes{keep}));
  std::string text = base::count_of(removed.plans, "plan");
  if (removed.kernels > 0) text += " and " + base::count_of(removed.kernels, "kernel");
  std::printf("removed %s\n", text.c_str());
  return {};
}

}  // namespace dc::cli
