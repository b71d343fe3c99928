#include "runtime/comm/job_key.h"

#include <cstdlib>

#include "src/base/file.h"

namespace dc::runtime::comm {
namespace {

constexpr size_t kShortest = 16;  // characters: 64 bits, if they are hexadecimal digits
constexpr const char* kVariable = "DCRUN_JOB_KEY";

base::Result<std::string> checked(std::string key, const std::string& where) {
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
  if (key.size() >= kShortest) return key;
  return base::Status(base::ErrorKind::BadConfig, "DC6122",
                      "the job key in " + where + " has " + std::to_string(key.size()) +
                          " characters and needs at least " + std::to_string(kShortest) +
                          "; make one with `openssl rand -hex 32`, the same for all ranks");
}

}  // namespace

base::Result<std::string> read_job_key(const std::string& file, const Environment& environment) {
  if (!file.empty()) {
    DC_ASSIGN_OR_RETURN(std::string key, base::read_file(file));
    return checked(std::move(key), file);
  }
  const char* value = environment(kVariable);
  if (value == nullptr) return std::string();
  return checked(value, kVariable);
}

base::Result<std::string> read_job_key(const std::string& file) {
  return read_job_key(file, [](const char* name) { return std::getenv(name); });
}

}  // namespace dc::runtime::comm
