#include "src/frontend/archive_digest.h"

#include <algorithm>
#include <vector>

#include "src/base/archive/zip.h"
#include "src/base/sha256.h"

namespace dc::frontend {

base::Result<std::string> archive_digest(const std::string& path) {
  DC_ASSIGN_OR_RETURN(const base::archive::ZipArchive archive,
                      base::archive::ZipArchive::open(path));
  std::vector<std::pair<std::string, const base::archive::ZipEntry*>> parts;
  for (const base::archive::ZipEntry& entry : archive.entries()) {
    const std::string_view name = archive.below_root(entry);
    const bool decides = name.starts_with("models/") || name.starts_with("extra/") ||
                         name.starts_with("data/constants/") || name.ends_with("_config.json");
    if (decides) parts.emplace_back(name, &entry);
  }
  std::sort(parts.begin(), parts.end());
  base::Sha256 hash;
  for (const auto& [name, entry] : parts) {
    DC_ASSIGN_OR_RETURN(const std::vector<uint8_t> contents, archive.read(*entry));
    hash.update(name + "\n" + std::to_string(contents.size()) + "\n");
    hash.update(contents);
  }
  return hash.hex();
}

}  // namespace dc::frontend
