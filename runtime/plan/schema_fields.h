// How the fields of the plan's structs (fields.h) and the tables of plan.fbs belong together, by
// name. Only for encode.cpp and decode.cpp: FlatBuffers types stop here.
#pragma once

#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "runtime/plan/fields.h"
#include "schemas/plan_generated.h"
#include "src/base/enum_names.h"

namespace dc::runtime::plan {

// The place of a field in its table.
template <typename Table>
consteval size_t place_in(std::string_view field) {
  for (size_t i = 0; i < Table::Traits::field_names.size(); ++i) {
    if (Table::Traits::field_names[i] == field) return i;
  }
  throw "plan.fbs has no field of that name in the table";
}

// visit(field, its place as a constant) for every field of `list` in order. `others`: how many
// fields of the table are not in the list.
template <typename Table, auto& list, size_t others = 0, typename Visit>
constexpr void for_each_place(Visit&& visit) {
  constexpr size_t count = std::tuple_size_v<std::remove_cvref_t<decltype(list)>>;
  static_assert(count + others == Table::Traits::fields_number,
                "a field of plan.fbs is in no list of plan.h");
  [&]<size_t... I>(std::index_sequence<I...>) {
    (visit(std::get<I>(list),
           std::integral_constant<size_t, place_in<Table>(std::get<I>(list).in_schema)>()),
     ...);
  }
  (std::make_index_sequence<count>());
}

// Numbers of enumerators are equal here and in the schema, so they are cast.
template <typename Ours, typename Schema>
inline constexpr bool kSameEnum = base::enum_count<Ours>() == static_cast<size_t>(Schema::MAX) + 1;
// Those of PyTorch's export, with gaps.
template <>
inline constexpr bool kSameEnum<DType, dc::schema::DType> =
    base::sparse_enum_count<DType, static_cast<size_t>(dc::schema::DType::MAX) + 1>() ==
    std::extent_v<std::remove_reference_t<decltype(dc::schema::EnumValuesDType())>>;

// The tables of instructions' bodies, in the order of InstructionKind.
using BodyTables = std::tuple<dc::schema::Kernel, dc::schema::Collective, dc::schema::Copy,
                              dc::schema::Signal, dc::schema::Wait>;
static_assert(std::tuple_size_v<BodyTables> == base::enum_count<InstructionKind>());
template <InstructionKind kind>
struct BodyTable {
  using type = std::tuple_element_t<static_cast<size_t>(kind), BodyTables>;
};

// Fields of tables that are in no list: the version and the rank class; the body of an instruction
// and what kind it has; the coordinates of a rank class; the ranks and the axes' names of a group.
inline constexpr size_t kOthersOfPlan = 3, kOthersOfInstruction = 2, kOthersOfRankClass = 1,
                        kOthersOfGroup = 2;

}  // namespace dc::runtime::plan
