#include "runtime/memory/free_memory.h"

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <sstream>
#include <string_view>

namespace dc::runtime::memory {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The number behind `key` in lines of "key number"; 0 if there is none.
int64_t figure(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string word;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    int64_t number = 0;
    if (words >> word && word == key && words >> number) return number;
  }
  return 0;
}

// A file that holds one number, or "max".
std::optional<int64_t> number(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  if (!(file >> text)) return std::nullopt;
  if (text == "max") return kUnlimited;
  std::istringstream digits(text);
  int64_t value = 0;
  return digits >> value ? std::optional(value) : std::nullopt;
}

struct GroupFiles {
  const char* limit;
  const char* usage;
  std::initializer_list<const char*> cache;  // of memory.stat
};

// Bytes that the control group and its ancestors still allow.
int64_t left_in(const std::string& mount, std::string path, const GroupFiles& files) {
  int64_t left = kUnlimited;
  for (;; path.resize(path.rfind('/'))) {
    const std::string group = mount + path + "/";
    const auto limit = number(group + files.limit), usage = number(group + files.usage);
    if (limit && usage && *limit < kUnlimited) {
      int64_t cache = 0;
      for (const char* key : files.cache) cache += figure(group + "memory.stat", key);
      left = std::min(left, std::max<int64_t>(0, *limit - *usage + cache));
    }
    if (path.empty()) return left;
  }
}

// Lines of /proc/self/cgroup: "4:memory:/a/b" of version 1, "0::/a/b" of version 2.
int64_t left_in_groups(const std::string& root) {
  int64_t left = kUnlimited;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    while (!path.empty() && path.back() == '/') path.pop_back();
    if (!path.empty() && path.front() != '/') continue;
    const std::string mount = root + "/sys/fs/cgroup";
    if (controllers == ",,") {
      left = std::min(
          left,
          left_in(mount, path, {"memory.max", "memory.current", {"inactive_file", "active_file"}}));
    } else if (controllers.find(",memory,") != std::string::npos) {
      left = std::min(left, left_in(mount + "/memory", path,
                                    {"memory.limit_in_bytes",
                                     "memory.usage_in_bytes",
                                     {"total_inactive_file", "total_active_file"}}));
    }
  }
  return left;
}

}  // namespace

std::optional<int64_t> free_memory(const std::string& root) {
  const std::string host = root + "/proc/meminfo";
  const int64_t available = figure(host, "MemAvailable:");
  const int64_t free = available == 0 ? kUnlimited : (available + figure(host, "SwapFree:")) * 1024;
  const int64_t left = std::min(free, left_in_groups(root));
  return left == kUnlimited ? std::nullopt : std::optional(left);
}

}  // namespace dc::runtime::memory
