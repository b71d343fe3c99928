#include "src/base/output_names.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

namespace dc::base {

Status check_distinct(std::span<const std::string> outputs) {
  std::vector<std::filesystem::path> places;
  for (const std::string& output : outputs) {
    if (output.empty()) continue;
    std::error_code none;
    std::filesystem::path place =
        std::filesystem::weakly_canonical(std::filesystem::absolute(output, none), none);
    if (std::find(places.begin(), places.end(), place) != places.end()) {
      return Status(
          ErrorKind::Usage, "DC1012",
          "two outputs are to be written to " + output + "; give one of them another name");
    }
    if (!place.empty()) places.push_back(std::move(place));
  }
  return ok_status();
}

}  // namespace dc::base
