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

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_key(const std::string& text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

int64_t modified(const fs::path& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<int64_t>(info.st_mtime) : 0;
}

void mark_used(const fs::path& path) {
  std::error_code ignored;  // a read-only cache still answers
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
}

}  // namespace

std::string key_of(const std::string& subject, const KeyParts& parts) {
  base::Sha256 hash;
  for (const std::string& part : {subject, parts.profile_digest, parts.options, parts.compiler, parts.schema_version}) {
    hash.update(std::to_string(part.size()) + ":");
    hash.update(part);
  }
  return hash.hex();
}

std::string PlanCache::default_directory() {
  if (std::string directory = from_environment("DCC_CACHE_DIR"); !directory.empty()) return directory;
  if (std::string base = from_environment("XDG_CACHE_HOME"); !base.empty()) return base + "/dcc";
  if (std::string home = from_environment("HOME"); !home.empty()) return home + "/.cache/dcc";
  return "";
}

std::string PlanCache::path(const char* folder, const std::string& name) const {
  return directory_ + "/" + folder + "/" + name;
}

std::optional<std::string> PlanCache::find_direct(const std::string& direct_key) const {
  if (directory_.empty()) return std::nullopt;
  Result<std::string> text = base::read_file(path("direct", direct_key));
  // "<plan key> <sha256 of the plan key>"
  if (!text.ok() || text->size() != 129) return std::nullopt;
  std::string key = text->substr(0, 64);
  if (!is_key(key) || text->substr(65) != base::sha256_hex(key)) return std::nullopt;
  return key;
}

std::optional<std::string> PlanCache::find_plan(const std::string& plan_key, std::string& warning) const {
  if (directory_.empty()) return std::nullopt;
  const std::string file = path("plans", plan_key + ".dcp");
  Result<std::string> bytes = base::read_file(file);
  if (!bytes.ok()) return std::nullopt;
  const auto* data = reinterpret_cast<const uint8_t*>(bytes->data());
  Result<runtime::plan::Plan> plan = runtime::plan::decode({data, bytes->size()});
  Status verdict = plan.ok() ? runtime::plan::verify_meaning(*plan) : plan.status();
  if (!verdict.ok()) {
    set_aside(plan_key);
    warning = "cache entry " + file + " is damaged (" + verdict.sentence() + "); it was moved to quarantine and the model is compiled again";
    return std::nullopt;
  }
  mark_used(file);
  return std::move(*bytes);
}

void PlanCache::set_aside(const std::string& plan_key) const {
  std::error_code ignored;
  fs::create_directories(directory_ + "/quarantine", ignored);
  fs::rename(path("plans", plan_key + ".dcp"), path("quarantine", plan_key + ".dcp"), ignored);
}

Status PlanCache::store(const std::string& direct_key, const std::string& plan_key, const std::string& plan_file) const {
  if (directory_.empty()) return {};
  for (const char* folder : {"direct", "plans"}) {
    std::error_code error;
    fs::create_directories(directory_ + "/" + folder, error);
    if (error) {
      return Status(ErrorKind::CannotWrite, "DC2901",
                    "cannot create the cache folder " + directory_ + ": " + error.message() + "; set DCC_CACHE_DIR or pass --no-cache");
    }
  }
  if (!fs::exists(path("plans", plan_key + ".dcp"))) {
    DC_RETURN_IF_ERROR(base::write_file_atomically(path("plans", plan_key + ".dcp"), plan_file));
  }
  return base::write_file_atomically(path("direct", direct_key), plan_key + " " + base::sha256_hex(plan_key));
}

Result<std::vector<Entry>> PlanCache::list() const {
  std::vector<Entry> entries;
  std::error_code error;
  if (directory_.empty() || !fs::exists(directory_ + "/plans", error)) return entries;
  for (const fs::directory_entry& file : fs::directory_iterator(directory_ + "/plans", error)) {
    const std::string name = file.path().filename().string();
    if (file.path().extension() != ".dcp" || !is_key(name.substr(0, name.size() - 4))) continue;
    entries.push_back({name.substr(0, 64), Bytes{static_cast<int64_t>(file.file_size(error))}, modified(file.path())});
  }
  if (error) return Status(ErrorKind::Io, "DC2902", "cannot read the cache folder " + directory_ + ": " + error.message());
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.key < b.key; });
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
    removed += fs::remove(path("plans", entry.key + ".dcp"), error);
  }
  std::error_code ignored;
  fs::remove_all(directory_ + "/quarantine", ignored);
  return removed;
}

}  // namespace dc::cache
