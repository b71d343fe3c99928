// The text of a KernelSignature:
//   signature = op { " " (tensor | "none" | attribute) } " ->" { " " (tensor | "none") }
//   tensor    = dtype "[" integers "](" integers ")"
//   attribute = name "=" ( "none" | number | "[" numbers "]" | word | quoted )
// A word is a string of letters, digits and "_.-" that begins with a letter or "_"; others are
// quoted, with a backslash before quotes and backslashes.
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "src/base/kernel_items.h"
#include "src/base/kernel_signature.h"

namespace dc::base {
namespace {

constexpr size_t kMostNameBytes = 4096;  // of an attribute; signatures have room for 2^24

constexpr std::string_view kNone = "none", kArrow = "->";

void append_number(std::string& text, double value) {
  char buffer[32];
  const std::to_chars_result end = std::to_chars(buffer, buffer + sizeof buffer, value);
  text.append(buffer, end.ptr);
}

void append_number(std::string& text, int64_t value) { text += std::to_string(value); }

template <typename Number>
void append_list(std::string& text, std::span<const int64_t> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (i) text += ',';
    append_number(text, std::bit_cast<Number>(values[i]));
  }
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_decimal(char c) { return c >= '0' && c <= '9'; }

bool is_word(std::string_view text) {
  return !text.empty() && is_letter(text[0]) && std::all_of(text.begin(), text.end(), [](char c) {
    return is_letter(c) || is_decimal(c) || c == '.' || c == '-';
  });
}

template <typename Number>
bool parse_number(std::string_view text, Number& value) {
  const std::from_chars_result read =
      std::from_chars(text.data(), text.data() + text.size(), value);
  return read.ec == std::errc() && read.ptr == text.data() + text.size();
}

void append_string(std::string& text, std::string_view value) {
  double unused = 0;  // "nan" and "inf" are words that are read as numbers
  if (is_word(value) && !parse_number(value, unused)) {
    text += value;
    return;
  }
  text += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  text += '"';
}

void append(std::string& text, const KernelItem& item) {
  text += ' ';
  if (!item.name.empty()) text.append(item.name) += '=';
  switch (item.kind) {
    case KernelItemKind::Tensor:
      text.append(name(item.tensor.dtype)) += '[';
      append_list<int64_t>(text, item.tensor.shape);
      text += "](";
      append_list<int64_t>(text, item.tensor.strides);
      text += ')';
      return;
    case KernelItemKind::NoTensor:
    case KernelItemKind::None:
      text += kNone;
      return;
    case KernelItemKind::Results:
      text += kArrow;
      return;
    case KernelItemKind::Int:
      return append_list<int64_t>(text, item.values);
    case KernelItemKind::Double:
      return append_list<double>(text, item.values);
    case KernelItemKind::Ints:
      text += '[';
      append_list<int64_t>(text, item.values);
      text += ']';
      return;
    case KernelItemKind::Doubles:
      text += '[';
      append_list<double>(text, item.values);
      text += ']';
      return;
    case KernelItemKind::String:
      return append_string(text, item.text);
  }
}

// Reads a text from its front. What it cannot read it says by returning false.
class SignatureParser {
 public:
  SignatureParser(std::string_view text, Provider provider) : rest_(text) {
    const std::string_view op = take_until(" ");
    signature_ = KernelSignature(op, provider);
    good_ = !op.empty();
  }

  std::optional<KernelSignature> run() {
    bool results = false;
    while (good_ && !rest_.empty()) {
      if (!skip(' ')) return std::nullopt;
      const std::string_view token = rest_.substr(0, rest_.find(' '));
      if (token == kArrow && !results) {
        results = true;
        rest_.remove_prefix(token.size());
        signature_.begin_results();
      } else if (token == kNone) {
        rest_.remove_prefix(token.size());
        signature_.add_none();
      } else if (token.find_first_of("[=") != std::string_view::npos &&
                 token[token.find_first_of("[=")] == '[') {
        good_ = read_tensor();
      } else {
        good_ = !results && read_attribute();
      }
    }
    if (!good_ || !results) return std::nullopt;
    return std::move(signature_);
  }

 private:
  std::string_view take_until(std::string_view ends) {
    const std::string_view taken = rest_.substr(0, rest_.find_first_of(ends));
    rest_.remove_prefix(taken.size());
    return taken;
  }
  bool skip(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  // "1,2,3" up to `end`, which is taken too.
  template <typename Number>
  static bool split(std::string_view list, std::vector<Number>& values) {
    while (!list.empty()) {
      const size_t comma = list.find(',');
      Number value{};
      if (!parse_number(list.substr(0, comma), value)) return false;
      values.push_back(value);
      if (comma == std::string_view::npos) return true;
      list.remove_prefix(comma + 1);
      if (list.empty()) return false;
    }
    return true;
  }

  bool read_tensor() {
    const auto dtype = dtype_from_name(take_until("["));
    std::vector<int64_t> shape, strides;
    if (!dtype || !skip('[') || !split(take_until("]"), shape) || !skip(']')) return false;
    if (!skip('(') || !split(take_until(")"), strides) || !skip(')')) return false;
    if (shape.size() != strides.size()) return false;
    if (std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size < 0; }))
      return false;
    signature_.add_tensor(*dtype, shape, strides);
    return true;
  }

  bool read_attribute() {
    const std::string_view name = take_until(" =");
    if (name.empty() || name.size() > kMostNameBytes || !skip('=') || !signature_.has_attributes())
      return false;
    if (skip('"')) return read_quoted(name);
    if (skip('[')) return read_list(name);
    const std::string_view value = take_until(" ");
    int64_t integer = 0;
    double real = 0;
    if (value == kNone) {
      signature_.add_attribute(name);
    } else if (parse_number(value, integer)) {
      signature_.add_attribute(name, integer);
    } else if (parse_number(value, real)) {
      signature_.add_attribute(name, real);
    } else if (is_word(value)) {
      signature_.add_attribute(name, value);
    } else {
      return false;
    }
    return true;
  }

  bool read_list(std::string_view name) {
    const std::string_view list = take_until("]");
    if (!skip(']')) return false;
    std::vector<int64_t> integers;
    std::vector<double> reals;
    if (split(list, integers)) {
      signature_.add_attribute(name, std::span<const int64_t>(integers));
    } else if (split(list, reals)) {
      signature_.add_attribute(name, std::span<const double>(reals));
    } else {
      return false;
    }
    return true;
  }

  bool read_quoted(std::string_view name) {
    std::string value;
    while (!rest_.empty() && rest_[0] != '"') {
      if (skip('\\') && rest_.empty()) return false;
      value += rest_[0];
      rest_.remove_prefix(1);
    }
    signature_.add_attribute(name, std::string_view(value));
    return skip('"');
  }

  std::string_view rest_;
  KernelSignature signature_;
  bool good_ = false;
};

}  // namespace

std::string KernelSignature::text() const {
  std::string text(op());
  KernelItems items(*this);
  while (const auto item = items.next()) append(text, *item);
  return text;
}

std::optional<KernelSignature> KernelSignature::parse(std::string_view text, Provider provider,
                                                      Space space) {
  auto signature = SignatureParser(text, provider).run();
  if (signature && space != Space::Device) return signature->in(space);
  return signature;
}

}  // namespace dc::base
