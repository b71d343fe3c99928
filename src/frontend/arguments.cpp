#include "src/frontend/arguments.h"

#include <cmath>
#include <optional>

#include "src/base/checked.h"

namespace dc::frontend {

using base::ErrorKind;
using base::Result;
using base::Status;

Status malformed(const std::string& what) {
  return Status(ErrorKind::BadInput, "DC2010",
                "the graph is not what PyTorch's export writes: " + what +
                    "; the file is damaged or was edited");
}

namespace {

Result<Name> named(TapeValue value, Names& names) {
  const TapeValue name = value.find("name");
  if (!name.is(TokenKind::String) || name.text().empty()) return malformed("a tensor has no name");
  return names.intern(name.text());
}

std::optional<double> as_real(TapeValue value) {
  if (value.is(TokenKind::Real) || value.is(TokenKind::Integer)) return value.real();
  if (!value.is(TokenKind::String)) return std::nullopt;
  if (value.text() == "Infinity") return INFINITY;
  if (value.text() == "-Infinity") return -INFINITY;
  if (value.text() == "NaN") return NAN;
  return std::nullopt;
}

Status read_tensors(TapeValue list, Names& names, bool optional, ir::Arg::Value& target) {
  if (!list.is(TokenKind::Array)) return malformed("a list of tensors is no list");
  ir::OperandList operands;
  for (TapeValue item : children(list)) {
    if (optional) {
      const TapeValue tag = item.union_tag();
      if (!tag.present()) return malformed("an optional tensor is no union");
      item = item.union_value();
      if (tag.text() == "as_none") {
        operands.indices.push_back(-1);
        continue;
      }
    }
    DC_ASSIGN_OR_RETURN(const Name name, named(item, names));
    operands.indices.push_back(name);
  }
  target = std::move(operands);
  return base::ok_status();
}

// {"as_int": 3} or {"as_name": "s0"}; a name is recorded for later.
Status read_symbolic(TapeValue value, Names& names, int position, RawArg& arg, int64_t& target) {
  const TapeValue tag = value.union_tag();
  const TapeValue inner = value.union_value();
  if (inner.is(TokenKind::Integer)) {
    target = inner.integer();
    return base::ok_status();
  }
  if (!tag.present() || tag.text() != "as_name" || !inner.is(TokenKind::String)) {
    return malformed("a symbolic integer is neither a number nor a name");
  }
  target = 0;
  arg.symbols.emplace_back(position, names.intern(inner.text()));
  return base::ok_status();
}

Status read_symbolic_list(TapeValue list, Names& names, RawArg& arg) {
  std::vector<int64_t> values;
  for (const TapeValue item : children(list)) {
    const int position = static_cast<int>(values.size());
    DC_RETURN_IF_ERROR(read_symbolic(item, names, position, arg, values.emplace_back()));
  }
  arg.value = std::move(values);
  return base::ok_status();
}

template <typename T, typename Convert>
Status read_list(TapeValue list, ir::Arg::Value& target, Convert convert) {
  std::vector<T> values;
  for (const TapeValue item : children(list)) {
    const std::optional<T> value = convert(item);
    if (!value) return malformed("a list holds a value of another kind");
    values.push_back(*value);
  }
  target = std::move(values);
  return base::ok_status();
}

std::optional<int64_t> as_integer(TapeValue value) {
  if (!value.is(TokenKind::Integer)) return std::nullopt;
  return value.integer();
}

std::optional<bool> as_flag(TapeValue value) {
  if (!value.is(TokenKind::Bool)) return std::nullopt;
  return value.integer() != 0;
}

// Lists of plain or symbolic values; false if the tag is none of these.
Result<bool> read_list_argument(std::string_view tag, TapeValue inner, Names& names, RawArg& arg) {
  const bool plain = tag == "as_ints" || tag == "as_floats" || tag == "as_bools";
  if (!plain && tag != "as_sym_ints") return false;
  if (!inner.is(TokenKind::Array)) return malformed(std::string(tag) + " is no list");
  if (tag == "as_ints") DC_RETURN_IF_ERROR(read_list<int64_t>(inner, arg.value, as_integer));
  if (tag == "as_floats") DC_RETURN_IF_ERROR(read_list<double>(inner, arg.value, as_real));
  if (tag == "as_bools") DC_RETURN_IF_ERROR(read_list<bool>(inner, arg.value, as_flag));
  if (tag == "as_sym_ints") DC_RETURN_IF_ERROR(read_symbolic_list(inner, names, arg));
  return true;
}

// Enums of the export schema; false if the tag is none of these.
Result<bool> read_enum_argument(std::string_view tag, TapeValue inner, RawArg& arg) {
  if (tag == "as_device") {
    arg.value = ir::DeviceArg{};  // always the rank's own, whatever the archive was traced on
    return true;
  }
  if (tag != "as_scalar_type" && tag != "as_layout" && tag != "as_memory_format") return false;
  if (!inner.is(TokenKind::Integer)) return malformed(std::string(tag) + " is no number");
  const int64_t number = inner.integer();
  if (tag == "as_scalar_type") {
    const std::optional<base::DType> dtype = base::dtype_from_export(number);
    if (dtype) {
      arg.value = *dtype;
    } else {
      arg.refusal = "element type number " + std::to_string(number);
    }
  } else if (tag == "as_layout") {
    arg.value = ir::LayoutArg{number};
    if (number != 7) arg.refusal = "a layout other than strided";
  } else {
    arg.value = ir::MemoryFormatArg{number};
  }
  return true;
}

// Single tensors and scalars; false if the tag is none of these.
Result<bool> read_plain_argument(std::string_view tag, TapeValue inner, Names& names, RawArg& arg) {
  if (tag == "as_tensor") {
    DC_ASSIGN_OR_RETURN(const Name name, named(inner, names));
    arg.value = ir::OperandRef{name};
  } else if (tag == "as_int" && inner.is(TokenKind::Integer)) {
    arg.value = inner.integer();
  } else if (tag == "as_float") {
    const std::optional<double> value = as_real(inner);
    if (!value) return malformed("a float is no number");
    arg.value = *value;
  } else if (tag == "as_bool" && inner.is(TokenKind::Bool)) {
    arg.value = inner.integer() != 0;
  } else if (tag == "as_string" && inner.is(TokenKind::String)) {
    arg.value = std::string(inner.text());
  } else if (tag == "as_none") {
    arg.value = std::monostate{};
  } else {
    return false;
  }
  return true;
}

// Symbolic scalars are accepted as far as they are plain values.
Result<bool> read_symbolic_argument(std::string_view tag, TapeValue inner, Names& names,
                                    RawArg& arg) {
  if (tag == "as_sym_int") {
    int64_t value = 0;
    DC_RETURN_IF_ERROR(read_symbolic(inner, names, 0, arg, value));
    arg.value = value;
    return true;
  }
  const TapeValue value = inner.union_value();
  const bool is_named = inner.union_tag().present() && inner.union_tag().text() == "as_name" &&
                        value.is(TokenKind::String);
  if (is_named && (tag == "as_sym_bool" || tag == "as_sym_float")) {
    arg.symbols.emplace_back(0, names.intern(value.text()));
    if (tag == "as_sym_bool") arg.value = true;
    if (tag == "as_sym_float") arg.value = 0.0;
    return true;
  }
  if (tag == "as_sym_bool" && value.is(TokenKind::Bool)) {
    arg.value = value.integer() != 0;
    return true;
  }
  if (tag == "as_sym_float" && as_real(value) && inner.union_tag().text() == "as_float") {
    arg.value = *as_real(value);
    return true;
  }
  return false;
}

std::string refusal_of(std::string_view tag) {
  if (tag == "as_graph") return "a sub-graph (control flow, autocast or checkpoint region)";
  if (tag == "as_custom_obj") return "a custom object";
  return "an argument of kind " + std::string(tag.substr(0, 60));
}

}  // namespace

Status read_argument(TapeValue value, Names& names, RawArg& arg) {
  const TapeValue tag_value = value.union_tag();
  if (!tag_value.present()) return malformed("an argument is no union");
  const std::string_view tag = tag_value.text();
  const TapeValue inner = value.union_value();
  DC_ASSIGN_OR_RETURN(bool done, read_plain_argument(tag, inner, names, arg));
  if (done) return base::ok_status();
  DC_ASSIGN_OR_RETURN(done, read_list_argument(tag, inner, names, arg));
  if (done) return base::ok_status();
  DC_ASSIGN_OR_RETURN(done, read_enum_argument(tag, inner, arg));
  if (done) return base::ok_status();
  if (tag == "as_tensors") return read_tensors(inner, names, false, arg.value);
  if (tag == "as_optional_tensors") return read_tensors(inner, names, true, arg.value);
  if (tag == "as_optional_tensor") {
    DC_ASSIGN_OR_RETURN(
        done, read_plain_argument(
                  inner.union_tag().present() ? inner.union_tag().text() : std::string_view(),
                  inner.union_value(), names, arg));
    return done ? base::ok_status() : malformed("an optional tensor is no union");
  }
  DC_ASSIGN_OR_RETURN(done, read_symbolic_argument(tag, inner, names, arg));
  if (!done) arg.refusal = refusal_of(tag);
  return base::ok_status();
}

Status read_results(TapeValue value, Names& names, std::vector<Name>& results) {
  const TapeValue tag = value.union_tag();
  if (!tag.present()) return malformed("an output is no union");
  const TapeValue inner = value.union_value();
  if (tag.text() == "as_tensor") {
    DC_ASSIGN_OR_RETURN(const Name name, named(inner, names));
    results.push_back(name);
    return base::ok_status();
  }
  if (tag.text() != "as_tensors" && tag.text() != "as_optional_tensors") {
    results.push_back(-1);
    return base::ok_status();
  }
  ir::Arg::Value list;
  DC_RETURN_IF_ERROR(read_tensors(inner, names, tag.text() == "as_optional_tensors", list));
  for (const int name : std::get<ir::OperandList>(list).indices) results.push_back(name);
  return base::ok_status();
}

namespace {

// {"as_int": n} or {"as_expr": {"expr_str": ...}}.
Result<int64_t> read_extent(TapeValue value, ExtentKind kind, size_t dim, RawTensor& tensor) {
  const TapeValue inner = value.union_value();
  if (inner.is(TokenKind::Integer)) {
    if (inner.integer() < 0) return malformed("a size, stride or offset is negative");
    return inner.integer();
  }
  const TapeValue expression = inner.find("expr_str");
  if (!expression.is(TokenKind::String))
    return malformed("a size is neither a number nor symbolic");
  tensor.symbolic.push_back({kind, dim, std::string(expression.text())});
  return 1;
}

Status read_extents(TapeValue list, ExtentKind kind, RawTensor& tensor, ir::Shape& target) {
  if (!list.is(TokenKind::Array)) return malformed("a tensor has no sizes or strides");
  for (const TapeValue item : children(list)) {
    DC_ASSIGN_OR_RETURN(const int64_t value, read_extent(item, kind, target.size(), tensor));
    target.push_back(value);
  }
  return base::ok_status();
}

}  // namespace

bool is_addressable(const RawTensor& tensor) {
  std::optional<int64_t> reach = tensor.offset;
  std::optional<int64_t> count = 1;
  for (size_t i = 0; i < tensor.shape.size() && reach && count; ++i) {
    const int64_t size = tensor.shape[i];
    count = base::checked_mul(*count, size == 0 ? 1 : size);
    const auto step = base::checked_mul(size == 0 ? 0 : size - 1, tensor.strides[i]);
    reach = step ? base::checked_add(*reach, *step) : std::nullopt;
  }
  constexpr int64_t kMost = int64_t{1} << 56;
  return reach && count && *reach < kMost && *count < kMost;
}

Result<RawTensor> read_tensor(TapeValue value) {
  RawTensor tensor;
  const TapeValue dtype = value.find("dtype");
  const TapeValue layout = value.find("layout");
  if (!dtype.is(TokenKind::Integer) || !layout.is(TokenKind::Integer)) {
    return malformed("a tensor has no dtype or layout");
  }
  tensor.dtype = dtype.integer();
  tensor.layout = layout.integer();
  DC_RETURN_IF_ERROR(read_extents(value.find("sizes"), ExtentKind::Size, tensor, tensor.shape));
  DC_RETURN_IF_ERROR(
      read_extents(value.find("strides"), ExtentKind::Stride, tensor, tensor.strides));
  if (tensor.shape.size() != tensor.strides.size() || tensor.shape.size() > 64) {
    return malformed("a tensor's sizes and strides differ in number");
  }
  DC_ASSIGN_OR_RETURN(tensor.offset,
                      read_extent(value.find("storage_offset"), ExtentKind::Offset, 0, tensor));
  if (!is_addressable(tensor)) return malformed("a tensor is larger than any memory");
  return tensor;
}

Result<Name> read_tensor_name(TapeValue value, Names& names) {
  if (const TapeValue wrapped = value.find("as_tensor"); wrapped.present()) {
    return named(wrapped, names);
  }
  if (!value.find("name").present()) return Name{0};
  return named(value, names);
}

}  // namespace dc::frontend
