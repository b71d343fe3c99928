#include "runtime/train/weight_files.h"

#include <filesystem>
#include <map>
#include <set>

#include "src/base/json.h"

namespace dc::runtime::train {
namespace {

using base::ErrorKind;
using base::JsonValue;
using base::Result;
using base::Status;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kSingle = "model.safetensors";

Status no_name(const std::string& path, const std::string& tensor, int line) {
  return {ErrorKind::BadInput, "DC6425",
          path + ": line " + std::to_string(line) + ": the file of tensor '" + tensor +
              "' is not a name in the same folder; write the checkpoint again"};
}

Status not_in_file(const std::string& path, const std::string& tensor, const std::string& file) {
  return {ErrorKind::BadInput, "DC6425",
          path + ": tensor '" + tensor + "' is not in " + file +
              ", where the index says; write the checkpoint again"};
}

// {tensor: file}, the files without a folder.
Result<std::map<std::string, std::string>> read_map(const std::string& path) {
  DC_ASSIGN_OR_RETURN(const std::string text, base::read_file(path));
  DC_ASSIGN_OR_RETURN(const JsonValue document, base::parse_json_value(text, path));
  DC_ASSIGN_OR_RETURN(const JsonValue* map, document.require("weight_map"));
  DC_ASSIGN_OR_RETURN(const auto* members, map->to_object());
  std::map<std::string, std::string> files;
  for (const auto& [tensor, value] : *members) {
    DC_ASSIGN_OR_RETURN(const std::string file, value.to_string());
    if (file.empty() || file.find('/') != std::string::npos || file == "..")
      return no_name(path, tensor, value.line());
    files.emplace(tensor, file);
  }
  return files;
}

}  // namespace

Result<WeightFiles> WeightFiles::open(const std::string& path) {
  namespace fs = std::filesystem;
  WeightFiles files;
  std::error_code none;
  std::string at = path;
  if (fs::is_directory(path, none)) {
    at = path + "/" + kIndex;
    if (!fs::exists(at, none)) at = path + "/" + kSingle;
    if (!fs::exists(at, none)) {
      return Status(ErrorKind::MissingInput, "DC6426",
                    path + ": the folder has neither " + kIndex + " nor " + kSingle +
                        "; give a folder that save_pretrained wrote, or a file");
    }
  }
  DC_RETURN_IF_ERROR(at.ends_with(".index.json") ? files.open_index(at) : files.add(at));
  return files;
}

Status WeightFiles::add(const std::string& path) {
  DC_ASSIGN_OR_RETURN(auto opened, base::archive::SafetensorsFile::open(path));
  const auto file = std::make_shared<const base::archive::SafetensorsFile>(std::move(opened));
  for (const base::archive::SafeTensor& tensor : file->tensors()) {
    if (!tensors_.emplace(tensor.name, StoredTensor{file, &tensor}).second) {
      return Status(ErrorKind::BadInput, "DC6427",
                    path + ": tensor '" + tensor.name +
                        "' is in another file of the checkpoint too; write the checkpoint again");
    }
    names_.push_back(tensor.name);
  }
  return base::ok_status();
}

Status WeightFiles::open_index(const std::string& path) {
  DC_ASSIGN_OR_RETURN(const auto map, read_map(path));
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::set<std::string> files;
  for (const auto& [tensor, file] : map) files.insert(file);
  std::string missing;
  for (const std::string& file : files) {
    if (std::filesystem::exists(folder / file)) continue;
    missing += (missing.empty() ? "" : ", ") + file;
  }
  if (!missing.empty()) {
    return Status(ErrorKind::MissingInput, "DC6428",
                  path + " names files that are not there: " + missing +
                      "; copy all files of the checkpoint into one folder");
  }
  for (const std::string& file : files) DC_RETURN_IF_ERROR(add(folder / file));
  for (const auto& [tensor, file] : map) {
    const StoredTensor found = find(tensor);
    if (found.tensor != nullptr && found.file->path() == (folder / file).string()) continue;
    return not_in_file(path, tensor, file);
  }
  return base::ok_status();
}

StoredTensor WeightFiles::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? StoredTensor() : found->second;
}

}  // namespace dc::runtime::train
