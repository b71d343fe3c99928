#include "src/base/archive/weight_table.h"

#include "src/base/json.h"

namespace dc::base::archive {
namespace {

constexpr std::string_view kWeights = "data/weights/";
constexpr std::string_view kConstants = "data/constants/";

// Sizes are written as {"as_int": 5}.
Result<int64_t> plain_integer(const JsonValue& value) {
  DC_ASSIGN_OR_RETURN(const JsonValue* plain, value.require("as_int"));
  return plain->to_integer();
}

Result<std::vector<int64_t>> plain_integers(const JsonValue& object, std::string_view key) {
  DC_ASSIGN_OR_RETURN(const JsonValue* list, object.require(key));
  DC_ASSIGN_OR_RETURN(const auto* items, list->to_array());
  std::vector<int64_t> values;
  for (const JsonValue& item : *items) {
    DC_ASSIGN_OR_RETURN(values.emplace_back(), plain_integer(item));
  }
  return values;
}

Result<TensorRecord> read_record(const JsonValue& value, std::string_view folder) {
  const JsonValue* pickled = value.find("use_pickle");
  if (pickled != nullptr && !pickled->is_null()) {
    DC_ASSIGN_OR_RETURN(const bool is_pickled, pickled->to_bool());
    if (is_pickled) {
      return Status(ErrorKind::BadInput, "DC1341",
                    "it is stored as a Python pickle; replace it by a plain torch.Tensor and "
                    "export again");
    }
  }
  TensorRecord record;
  DC_ASSIGN_OR_RETURN(const JsonValue* path, value.require("path_name"));
  DC_ASSIGN_OR_RETURN(const std::string name, path->to_string());
  record.entry = std::string(folder) + name;
  DC_ASSIGN_OR_RETURN(const JsonValue* meta, value.require("tensor_meta"));
  DC_ASSIGN_OR_RETURN(const JsonValue* number, meta->require("dtype"));
  DC_ASSIGN_OR_RETURN(const int64_t exported, number->to_integer());
  const std::optional<DType> dtype = dtype_from_export(exported);
  if (!dtype) {
    return Status(ErrorKind::BadInput, "DC1342", "it has an element type that is not supported");
  }
  record.dtype = *dtype;
  DC_ASSIGN_OR_RETURN(record.sizes, plain_integers(*meta, "sizes"));
  DC_ASSIGN_OR_RETURN(record.strides, plain_integers(*meta, "strides"));
  DC_ASSIGN_OR_RETURN(const JsonValue* offset, meta->require("storage_offset"));
  DC_ASSIGN_OR_RETURN(record.offset, plain_integer(*offset));
  return record;
}

}  // namespace

Result<WeightTable> WeightTable::read(const ZipArchive& archive) {
  WeightTable table;
  for (const ZipEntry& entry : archive.entries()) {
    const std::string_view name = archive.below_root(entry);
    const bool weights = name.starts_with(kWeights);
    if (!name.ends_with("_config.json") || (!weights && !name.starts_with(kConstants))) continue;
    DC_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, archive.read(entry));
    const std::string where = archive.path() + ":" + std::string(name);
    DC_ASSIGN_OR_RETURN(
        const JsonValue document,
        parse_json_value({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, where));
    DC_ASSIGN_OR_RETURN(const JsonValue* config, document.require("config"));
    DC_ASSIGN_OR_RETURN(const auto* members, config->to_object());
    for (const auto& [fqn, value] : *members) {
      if (value.find("tensor_meta") == nullptr || !value.find("tensor_meta")->is_object()) continue;
      auto record = read_record(value, weights ? kWeights : kConstants);
      if (!record.ok()) {
        std::string tensor = "in tensor '" + fqn;
        return Status(record.status()).add_context(tensor.append("' of ").append(where));
      }
      if (table.records_.emplace(fqn, std::move(record).value()).second && weights) {
        table.names_.push_back(fqn);
      }
    }
  }
  return table;
}

const TensorRecord* WeightTable::find(std::string_view fqn) const {
  const auto found = records_.find(std::string(fqn));
  return found == records_.end() ? nullptr : &found->second;
}

}  // namespace dc::base::archive
