// How plan.h names the fields of its structs: DC_FIELDS(struct, its fields) right behind each, in
// the order in which tables and texts are written to a file. The lists are read through fields.h.
//   DC_FIELD(member)
//   DC_FIELD_AS(member, its name in JSON and text, its name in plan.fbs)
//   DC_BASE(base class, name)
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>

namespace dc::runtime::plan {

enum class InstructionKind : uint8_t;

template <typename Struct, typename T>
struct Field {
  std::string_view name;       // in JSON and in text
  std::string_view in_schema;  // in plan.fbs
  T Struct::*member;
  constexpr const T& of(const Struct& item) const { return item.*member; }
  constexpr T& of(Struct& item) const { return item.*member; }
};
// A base class of a struct, which is a table in the schema.
template <typename Struct, typename Base>
struct BaseField {
  std::string_view name, in_schema;
  constexpr const Base& of(const Struct& item) const { return item; }
  constexpr Base& of(Struct& item) const { return item; }
};

// A tuple of the fields of a struct.
template <typename Struct>
inline constexpr auto kFields = std::tuple<>();
// What only instructions of one kind have.
template <InstructionKind kind>
inline constexpr auto kBodyFields = std::tuple<>();

#define DC_FIELDS(struct_type, ...)                 \
  template <>                                       \
  inline constexpr auto kFields<struct_type> = [] { \
    using Struct = struct_type;                     \
    return std::tuple(__VA_ARGS__);                 \
  }()
#define DC_BODY_FIELDS(kind, ...)                                 \
  template <>                                                     \
  inline constexpr auto kBodyFields<InstructionKind::kind> = [] { \
    using Struct = Instruction;                                   \
    return std::tuple(__VA_ARGS__);                               \
  }()
#define DC_FIELD_AS(member, name, in_schema) \
  Field<Struct, decltype(Struct::member)> { name, in_schema, &Struct::member }
#define DC_FIELD(member) DC_FIELD_AS(member, #member, #member)
#define DC_BASE(base_class, name) \
  BaseField<Struct, base_class> { name, name }

}  // namespace dc::runtime::plan
