#include "src/base/kernel_key.h"

#include <charconv>

namespace dc::base {
namespace {

void append(std::string& text, double value) {
  char buffer[32];
  const std::to_chars_result end = std::to_chars(buffer, buffer + sizeof buffer, value);
  text.append(buffer, end.ptr);
}

void append_list(std::string& text, std::span<const int64_t> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (i) text += ',';
    text += std::to_string(values[i]);
  }
}

}  // namespace

KernelKey::KernelKey(std::string_view op) : text_(op), attributes_(!op.starts_with("dc.")) {}

void KernelKey::tensor(DType dtype, std::span<const int64_t> sizes,
                       std::span<const int64_t> strides) {
  text_ += ' ';
  text_ += name(dtype);
  text_ += '[';
  append_list(text_, sizes);
  text_ += "](";
  append_list(text_, strides);
  text_ += ')';
}

void KernelKey::none() { text_ += " none"; }
void KernelKey::begin_results() { text_ += " ->"; }

void KernelKey::attribute(std::string_view name, std::string_view value) {
  if (!attributes_) return;
  text_ += ' ';
  text_ += name;
  text_ += '=';
  text_ += value;
}

void KernelKey::attribute(std::string_view name, int64_t value) {
  attribute(name, std::string_view(std::to_string(value)));
}

void KernelKey::attribute(std::string_view name, double value) {
  std::string text;
  append(text, value);
  attribute(name, std::string_view(text));
}

void KernelKey::attribute(std::string_view name, std::span<const int64_t> values) {
  std::string text = "[";
  append_list(text, values);
  attribute(name, std::string_view(text + "]"));
}

void KernelKey::attribute(std::string_view name, std::span<const double> values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i) text += ',';
    append(text, values[i]);
  }
  attribute(name, std::string_view(text + "]"));
}

}  // namespace dc::base
