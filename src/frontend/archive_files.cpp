#include "src/frontend/archive_files.h"

#include <utility>

namespace dc::frontend {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;
using base::archive::ZipArchive;
using base::archive::ZipEntry;

constexpr std::string_view kModels = "models/";
constexpr std::string_view kDescription = "extra/dcc.json";
constexpr std::string_view kEvaluation = "extra/evaluation.json";

Status not_ours(const std::string& path, const std::string& what) {
  return Status(ErrorKind::BadInput, "DC2011",
                path + " " + what + "; export the model with scripts/export.py and torch 2.11");
}

// Configurations are found by suffix, because their names changed between releases.
std::vector<std::string> configurations(const ZipArchive& zip, std::string_view folder) {
  std::vector<std::string> names;
  for (const ZipEntry& entry : zip.entries()) {
    const std::string_view name = zip.below_root(entry);
    if (name.starts_with(folder) && name.ends_with("_config.json")) names.emplace_back(name);
  }
  return names;
}

Status check_format(const ZipArchive& zip) {
  const ZipEntry* format = zip.find("archive_format");
  if (format != nullptr) {
    DC_ASSIGN_OR_RETURN(const std::string text, read_text(zip, "archive_format"));
    if (text.starts_with("pt2")) return base::ok_status();
    return not_ours(zip.path(), "is an archive of another format");
  }
  for (const ZipEntry& entry : zip.entries()) {
    if (entry.name.ends_with("serialized_exported_program.json")) {
      return not_ours(zip.path(), "was written by a torch older than 2.8");
    }
    if (entry.name.ends_with("data.pkl")) {
      return not_ours(zip.path(), "was written by torch.save: it holds tensors but no graph");
    }
  }
  return not_ours(zip.path(), "is no model archive (it has no archive_format entry)");
}

}  // namespace

Result<std::string> read_text(const ZipArchive& zip, const std::string& name) {
  const ZipEntry* entry = zip.find(name);
  DC_CHECK(entry != nullptr);
  DC_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, zip.read(*entry));
  return std::string(bytes.begin(), bytes.end());
}

Result<ArchiveFiles> open_archive(const std::string& path) {
  Result<ZipArchive> zip = ZipArchive::open(path);
  if (!zip.ok()) return std::move(zip).status();
  DC_RETURN_IF_ERROR(check_format(*zip));
  ArchiveFiles files{std::move(*zip), "", {}, {}, "", ""};
  std::vector<std::string> models;
  for (const ZipEntry& entry : files.zip.entries()) {
    const std::string_view name = files.zip.below_root(entry);
    if (name.starts_with(kModels) && name.ends_with(".json")) models.emplace_back(name);
  }
  if (models.empty()) return not_ours(path, "holds no graph (no models/*.json)");
  files.model = models[0];
  for (const std::string& name : models) {
    if (name == "models/model.json") files.model = name;
  }
  if (models.size() > 1 && files.model != "models/model.json") {
    return not_ours(path, "holds several graphs and none is named 'model'");
  }
  files.weights = configurations(files.zip, "data/weights/");
  files.constants = configurations(files.zip, "data/constants/");
  if (files.zip.find(kDescription) != nullptr) files.description = kDescription;
  if (files.zip.find(kEvaluation) != nullptr) files.evaluation = kEvaluation;
  return files;
}

}  // namespace dc::frontend
