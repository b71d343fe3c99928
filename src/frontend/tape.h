// A small piece of JSON as a flat list of tokens, reused from piece to piece without allocation.
//
// The big document is never a tree: one node of the graph at a time lies on the tape.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dc::frontend {

enum class TokenKind : uint8_t { None, Null, Bool, Integer, Real, String, Array, Object };

struct Token {
  TokenKind kind = TokenKind::Null;
  uint32_t after = 0;  // index of the token behind this value
  uint32_t text_begin = 0, text_size = 0;
  int64_t integer = 0;  // also Bool
  double real = 0;
};

class Tape;

// A value on the tape. A default one has kind None: absent. Views die when the tape is cleared.
class TapeValue {
 public:
  TapeValue() = default;
  TapeValue(const Tape* tape, uint32_t index) : tape_(tape), index_(index) {}

  bool present() const { return tape_ != nullptr; }
  TokenKind kind() const;
  bool is(TokenKind kind) const { return this->kind() == kind; }
  int64_t integer() const;        // requires Integer or Bool
  double real() const;            // requires Real or Integer
  std::string_view text() const;  // requires String

  TapeValue find(std::string_view key) const;  // absent unless an object with this key
  // Children of an array, or alternating keys and values of an object.
  TapeValue first() const;
  TapeValue next(TapeValue child) const;
  // The name and value of a union: an object with exactly one member; absent otherwise.
  TapeValue union_tag() const;
  TapeValue union_value() const;

 private:
  const Tape* tape_ = nullptr;
  uint32_t index_ = 0;
};

class Tape {
 public:
  void clear();
  bool empty() const { return tokens_.empty(); }
  void add(TokenKind kind, int64_t integer = 0, double real = 0);
  void add_text(std::string_view text);
  void open(TokenKind kind);
  void close();
  TapeValue root() const { return {this, 0}; }

 private:
  friend class TapeValue;
  std::vector<Token> tokens_;
  std::vector<uint32_t> open_;
  std::string text_;
};

// for (TapeValue item : children(array))
class Children {
 public:
  explicit Children(TapeValue parent) : parent_(parent) {}
  struct Iterator {
    TapeValue parent, child;
    TapeValue operator*() const { return child; }
    Iterator& operator++() {
      child = parent.next(child);
      return *this;
    }
    bool operator!=(const Iterator&) const { return child.present(); }
  };
  Iterator begin() const { return {parent_, parent_.first()}; }
  Iterator end() const { return {parent_, {}}; }

 private:
  TapeValue parent_;
};
inline Children children(TapeValue parent) { return Children(parent); }

}  // namespace dc::frontend
