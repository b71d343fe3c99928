#include "src/ir/lexer.h"

#include <optional>

namespace dc::ir {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_char(char c) { return is_letter(c) || is_digit(c) || c == '.'; }

std::optional<int> hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return std::nullopt;
}

class Lexer {
 public:
  Lexer(std::string_view text, std::vector<Token>& out) : text_(text), out_(out) {}

  std::string run() {
    while (skip_blank(), at_ < text_.size()) {
      out_.push_back(Token{TokenKind::Punct, {}, line_, static_cast<int>(at_ - line_start_) + 1});
      if (std::string wrong = token(out_.back()); !wrong.empty()) return wrong;
    }
    out_.push_back(Token{TokenKind::End, {}, line_, static_cast<int>(at_ - line_start_) + 1});
    return {};
  }

 private:
  char look(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  void skip_blank() {
    while (at_ < text_.size()) {
      const char c = look();
      if (c == '\n') {
        ++line_;
        line_start_ = ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r') {
        ++at_;
      } else if (c == '/' && look(1) == '/') {
        while (at_ < text_.size() && look() != '\n') ++at_;
      } else {
        return;
      }
    }
  }

  std::string token(Token& token) {
    const char c = look();
    if (c == '%' || c == '@') {
      token.kind = c == '%' ? TokenKind::Value : TokenKind::Symbol;
      ++at_;
      if (look() == '"') return string(token.text);
      token.text = name();
      return token.text.empty() ? "a name must follow the sigil" : "";
    }
    if (c == '"') {
      token.kind = TokenKind::String;
      return string(token.text);
    }
    if (is_letter(c)) {
      token.kind = TokenKind::Identifier;
      token.text = name();
      return {};
    }
    if (text_.substr(at_, 4) == "-inf" && !is_name_char(look(4))) {
      token.kind = TokenKind::Float;
      token.text = "-inf";
      at_ += 4;
      return {};
    }
    if (is_digit(c) || (c == '-' && is_digit(look(1)))) {
      number(token);
      return {};
    }
    token.text = std::string(1, c);
    ++at_;
    constexpr std::string_view kPuncts = "{}()[]<>=,;:+-#?";
    return kPuncts.find(c) == std::string_view::npos ? "unexpected character" : "";
  }

  std::string name() {
    const size_t start = at_;
    while (is_name_char(look())) ++at_;
    return std::string(text_.substr(start, at_ - start));
  }

  void number(Token& token) {
    const size_t start = at_;
    token.kind = TokenKind::Integer;
    if (look() == '-') ++at_;
    while (is_digit(look())) ++at_;
    if (look() == '.' && is_digit(look(1))) {
      token.kind = TokenKind::Float;
      ++at_;
      while (is_digit(look())) ++at_;
    }
    const size_t sign = look(1) == '+' || look(1) == '-' ? 1 : 0;
    if (look() == 'e' && is_digit(look(1 + sign))) {
      token.kind = TokenKind::Float;
      at_ += 1 + sign;
      while (is_digit(look())) ++at_;
    }
    token.text = std::string(text_.substr(start, at_ - start));
  }

  std::string string(std::string& out) {
    ++at_;
    while (look() != '"') {
      if (at_ >= text_.size() || look() == '\n') return "the string has no closing quote";
      if (look() != '\\') {
        out += text_[at_++];
        continue;
      }
      ++at_;
      const char c = look();
      const auto high = hex_digit(look(1)), low = hex_digit(look(2));
      if (c == '"' || c == '\\') {
        out += c;
      } else if (c == 'n') {
        out += '\n';
      } else if (c == 'x' && high && low) {
        out += static_cast<char>(*high * 16 + *low);
        at_ += 2;
      } else {
        return "unknown escape in a string";
      }
      ++at_;
    }
    ++at_;
    return {};
  }

  std::string_view text_;
  std::vector<Token>& out_;
  size_t at_ = 0, line_start_ = 0;
  int line_ = 1;
};

}  // namespace

std::string tokenize(std::string_view text, std::vector<Token>& out) {
  return Lexer(text, out).run();
}

}  // namespace dc::ir
