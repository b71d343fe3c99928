#include "src/frontend/tape.h"

namespace dc::frontend {

TokenKind TapeValue::kind() const {
  return tape_ == nullptr ? TokenKind::None : tape_->tokens_[index_].kind;
}

int64_t TapeValue::integer() const { return tape_->tokens_[index_].integer; }

double TapeValue::real() const {
  const Token& token = tape_->tokens_[index_];
  return token.kind == TokenKind::Integer ? static_cast<double>(token.integer) : token.real;
}

std::string_view TapeValue::text() const {
  const Token& token = tape_->tokens_[index_];
  return std::string_view(tape_->text_).substr(token.text_begin, token.text_size);
}

TapeValue TapeValue::find(std::string_view key) const {
  if (!is(TokenKind::Object)) return {};
  for (TapeValue child = first(); child.present();) {
    const TapeValue value = next(child);
    if (child.text() == key) return value;
    child = next(value);
  }
  return {};
}

TapeValue TapeValue::first() const {
  if (!is(TokenKind::Array) && !is(TokenKind::Object)) return {};
  if (tape_->tokens_[index_].after == index_ + 1) return {};
  return {tape_, index_ + 1};
}

TapeValue TapeValue::next(TapeValue child) const {
  const uint32_t following = tape_->tokens_[child.index_].after;
  if (following >= tape_->tokens_[index_].after) return {};
  return {tape_, following};
}

TapeValue TapeValue::union_tag() const {
  if (!is(TokenKind::Object)) return {};
  const TapeValue tag = first();
  if (!tag.present() || next(next(tag)).present()) return {};
  return tag;
}

TapeValue TapeValue::union_value() const {
  const TapeValue tag = union_tag();
  return tag.present() ? next(tag) : TapeValue();
}

void Tape::clear() {
  tokens_.clear();
  open_.clear();
  text_.clear();
}

void Tape::add(TokenKind kind, int64_t integer, double real) {
  Token& token = tokens_.emplace_back();
  token.kind = kind;
  token.integer = integer;
  token.real = real;
  token.after = static_cast<uint32_t>(tokens_.size());
}

void Tape::add_text(std::string_view text) {
  add(TokenKind::String);
  tokens_.back().text_begin = static_cast<uint32_t>(text_.size());
  tokens_.back().text_size = static_cast<uint32_t>(text.size());
  text_ += text;
}

void Tape::open(TokenKind kind) {
  open_.push_back(static_cast<uint32_t>(tokens_.size()));
  add(kind);
}

void Tape::close() {
  tokens_[open_.back()].after = static_cast<uint32_t>(tokens_.size());
  open_.pop_back();
}

}  // namespace dc::frontend
