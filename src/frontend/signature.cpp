#include "src/frontend/signature.h"

#include <array>
#include <string>

#include "src/frontend/arguments.h"

namespace dc::frontend {
namespace {

using base::Result;

template <typename Kind>
struct Row {
  std::string_view tag;
  Kind kind;
  std::string_view target;  // member that names the parameter, buffer or input; empty: none
};

constexpr std::array<Row<RawInputKind>, 5> kInputs = {{
    {"parameter", RawInputKind::Parameter, "parameter_name"},
    {"buffer", RawInputKind::Buffer, "buffer_name"},
    {"tensor_constant", RawInputKind::Constant, "tensor_constant_name"},
    {"user_input", RawInputKind::User, ""},
    {"token", RawInputKind::Token, ""},
}};

constexpr std::array<Row<RawOutputKind>, 6> kOutputs = {{
    {"user_output", RawOutputKind::User, ""},
    {"loss_output", RawOutputKind::Loss, ""},
    {"gradient_to_parameter", RawOutputKind::ParameterGradient, "parameter_name"},
    {"gradient_to_user_input", RawOutputKind::InputGradient, "user_input_name"},
    {"buffer_mutation", RawOutputKind::BufferUpdate, "buffer_name"},
    {"token", RawOutputKind::Token, ""},
}};

// The parts that inputs and outputs share.
template <typename Spec, typename Rows>
Result<Spec> read_spec(TapeValue value, Names& names, const Rows& rows) {
  const TapeValue tag = value.union_tag();
  if (!tag.present()) return malformed("an entry of the signature is no union");
  const TapeValue inner = value.union_value();
  Spec spec;
  for (const auto& row : rows) {
    if (row.tag != tag.text()) continue;
    spec.kind = row.kind;
    DC_ASSIGN_OR_RETURN(spec.value, read_tensor_name(inner.find("arg"), names));
    if (row.target.empty()) return spec;
    const TapeValue target = inner.find(row.target);
    if (!target.is(TokenKind::String)) return malformed("an entry of the signature has no name");
    spec.target = names.intern(target.text());
    return spec;
  }
  spec.target = names.intern(tag.text());
  return spec;
}

}  // namespace

Result<RawInput> read_input_spec(TapeValue value, Names& names) {
  DC_ASSIGN_OR_RETURN(RawInput input, read_spec<RawInput>(value, names, kInputs));
  const TapeValue persistent = value.union_value().find("persistent");
  if (persistent.is(TokenKind::Bool)) input.persistent = persistent.integer() != 0;
  return input;
}

Result<RawOutput> read_output_spec(TapeValue value, Names& names) {
  return read_spec<RawOutput>(value, names, kOutputs);
}

}  // namespace dc::frontend
