#include "src/ir/text_reader.h"

#include <charconv>
#include <limits>

#include "src/base/checked.h"
#include "src/ir/lexer.h"

namespace dc::ir {

TextReader::TextReader(std::string_view text) {
  const std::string wrong = tokenize(text, tokens_);
  if (wrong.empty()) return;
  at_ = tokens_.size() - 1;
  fail("DC2001", wrong);
  tokens_.push_back(Token{TokenKind::End, {}, tokens_.back().line, tokens_.back().column});
  at_ = tokens_.size() - 1;
}

bool TextReader::fail(std::string_view code, const std::string& what) {
  return fail_at(peek(), code, what);
}

bool TextReader::fail_at(const Token& token, std::string_view code, const std::string& what) {
  if (failed()) return false;
  error_ = base::Status(
      base::ErrorKind::BadInput, std::string(code),
      "line " + std::to_string(token.line) + ":" + std::to_string(token.column) + ": " + what);
  return false;
}

std::string TextReader::found() const {
  const Token& token = peek();
  switch (token.kind) {
    case TokenKind::End:
      return "the end of the text";
    case TokenKind::Value:
      return "%" + token.text;
    case TokenKind::Symbol:
      return "@" + token.text;
    case TokenKind::String:
      return "the string \"" + token.text + "\"";
    case TokenKind::Identifier:
    case TokenKind::Integer:
    case TokenKind::Float:
    case TokenKind::Punct:
      break;
  }
  return "'" + token.text + "'";
}

bool TextReader::at_punct(char c) const {
  return peek().kind == TokenKind::Punct && peek().text[0] == c;
}

bool TextReader::at_word(std::string_view word) const {
  return peek().kind == TokenKind::Identifier && peek().text == word;
}

bool TextReader::accept_punct(char c) {
  if (!at_punct(c)) return false;
  next();
  return true;
}

bool TextReader::accept_word(std::string_view word) {
  if (!at_word(word)) return false;
  next();
  return true;
}

bool TextReader::punct(char c) {
  return accept_punct(c) || expected("'" + std::string(1, c) + "'");
}

bool TextReader::keyword(std::string_view word) {
  return accept_word(word) || expected("'" + std::string(word) + "'");
}

bool TextReader::identifier(std::string& out, std::string_view what) {
  if (peek().kind != TokenKind::Identifier && peek().kind != TokenKind::String)
    return expected(what);
  out = next().text;
  return true;
}

bool TextReader::string(std::string& out, std::string_view what) {
  if (peek().kind != TokenKind::String) return expected(std::string(what) + " in quotes");
  out = next().text;
  return true;
}

bool TextReader::symbol(std::string& out, std::string_view what) {
  if (peek().kind != TokenKind::Symbol) return expected(what);
  out = next().text;
  return true;
}

bool TextReader::integer(int64_t& out, std::string_view what) {
  const Token token = peek();
  if (token.kind != TokenKind::Integer) return expected(what);
  const char* end = token.text.data() + token.text.size();
  if (std::from_chars(token.text.data(), end, out).ec != std::errc()) {
    return fail("DC2003", "the integer " + token.text + " does not fit 64 bits");
  }
  next();
  return true;
}

bool TextReader::small_integer(int& out, std::string_view what, int least) {
  const Token token = peek();
  int64_t wide = 0;
  if (!integer(wide, what)) return false;
  if (wide < least || wide > std::numeric_limits<int>::max()) {
    return fail_at(token, "DC2003", std::string(what) + " " + token.text + " is out of range");
  }
  out = static_cast<int>(wide);
  return true;
}

bool TextReader::unsigned_integer(uint64_t& out, std::string_view what) {
  const Token token = peek();
  if (token.kind != TokenKind::Integer) return expected(what);
  const char* end = token.text.data() + token.text.size();
  if (std::from_chars(token.text.data(), end, out).ec != std::errc()) {
    return fail("DC2003", "the integer " + token.text + " is not one of 64 bits without sign");
  }
  next();
  return true;
}

bool TextReader::number(double& out, std::string_view what) {
  const Token token = peek();
  if (token.kind == TokenKind::Identifier && (token.text == "inf" || token.text == "nan")) {
    out = token.text == "inf" ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
    next();
    return true;
  }
  if (token.kind != TokenKind::Float && token.kind != TokenKind::Integer) return expected(what);
  const char* end = token.text.data() + token.text.size();
  if (std::from_chars(token.text.data(), end, out).ec != std::errc()) {
    return fail("DC2003", "the number " + token.text + " is out of range");
  }
  next();
  return true;
}

bool TextReader::ints(Shape& out, char open, char close) {
  if (!punct(open)) return false;
  while (!accept_punct(close)) {
    if (!out.empty() && !punct(',')) return false;
    int64_t value = 0;
    if (!integer(value, "an integer")) return false;
    out.push_back(value);
  }
  return true;
}

bool TextReader::dtype(DType& out) {
  const auto dtype =
      peek().kind == TokenKind::Identifier ? base::dtype_from_name(peek().text) : std::nullopt;
  if (!dtype) return expected("an element type such as f32");
  out = *dtype;
  next();
  return true;
}

bool TextReader::type(TensorType& out, const Mesh& mesh) {
  const Token start = peek();
  if (!dtype(out.dtype) || !ints(out.shape, '[', ']')) return false;
  for (int64_t size : out.shape) {
    if (size < -1) return fail_at(start, "DC2003", "a dim has a negative size");
  }
  out.strides.assign(out.shape.size(), 0);
  if (!representable(out, start)) return false;
  out.strides = contiguous_strides(out.shape);
  if (same_line() && at_word("strides")) {
    next();
    out.strides.clear();
    if (!punct('=') || !ints(out.strides, '(', ')')) return false;
    if (out.strides.size() != out.shape.size()) {
      return fail_at(start, "DC2003", "a type needs one stride per dim");
    }
  }
  if (same_line() && at_word("offset")) {
    next();
    if (!punct('=') || !integer(out.offset, "an offset in elements")) return false;
  }
  return representable(out, start) && sharding(out, mesh);
}

// No type may make size arithmetic overflow later.
bool TextReader::representable(const TensorType& type, const Token& where) {
  constexpr int64_t kLimit = int64_t{1} << 56;  // elements
  int64_t count = 1, reach = 0;
  for (size_t i = 0; i < type.shape.size(); ++i) {
    const int64_t size = type.shape[i] > 0 ? type.shape[i] : 1;
    const auto elements = base::checked_mul(count, size);
    const auto distance = base::checked_mul(size, type.strides[i]);
    if (!elements || *elements > kLimit || !distance || *distance > kLimit || *distance < -kLimit) {
      return fail_at(where, "DC2003", "the type is too large");
    }
    count = *elements;
    reach += *distance < 0 ? -*distance : *distance;
    if (reach > kLimit) return fail_at(where, "DC2003", "the type is too large");
  }
  if (type.offset > kLimit || type.offset < -kLimit) {
    return fail_at(where, "DC2003", "the offset is too large");
  }
  return true;
}

bool TextReader::sharding(TensorType& out, const Mesh& mesh) {
  while (same_line() && peek().kind == TokenKind::Identifier) {
    const auto placement = from_word<AxisPlacement>(peek().text);
    const Token& after = tokens_[at_ + 1];  // the last token is End, which is no identifier
    if (!placement || after.kind != TokenKind::Punct || after.text != "<") return true;
    next();
    size_t index = 0;
    if (!punct('<') || !axis(index, mesh)) return false;
    AxisSharding& target = out.sharding[index];
    target.placement = *placement;
    if (*placement == AxisPlacement::Shard) {
      int dim = 0;
      if (!punct(',') || !small_integer(dim, "a tensor dim", 0)) return false;
      if (dim > 127) return fail("DC2003", "the tensor dim is out of range");
      target.dim = static_cast<int8_t>(dim);
    }
    if (!punct('>')) return false;
  }
  return true;
}

bool TextReader::axis(size_t& out, const Mesh& mesh) {
  const Token token = peek();
  if (accept_punct('#')) {
    int index = 0;
    if (!small_integer(index, "a mesh axis", 0)) return false;
    if (static_cast<size_t>(index) >= kMaxAxes) {
      return fail_at(token, "DC2003", "the mesh axis is out of range");
    }
    out = static_cast<size_t>(index);
    return true;
  }
  std::string name;
  if (!identifier(name, "a mesh axis")) return false;
  for (out = 0; out < mesh.axes.size(); ++out) {
    if (mesh.axes[out].name == name) return true;
  }
  return fail_at(token, "DC2002", "the mesh has no axis '" + name + "'");
}

bool TextReader::location(Location& out) {
  if (!enumerator(out.space, "a memory space")) return false;
  if (!accept_punct(':')) return true;
  if (!accept_punct('?') && !integer(out.offset, "an offset in bytes or '?'")) return false;
  return punct('+') && integer(out.bytes, "a size in bytes");
}

}  // namespace dc::ir
