#include "src/base/cache_directory.h"

#include <cstdlib>

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

}  // namespace dc::base
