// The tables of a model archive that say which bytes are which tensor.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/archive/tensor_record.h"
#include "src/base/archive/zip.h"
#include "src/base/status.h"

namespace dc::base::archive {

class WeightTable {
 public:
  // Reads data/weights/*_config.json and data/constants/*_config.json. BadInput for a table that is
  // malformed and for a tensor stored as a Python pickle.
  static Result<WeightTable> read(const ZipArchive& archive);

  const TensorRecord* find(std::string_view fqn) const;               // null if absent
  const std::vector<std::string>& weights() const { return names_; }  // without constants

 private:
  std::unordered_map<std::string, TensorRecord> records_;  // lookups only
  std::vector<std::string> names_;
};

}  // namespace dc::base::archive
