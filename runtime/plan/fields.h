// The fields of the plan's structs, as lists (plan.h). Encoding, decoding, JSON, text and
// comparison go by them. A field of the schema that is in no list, or a name that the schema does
// not have, does not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "runtime/plan/plan.h"

namespace dc::runtime::plan {

// What the one rank class runs.
inline constexpr auto kRankClassFields =
    std::tuple(Field<Plan, std::vector<Program>>{"programs", "programs", &Plan::programs},
               Field<Plan, std::vector<ProgramRun>>{"step", "step", &Plan::step});

// visit(field) for every field of a list, in order.
template <typename List, typename Visit>
constexpr void for_each_field(const List& list, Visit&& visit) {
  std::apply([&](const auto&... each) { (visit(each), ...); }, list);
}

// visit(std::integral_constant<InstructionKind, kind>()): makes of a value a constant.
template <typename Visit>
constexpr auto with_kind(InstructionKind kind, Visit&& visit) {
  using enum InstructionKind;
  switch (kind) {
    case Kernel:
      return visit(std::integral_constant<InstructionKind, Kernel>());
    case Collective:
      return visit(std::integral_constant<InstructionKind, Collective>());
    case Copy:
      return visit(std::integral_constant<InstructionKind, Copy>());
    case Signal:
      return visit(std::integral_constant<InstructionKind, Signal>());
    case Wait:
      break;
  }
  return visit(std::integral_constant<InstructionKind, Wait>());
}

// Some fields of a list, by name. A name that no field has does not compile.
template <const auto& list>
class FieldSet {
 public:
  template <typename... Names>
  consteval FieldSet(Names... names) {  // NOLINT: a list of names is a set of them
    (add(names), ...);
  }
  constexpr bool is_empty() const { return mask_ == 0; }
  // By its place in the list.
  constexpr bool has(size_t index) const { return (mask_ >> index & 1) != 0; }

 private:
  consteval void add(std::string_view name) {
    const uint64_t before = mask_;
    uint64_t bit = 1;
    for_each_field(list, [&](const auto& each) {
      if (each.name == name) mask_ |= bit;
      bit <<= 1;
    });
    if (mask_ == before) throw "no other field has that name";
  }
  uint64_t mask_ = 0;
};

}  // namespace dc::runtime::plan
