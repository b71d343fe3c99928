#include "src/base/cache_directory.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace dc::base {
namespace {

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::string cache_directory() {
  if (std::string directory = from_environment("DCC_CACHE_DIR"); !directory.empty())
    return directory;
  if (std::string base = from_environment("XDG_CACHE_HOME"); !base.empty()) return base + "/dcc";
  if (std::string home = from_environment("HOME"); !home.empty()) return home + "/.cache/dcc";
  return "";
}

void mark_used(const std::string& path) {
  std::error_code ignored;  // a read-only cache still answers
  std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now(), ignored);
}

}  // namespace dc::base
