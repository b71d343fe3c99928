#include "src/cache/plan_cache.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "runtime/plan/file.h"
#include "src/base/file.h"
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

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

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

void mark_used(const fs::path& path) {
  std::error_code ignored;  // a read-only cache still answers
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
}

// Ties a plan file to a key. The file's header holds the digest of all that follows it.
std::string seal(std::string_view key, std::string_view plan_file) {
  const std::string_view header = plan_file.substr(0, runtime::plan::kHeaderBytes);
  return base::sha256_hex(std::string(key) + "\n" + std::string(header));
}

Result<Found> open_entry(const std::string& key, std::string entry) {
  const auto bad = [](const char* what) { return Status(ErrorKind::BadInput, "DC2903", what); };
  if (entry.size() <= kLine || entry[kLine] != '\n') return bad("it is no cache entry");
  const std::string line = entry.substr(0, kLine);
  entry.erase(0, kLine + 1);
  if (line != key + " " + seal(key, entry)) return bad("its plan belongs to another key");
  const auto* data = reinterpret_cast<const uint8_t*>(entry.data());
  DC_ASSIGN_OR_RETURN(runtime::plan::Plan plan, runtime::plan::decode({data, entry.size()}));
  DC_RETURN_IF_ERROR(runtime::plan::verify_meaning(plan));
  return Found{std::move(entry), std::move(plan)};
}

}  // namespace

std::string key_of(const std::string& subject, const KeyParts& parts) {
  base::Sha256 hash;
  for (const std::string& part :
       {subject, parts.profile_digest, parts.options, parts.compiler, parts.schema_version}) {
    hash.update(std::to_string(part.size()) + ":");
    hash.update(part);
  }
  return hash.hex();
}

std::string PlanCache::default_directory() {
  if (std::string directory = from_environment("DCC_CACHE_DIR"); !directory.empty()) {
    return directory;
  }
  if (std::string base = from_environment("XDG_CACHE_HOME"); !base.empty()) return base + "/dcc";
  if (std::string home = from_environment("HOME"); !home.empty()) return home + "/.cache/dcc";
  return "";
}

std::string PlanCache::path(const char* folder, const std::string& name) const {
  return directory_ + "/" + folder + "/" + name;
}

std::optional<std::string> PlanCache::find_direct(const std::string& direct_key) const {
  if (!enabled()) return std::nullopt;
  // "<plan key> <sha256 of both keys>"
  Result<std::string> text = base::read_file(path("direct", direct_key));
  if (!text.ok() || text->size() != kLine) return std::nullopt;
  std::string key = text->substr(0, kHex);
  if (!is_key(key) || text->substr(kHex + 1) != base::sha256_hex(direct_key + key)) {
    return std::nullopt;
  }
  return key;
}

std::optional<Found> PlanCache::find_plan(const std::string& plan_key, std::string& warning) const {
  if (!enabled()) return std::nullopt;
  Result<std::string> bytes = base::read_file(plan_path(plan_key));
  if (!bytes.ok()) return std::nullopt;
  Result<Found> found = open_entry(plan_key, std::move(bytes).value());
  if (!found.ok()) {
    set_aside(plan_key);
    warning = "cache entry " + plan_path(plan_key) + " is damaged (" + found.status().sentence() +
              "); it was set aside in quarantine/ and the model is compiled again";
    return std::nullopt;
  }
  mark_used(plan_path(plan_key));
  return std::move(found).value();
}

void PlanCache::set_aside(const std::string& plan_key) const {
  std::error_code ignored;
  fs::create_directories(directory_ + "/quarantine", ignored);
  fs::rename(plan_path(plan_key), path("quarantine", plan_key + std::string(kExtension)), ignored);
}

Status PlanCache::store(const std::string& direct_key, const std::string& plan_key,
                        const std::string& plan_file) const {
  if (!enabled()) return {};
  for (const char* folder : {"direct", "plans"}) {
    std::error_code error;
    fs::create_directories(directory_ + "/" + folder, error);
    if (error) {
      return Status(ErrorKind::CannotWrite, "DC2901",
                    "cannot create the cache folder " + directory_ + ": " + error.message() +
                        "; set DCC_CACHE_DIR or pass --no-cache");
    }
  }
  std::error_code missing;
  if (!fs::exists(plan_path(plan_key), missing)) {
    DC_RETURN_IF_ERROR(base::write_file_atomically(
        plan_path(plan_key), plan_key + " " + seal(plan_key, plan_file) + "\n" + plan_file));
  }
  return base::write_file_atomically(path("direct", direct_key),
                                     plan_key + " " + base::sha256_hex(direct_key + plan_key));
}

Result<std::vector<Entry>> PlanCache::list() const {
  std::vector<Entry> entries;
  std::error_code error;
  if (!enabled() || !fs::exists(directory_ + "/plans", error)) return entries;
  for (const fs::directory_entry& file : fs::directory_iterator(directory_ + "/plans", error)) {
    const std::string key = file.path().stem().string();
    if (file.path().extension() != kExtension || !is_key(key)) continue;
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

Result<int> PlanCache::collect(Bytes keep) const {
  DC_ASSIGN_OR_RETURN(std::vector<Entry> entries, list());
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.last_used != b.last_used ? a.last_used > b.last_used : a.key < b.key;
  });
  Bytes kept{0};
  int removed = 0;
  for (const Entry& entry : entries) {
    kept += entry.bytes;
    if (kept <= keep) continue;
    std::error_code error;
    removed += fs::remove(plan_path(entry.key), error);
    if (error) {
      return Status(ErrorKind::CannotWrite, "DC2904",
                    "cannot remove " + plan_path(entry.key) + ": " + error.message());
    }
  }
  remove_dangling();
  std::error_code ignored;
  fs::remove_all(directory_ + "/quarantine", ignored);
  return removed;
}

// First-level files whose plan is gone.
void PlanCache::remove_dangling() const {
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(directory_ + "/direct", error)) {
    const std::string name = file.path().filename().string();
    if (!is_key(name)) continue;
    const std::optional<std::string> key = find_direct(name);
    std::error_code ignored;
    if (!key || !fs::exists(plan_path(*key), ignored)) fs::remove(file.path(), ignored);
  }
}

}  // namespace dc::cache
