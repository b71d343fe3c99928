#include "src/cache/plan_cache.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "runtime/plan/file.h"
#include "runtime/verify/verify.h"
#include "src/base/cache_directory.h"
#include "src/base/file.h"
#include "src/base/partial_files.h"
#include "src/base/sha256.h"

namespace dc::cache {
namespace {

namespace fs = std::filesystem;
using base::Bytes;
using base::ErrorKind;
using base::Result;
using base::Status;

constexpr size_t kHex = 64;                // characters of a key or a digest
constexpr size_t kLine = kHex + 1 + kHex;  // "<key> <seal>"
constexpr std::string_view kExtension = ".entry";

bool is_key(std::string_view text) {
  return text.size() == kHex && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

int64_t modified(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return 0;
  return static_cast<int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
}

// Ties a plan file to a key. The file's header holds the digest of all that follows it.
std::string seal(std::string_view key, std::string_view plan_file) {
  const std::string_view header = plan_file.substr(0, runtime::plan::kHeaderBytes);
  return base::sha256_hex(std::string(key) + "\n" + std::string(header));
}

Status bad_entry(const std::string& what) { return Status(ErrorKind::BadInput, "DC2903", what); }

// The first fact in which a plan is not what was asked for.
Status answers(const runtime::plan::Plan& plan, const Request& request) {
  const auto other = [](const char* fact) {
    return bad_entry(std::string("its plan is of another ") + fact + " than asked for");
  };
  if (plan.model_digest != request.model_digest || plan.step_digest != request.step_digest) {
    return other("model");
  }
  if (plan.options != request.options) return other("set of options");
  if (plan.options_digest != base::sha256_hex(request.options)) return other("options digest");
  if (plan.profile_digest != request.profile_digest) return other("profile");
  if (plan.compiler != request.compiler) return other("compiler");
  if (plan.optimizer != request.optimizer) return other("training configuration");
  const size_t notes = request.notes.size();
  if (plan.notes.size() < notes ||
      !std::equal(request.notes.begin(), request.notes.end(), plan.notes.begin()))
    return other("set of notes");
  return {};
}

Result<std::string> plan_file(const std::string& key, std::string entry) {
  if (entry.size() <= kLine || entry[kLine] != '\n') return bad_entry("it is no cache entry");
  const std::string line = entry.substr(0, kLine);
  entry.erase(0, kLine + 1);
  if (line != key + " " + seal(key, entry)) return bad_entry("its plan belongs to another key");
  return entry;
}

Result<runtime::plan::Plan> decode(const std::string& file) {
  return runtime::plan::decode({reinterpret_cast<const uint8_t*>(file.data()), file.size()});
}

Result<CacheHit> open_entry(const std::string& key, std::string entry, const Request& request) {
  CacheHit found;
  DC_ASSIGN_OR_RETURN(found.bytes, plan_file(key, std::move(entry)));
  DC_ASSIGN_OR_RETURN(found.plan, decode(found.bytes));
  DC_RETURN_IF_ERROR(answers(found.plan, request));
  DC_RETURN_IF_ERROR(runtime::verify::verify_meaning(found.plan));
  return found;
}

}  // namespace

std::string key_of(const std::string& model_digest, const KeyParts& parts) {
  base::Sha256 hash;
  for (const std::string& part :
       {model_digest, parts.profile_digest, parts.options, parts.compiler, parts.schema_version}) {
    hash.update(std::to_string(part.size()) + ":");
    hash.update(part);
  }
  return hash.hex();
}

std::string PlanCache::path(std::string_view folder, const std::string& name) const {
  return directory_ + "/" + std::string(folder) + "/" + name;
}

std::optional<CacheHit> PlanCache::find(const std::string& key, const Request& request,
                                        std::string& warning) const {
  if (!enabled()) return std::nullopt;
  Result<std::string> bytes = base::read_file(plan_path(key));
  if (!bytes.ok()) {
    if (bytes.status().kind() != ErrorKind::MissingInput)
      warning =
          "cache entry " + plan_path(key) + " is not used (" + bytes.status().sentence() + ")";
    return std::nullopt;
  }
  Result<CacheHit> found = open_entry(key, std::move(bytes).value(), request);
  if (!found.ok()) {
    const std::optional<std::string> aside = set_aside(key);
    warning = "cache entry " + plan_path(key) + " is not used (" + found.status().sentence() +
              "); it " + (aside ? "was moved to " + *aside : "cannot be moved away") +
              " and the model is compiled again";
    return std::nullopt;
  }
  base::mark_used(plan_path(key));
  return std::move(found).value();
}

std::optional<runtime::plan::Plan> PlanCache::peek(const std::string& key) const {
  Result<std::string> bytes = base::read_file(plan_path(key));
  if (!bytes.ok()) return std::nullopt;
  Result<std::string> file = plan_file(key, std::move(bytes).value());
  if (!file.ok()) return std::nullopt;
  Result<runtime::plan::Plan> plan = decode(*file);
  if (!plan.ok()) return std::nullopt;
  return std::move(plan).value();
}

// To a name that no other entry has, so that nothing is lost.
std::optional<std::string> PlanCache::set_aside(const std::string& key) const {
  std::error_code error;
  fs::create_directories(directory_ + "/quarantine", error);
  std::string to = path("quarantine", key + std::string(kExtension));
  for (int copy = 1; fs::exists(to, error); ++copy)
    to = path("quarantine", key + "." + std::to_string(copy) + std::string(kExtension));
  fs::rename(plan_path(key), to, error);
  if (error) return std::nullopt;
  return to;
}

Status PlanCache::store(const std::string& key, const std::string& plan_file) const {
  if (!enabled()) return {};
  std::error_code error;
  fs::create_directories(directory_ + "/plans", error);
  if (error) {
    return Status(ErrorKind::CannotWrite, "DC2901",
                  "cannot create the cache folder " + directory_ + ": " + error.message() +
                      "; set DCC_CACHE_DIR or pass --no-cache");
  }
  if (fs::exists(plan_path(key), error)) return {};
  return base::write_file_atomically(plan_path(key),
                                     key + " " + seal(key, plan_file) + "\n" + plan_file);
}

// Files with an extension, of a folder that need not be there.
Result<std::vector<Entry>> PlanCache::list(std::string_view folder,
                                           std::string_view extension) const {
  std::vector<Entry> entries;
  std::error_code error;
  const fs::path path = fs::path(directory_) / folder;
  if (!enabled() || !fs::exists(path, error)) {
    if (!enabled() || !fs::exists(directory_, error) || fs::is_directory(directory_, error))
      return entries;
    error = std::make_error_code(std::errc::not_a_directory);
    return Status(ErrorKind::Io, "DC2902",
                  "cannot read the cache folder " + directory_ + ": " + error.message());
  }
  for (const fs::directory_entry& file : fs::directory_iterator(path, error)) {
    const std::string key = file.path().stem().string();
    if (file.path().extension() != extension || !is_key(key)) continue;
    std::error_code gone;  // another process may collect at the same time
    const auto bytes = static_cast<int64_t>(file.file_size(gone));
    if (!gone) entries.push_back({key, Bytes{bytes}, modified(file.path())});
  }
  if (error) {
    return Status(ErrorKind::Io, "DC2902",
                  "cannot read the cache folder " + directory_ + ": " + error.message());
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.key < b.key; });
  return entries;
}

Result<std::vector<Entry>> PlanCache::list() const { return list("plans", kExtension); }

Result<std::vector<Entry>> PlanCache::list_kernels() const {
  return list(base::kKernelFolder, base::kKernelExtension);
}

Result<Collected> PlanCache::collect(Bytes keep) const {
  struct Candidate {
    Entry entry;
    std::string path;
    int Collected::*counter;
  };
  std::vector<Candidate> all;
  DC_ASSIGN_OR_RETURN(const std::vector<Entry> plans, list());
  all.reserve(plans.size());
  for (const Entry& plan : plans) all.push_back({plan, plan_path(plan.key), &Collected::plans});
  DC_ASSIGN_OR_RETURN(const std::vector<Entry> kernels, list_kernels());
  for (const Entry& kernel : kernels) {
    const std::string name = kernel.key + std::string(base::kKernelExtension);
    all.push_back({kernel, path(base::kKernelFolder, name), &Collected::kernels});
  }
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.entry.last_used != b.entry.last_used ? a.entry.last_used > b.entry.last_used
                                                  : a.path < b.path;
  });
  Bytes kept{0};
  Collected removed;
  for (const Candidate& each : all) {
    kept += each.entry.bytes;
    if (kept <= keep) continue;
    std::error_code error;
    removed.*each.counter += fs::remove(each.path, error);
    if (error) {
      return Status(ErrorKind::CannotWrite, "DC2904",
                    "cannot remove " + each.path + ": " + error.message());
    }
  }
  for (const std::string_view folder : {std::string_view("plans"), base::kKernelFolder})
    base::remove_all_stale_partials(path(folder, ""));  // of processes that were killed
  std::error_code ignored;
  fs::remove_all(directory_ + "/quarantine", ignored);
  return removed;
}

}  // namespace dc::cache
