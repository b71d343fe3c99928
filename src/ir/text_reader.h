// Tokens of the textual form, and a cursor over them that remembers the first error with its line
// and column.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/ir/enum_words.h"
#include "src/ir/graph.h"
#include "src/ir/types.h"

namespace dc::ir {

enum class TokenKind : uint8_t { Identifier, Value, Symbol, Integer, Float, String, Punct, End };
struct Token {
  TokenKind kind = TokenKind::End;
  std::string text;  // without sigil and quotes; escapes resolved
  int line = 1, column = 1;
};

// Every function returns false after the first error; the caller passes it on.
class TextReader {
 public:
  explicit TextReader(std::string_view text);

  bool failed() const { return !error_.ok(); }
  base::Status take_error() { return std::move(error_); }
  bool fail(std::string_view code, const std::string& what);  // at the current token
  bool fail_at(const Token& token, std::string_view code, const std::string& what);
  bool expected(std::string_view what) {
    return fail("DC2001", "expected " + std::string(what) + ", found " + found());
  }

  const Token& peek() const { return tokens_[at_]; }
  const Token& previous() const { return tokens_[at_ > 0 ? at_ - 1 : 0]; }
  bool same_line() const { return peek().kind != TokenKind::End && peek().line == previous().line; }
  bool at_punct(char c) const;
  bool at_word(std::string_view word) const;
  Token next() { return peek().kind == TokenKind::End ? peek() : tokens_[at_++]; }
  bool accept_punct(char c);
  bool accept_word(std::string_view word);
  bool punct(char c);                                        // must be next
  bool keyword(std::string_view word);                       // must be next
  bool identifier(std::string& out, std::string_view what);  // bare or quoted
  bool string(std::string& out, std::string_view what);
  bool symbol(std::string& out, std::string_view what);  // @name
  bool integer(int64_t& out, std::string_view what);
  bool small_integer(int& out, std::string_view what, int least);
  bool unsigned_integer(uint64_t& out, std::string_view what);
  bool number(double& out, std::string_view what);  // an integer is read as a number too
  bool ints(Shape& out, char open, char close);
  bool dtype(DType& out);
  bool type(TensorType& out, const Mesh& mesh);
  bool location(Location& out);
  template <typename Enum>
  bool enumerator(Enum& out, std::string_view what) {
    const Token token = peek();
    const auto value =
        token.kind == TokenKind::Identifier ? from_word<Enum>(token.text) : std::nullopt;
    if (!value) return expected(what);
    out = *value;
    next();
    return true;
  }

 private:
  std::string found() const;
  bool sharding(TensorType& out, const Mesh& mesh);
  bool axis(size_t& out, const Mesh& mesh);
  bool representable(const TensorType& type, const Token& where);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  base::Status error_;
};

}  // namespace dc::ir
