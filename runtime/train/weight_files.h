// One safetensors file, or a checkpoint in several of them with an index.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/base/archive/safetensors.h"
#include "src/base/status.h"

namespace dc::runtime::train {

struct StoredTensor {
  std::shared_ptr<const base::archive::SafetensorsFile> file;
  const base::archive::SafeTensor* tensor = nullptr;  // null: absent
};

class WeightFiles {
 public:
  // `path`: FILE.safetensors; an index as transformers writes it, NAME.index.json with
  // {"weight_map": {tensor: file}}, its files in the same folder; or a folder that holds
  // model.safetensors.index.json or model.safetensors. MissingInput lists all files that are
  // missing; BadInput where index and files contradict each other.
  static base::Result<WeightFiles> open(const std::string& path);

  StoredTensor find(const std::string& name) const;
  const std::vector<std::string>& names() const { return names_; }

 private:
  base::Status add(const std::string& path);
  base::Status open_index(const std::string& path);
  std::unordered_map<std::string, StoredTensor> tensors_;  // lookups only
  std::vector<std::string> names_;
};

}  // namespace dc::runtime::train
