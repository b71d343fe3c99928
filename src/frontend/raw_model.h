// What model.json says, decoded but not yet interpreted: names are interned numbers, values are
// still referred to by name.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/ir/graph.h"
#include "src/ir/types.h"

namespace dc::frontend {

// Every text of a model once; a name is its number. 0 is the empty text.
using Name = int32_t;
class Names {
 public:
  Names() { intern(""); }
  Name intern(std::string_view text);
  const std::string& text(Name name) const { return texts_[static_cast<size_t>(name)]; }
  size_t size() const { return texts_.size(); }

 private:
  std::deque<std::string> texts_;                       // addresses stay
  std::unordered_map<std::string_view, Name> numbers_;  // lookups only
};

// A size, stride or offset that is an expression.
enum class ExtentKind : uint8_t { Size, Stride, Offset };
struct RawExtent {
  ExtentKind kind = ExtentKind::Size;
  size_t dim = 0;
  std::string expression;
};

struct RawTensor {
  int64_t dtype = 0;   // the archive's number; may be one we do not support
  int64_t layout = 7;  // strided
  ir::Shape shape;
  ir::Strides strides;
  int64_t offset = 0;
  std::vector<RawExtent> symbolic;  // those that are 1 above because they are expressions
};

struct RawArg {
  Name name = 0;
  bool keyword = false;
  // Tensors are OperandRef/OperandList that hold Names; -1 is None in a list.
  ir::Arg::Value value;
  // Symbolic numbers by name: (position in the list or 0, name).
  std::vector<std::pair<int, Name>> symbols;
  std::string refusal;  // set: a kind of argument that is not supported
};

struct RawNode {
  Name name = 0;
  Name target = 0;
  std::vector<RawArg> args;
  std::vector<Name> results;  // -1: None or not a tensor
  Name module = 0;
  ir::Phase phase = ir::Phase::Forward;
  bool accumulates = false;
  bool marked = false;  // the exporter said which phase
};

enum class RawInputKind : uint8_t { Parameter, Buffer, Constant, User, Token, Other };
struct RawInput {
  RawInputKind kind = RawInputKind::Other;
  Name value = 0;   // 0: not a tensor
  Name target = 0;  // FQN; for Other the tag
  bool persistent = true;
};

enum class RawOutputKind : uint8_t {
  User,
  Loss,
  ParameterGradient,
  InputGradient,
  BufferUpdate,
  Token,
  Other
};
struct RawOutput {
  RawOutputKind kind = RawOutputKind::Other;
  Name value = 0;  // 0: None or not a tensor
  Name target = 0;
};

struct RawRange {
  std::optional<int64_t> low, high;  // both inclusive
};

struct RawModel {
  Names names;
  int64_t schema_major = -1, schema_minor = -1;
  std::vector<RawNode> nodes;
  std::unordered_map<Name, RawTensor> tensors;  // lookups only
  std::unordered_map<Name, int64_t> integers;   // symbolic integers with a known value; lookups
  // Symbolic numbers that are expressions; lookups.
  std::unordered_map<Name, std::string> expressions;
  std::vector<RawInput> inputs;
  std::vector<RawOutput> outputs;
  std::map<std::string, RawRange> ranges;  // by symbol
  std::vector<std::string> guards;         // conditions on sizes of inputs, in Python
};

}  // namespace dc::frontend
