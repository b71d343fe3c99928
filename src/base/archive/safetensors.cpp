#include "src/base/archive/safetensors.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "src/base/checked.h"
#include "src/base/json.h"

namespace dc::base::archive {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxHeaderBytes = 100'000'000;
constexpr std::string_view kMetadataKey = "__metadata__";

// The format's name of a type is ours in capitals.
std::string format_name(DType dtype) {
  std::string text(name(dtype));
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}
std::optional<DType> dtype_of(std::string text) {
  const std::string given = text;
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const std::optional<DType> dtype = dtype_from_name(text);
  return dtype && format_name(*dtype) == given ? dtype : std::nullopt;
}

std::optional<int64_t> tensor_bytes(DType dtype, std::span<const int64_t> shape) {
  for (const int64_t size : shape) {
    if (size < 0) return std::nullopt;
  }
  const std::optional<int64_t> count = checked_product(shape);
  return count ? checked_mul(*count, byte_size(dtype)) : std::nullopt;
}

Status bad_file(const std::string& what) {
  return Status(ErrorKind::BadInput, "DC1321",
                "not a valid safetensors file: " + what + "; write or copy it again");
}

Result<SafeTensor> read_tensor(const std::string& name, const JsonValue& value) {
  SafeTensor tensor;
  tensor.name = name;
  DC_ASSIGN_OR_RETURN(const JsonValue* dtype, value.require("dtype"));
  DC_ASSIGN_OR_RETURN(const std::string dtype_text, dtype->to_string());
  const std::optional<DType> known = dtype_of(dtype_text);
  if (!known) return bad_file("its dtype '" + dtype_text.substr(0, 40) + "' is not supported");
  tensor.dtype = *known;
  DC_ASSIGN_OR_RETURN(const JsonValue* shape, value.require("shape"));
  DC_ASSIGN_OR_RETURN(const auto* sizes, shape->to_array());
  for (const JsonValue& size : *sizes) {
    DC_ASSIGN_OR_RETURN(const int64_t elements, size.to_integer());
    tensor.shape.push_back(elements);
  }
  DC_ASSIGN_OR_RETURN(const JsonValue* range, value.require("data_offsets"));
  DC_ASSIGN_OR_RETURN(const auto* offsets, range->to_array());
  if (offsets->size() != 2) return bad_file("data_offsets must be two numbers");
  DC_ASSIGN_OR_RETURN(const int64_t begin, (*offsets)[0].to_integer());
  DC_ASSIGN_OR_RETURN(const int64_t end, (*offsets)[1].to_integer());
  if (begin < 0 || end < begin) return bad_file("data_offsets are out of order");
  tensor.offset = begin;
  tensor.bytes = end - begin;
  if (tensor_bytes(tensor.dtype, tensor.shape) != tensor.bytes) {
    return bad_file("its shape and data_offsets disagree");
  }
  return tensor;
}

Status read_metadata(const JsonValue& value, std::map<std::string, std::string>& metadata) {
  DC_ASSIGN_OR_RETURN(const auto* members, value.to_object());
  for (const auto& [key, text] : *members) {
    DC_ASSIGN_OR_RETURN(metadata[key], text.to_string());
  }
  return ok_status();
}

// Offsets relative to the data become offsets in the file; together they must tile it.
Status place(std::vector<SafeTensor>& tensors, int64_t data_begin, int64_t file_bytes) {
  std::sort(tensors.begin(), tensors.end(), [](const SafeTensor& a, const SafeTensor& b) {
    return a.offset != b.offset ? a.offset < b.offset
                                : (a.bytes != b.bytes ? a.bytes < b.bytes : a.name < b.name);
  });
  int64_t expected = 0;
  for (SafeTensor& tensor : tensors) {
    if (tensor.offset != expected) {
      return bad_file("a hole or an overlap before tensor '" + tensor.name + "'");
    }
    expected += tensor.bytes;  // cannot overflow: the end was read as an int64
    if (expected > file_bytes - data_begin) {
      return bad_file("tensor '" + tensor.name + "' reaches beyond the end of the file");
    }
    tensor.offset += data_begin;
  }
  if (expected != file_bytes - data_begin) return bad_file("bytes after the last tensor");
  return ok_status();
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile result;
  DC_ASSIGN_OR_RETURN(result.file_, MappedFile::open(path));
  const std::span<const uint8_t> bytes = result.file_.bytes();
  const auto size = static_cast<int64_t>(bytes.size());
  uint64_t length = 0;
  for (int i = 7; size >= kLengthBytes && i >= 0; --i)
    length = length << 8 | bytes[static_cast<size_t>(i)];
  if (size < kLengthBytes || length > static_cast<uint64_t>(kMaxHeaderBytes) ||
      static_cast<int64_t>(length) > size - kLengthBytes) {
    return bad_file("its header does not fit").add_context("in " + path);
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  Result<JsonValue> document = parse_json_value(header, "the header of " + path);
  if (!document.ok()) return std::move(document).status();
  if (!document->is_object()) return bad_file("its header is no object").add_context("in " + path);
  for (const auto& [name, value] : document->members()) {
    if (name == kMetadataKey) {
      Status status = read_metadata(value, result.metadata_);
      if (!status.ok()) return status.add_context("in the metadata of " + path);
      continue;
    }
    Result<SafeTensor> tensor = read_tensor(name, value);
    if (!tensor.ok()) {
      std::string place = "in tensor '";
      place.append(name).append("' of ").append(path);
      return Status(tensor.status()).add_context(std::move(place));
    }
    result.tensors_.push_back(std::move(*tensor));
  }
  Status placed = place(result.tensors_, kLengthBytes + static_cast<int64_t>(length), size);
  if (!placed.ok()) return placed.add_context("in " + path);
  for (size_t i = 0; i < result.tensors_.size(); ++i) {
    result.by_name_.emplace(result.tensors_[i].name, i);
  }
  return result;
}

const SafeTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

std::span<const uint8_t> SafetensorsFile::bytes(const SafeTensor& tensor) const {
  return file_.bytes().subspan(static_cast<size_t>(tensor.offset),
                               static_cast<size_t>(tensor.bytes));
}

Result<SafetensorsLayout> layout_safetensors(std::vector<SafeTensor> tensors,
                                             const std::map<std::string, std::string>& metadata) {
  // Widest elements first, so that every tensor is aligned to its element size.
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&tensors](size_t a, size_t b) {
    return byte_size(tensors[a].dtype) > byte_size(tensors[b].dtype);
  });
  JsonWriter writer;
  writer.begin_object();
  if (!metadata.empty()) {
    writer.key(kMetadataKey).begin_object();
    for (const auto& [key, value] : metadata) writer.field(key, value);
    writer.end_object();
  }
  std::unordered_map<std::string_view, bool> seen;
  int64_t offset = 0;
  for (const size_t i : order) {
    SafeTensor& tensor = tensors[i];
    const std::optional<int64_t> bytes = tensor_bytes(tensor.dtype, tensor.shape);
    const std::optional<int64_t> end = bytes ? checked_add(offset, *bytes) : std::nullopt;
    if (!end || tensor.name == kMetadataKey || !seen.emplace(tensor.name, true).second) {
      return Status(ErrorKind::Internal, "DC1322",
                    "tensor '" + tensor.name + "' cannot be saved: its name or size is not valid");
    }
    tensor.offset = offset;
    tensor.bytes = *bytes;
    writer.key(tensor.name).begin_object().field("dtype", format_name(tensor.dtype));
    writer.key("shape").begin_array();
    for (const int64_t size : tensor.shape) writer.integer(size);
    writer.end_array().key("data_offsets").begin_array().integer(offset).integer(*end);
    writer.end_array().end_object();
    offset = *end;
  }
  std::string json = writer.end_object().take();
  json.append((8 - json.size() % 8) % 8, ' ');
  if (static_cast<int64_t>(json.size()) > kMaxHeaderBytes) {
    return Status(ErrorKind::CannotWrite, "DC1323", "too many tensors for one safetensors file");
  }
  SafetensorsLayout layout;
  for (int i = 0; i < 8; ++i) layout.header += static_cast<char>(json.size() >> (8 * i) & 255);
  layout.header += json;
  const auto data_begin = static_cast<int64_t>(layout.header.size());
  for (SafeTensor& tensor : tensors) tensor.offset += data_begin;
  layout.file_bytes = data_begin + offset;
  layout.tensors = std::move(tensors);
  return layout;
}

}  // namespace dc::base::archive
