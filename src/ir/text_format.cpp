#include "src/ir/text_format.h"

#include <charconv>
#include <cmath>

#include "src/ir/enum_words.h"

namespace dc::ir {
namespace {

bool is_bare_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.';
}

std::string axis_name(size_t axis, const Mesh& mesh) {
  if (axis >= mesh.axes.size()) return "#" + std::to_string(axis);
  return identifier(mesh.axes[axis].name);
}

}  // namespace

bool is_bare_name(std::string_view name) {
  if (name.empty()) return false;
  for (char c : name) {
    if (!is_bare_char(c)) return false;
  }
  return true;
}

bool is_identifier(std::string_view name) {
  return is_bare_name(name) && !(name[0] >= '0' && name[0] <= '9') && name[0] != '.';
}

std::string identifier(std::string_view name) {
  return is_identifier(name) ? std::string(name) : quoted(name);
}

std::string quoted(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string named(char sigil, std::string_view name) {
  std::string out(1, sigil);
  return is_bare_name(name) ? out.append(name) : out + quoted(name);
}

std::string format_double(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  std::string out(text, end);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

std::string format_ints(std::span<const int64_t> values, char open, char close) {
  std::string out(1, open);
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(values[i]);
  }
  return out + close;
}

std::string format_type(const TensorType& type, const Mesh& mesh) {
  std::string out(base::name(type.dtype));
  out += format_ints(type.shape, '[', ']');
  if (type.strides != contiguous_strides(type.shape)) {
    out += " strides=" + format_ints(type.strides, '(', ')');
  }
  if (type.offset != 0) out += " offset=" + std::to_string(type.offset);
  for (size_t i = 0; i < kMaxAxes; ++i) {
    const AxisSharding& axis = type.sharding[i];
    if (axis.placement == AxisPlacement::Replicated) continue;
    out += ' ';
    out += word(axis.placement);
    out += '<' + axis_name(i, mesh);
    if (axis.placement == AxisPlacement::Shard) out += "," + std::to_string(axis.dim);
    out += '>';
  }
  return out;
}

bool is_default(const Location& location) {
  return location.space == Space::Device && !location.placed() && location.bytes == 0;
}

std::string format_location(const Location& location) {
  std::string out(word(location.space));
  if (!location.placed() && location.bytes == 0) return out;
  out += ':';
  out += location.placed() ? std::to_string(location.offset) : "?";
  return out + "+" + std::to_string(location.bytes);
}

}  // namespace dc::ir
