#include "src/ir/ops.h"

#include <algorithm>
#include <array>
#include <vector>

#include "src/base/status.h"

namespace dc::ir {
namespace {

// The words of ops.def.
using enum OperandRole;
constexpr OperandInfo read(std::string_view name, OperandRole role = Plain) {
  return {name, Access::Read, role};
}
constexpr OperandInfo write(std::string_view name, OperandRole role = Plain) {
  return {name, Access::Write, role};
}
constexpr OperandInfo update(std::string_view name, OperandRole role = Plain) {
  return {name, Access::Update, role};
}
constexpr OperandInfo perhaps(OperandInfo operand) {
  operand.is_needed = false;
  return operand;
}

constexpr AttributeUse need(Attr attribute) { return {attribute, true}; }
constexpr AttributeUse may(Attr attribute) { return {attribute, false}; }

template <typename Item, size_t kMost>
struct List {
  std::array<Item, kMost> items{};
  size_t count = 0;
};
template <typename... Each>
constexpr List<OperandInfo, kMaxOperands> operands_of(Each... each) {
  return {{{each...}}, sizeof...(each)};
}
template <typename... Each>
constexpr List<AttributeUse, kMaxAttributes> attributes_of(Each... each) {
  return {{{each...}}, sizeof...(each)};
}

constexpr OpTraits make_traits(AliasRule alias, Provider provider, Half half, OpTrait trait,
                               const List<OperandInfo, kMaxOperands>& operands,
                               const List<AttributeUse, kMaxAttributes>& attributes) {
  OpTraits traits{alias, provider, half, trait};
  for (size_t i = 0; i < attributes.count; ++i)
    traits.attributes |= 1U << static_cast<unsigned>(attributes.items[i].attribute);
  for (size_t i = operands.count; i-- > 0;) {
    const OperandInfo& operand = operands.items[i];
    if (operand.access != Access::Read) traits.writes |= static_cast<uint8_t>(1U << i);
    if (operand.role == OperandRole::Gradient) traits.gradient_operand = static_cast<int8_t>(i);
    if (!operand.is_needed) traits.optional_operand = static_cast<int8_t>(i);
  }
  return traits;
}
static_assert(kMaxOperands <= 8, "OpTraits::writes has a bit for each");

constexpr OpInfo make_op(std::string_view text, std::string_view kernel, const OpTraits& traits,
                         size_t results, const List<OperandInfo, kMaxOperands>& operands,
                         const List<AttributeUse, kMaxAttributes>& attributes) {
  return {text,           kernel,         traits,           results,
          operands.items, operands.count, attributes.items, attributes.count};
}

constexpr std::array kOps = [] {
  using enum Attr;
  return std::array{
#define DC_OP(kind, text, alias, provider, half, trait, rule, results, operands, attributes) \
  make_op(text, "dc." text,                                                                  \
          make_traits(AliasRule::alias, Provider::provider, Half::half, OpTrait::trait,      \
                      operands_of operands, attributes_of attributes),                       \
          results, operands_of operands, attributes_of attributes),
#include "src/ir/ops.def"
#undef DC_OP
  };
}();

constexpr std::array kAttributes = {
    AttrInfo{"", AttrKind::Text},
#define DC_ATTR(id, text, kind) AttrInfo{text, AttrKind::kind},
#include "src/ir/attributes.def"
#undef DC_ATTR
};
static_assert(kAttributes.size() <= 32, "OpTraits::attributes has a bit for each");

enum class AtenTrait : uint8_t { Plain, Random, DataDependent, Mutates };

constexpr AtenInfo make_info(std::string_view overload, AtenClass cls, AliasRule alias,
                             AtenTrait trait, int8_t operands, int8_t results, AtenWork work) {
  return AtenInfo{overload,
                  cls,
                  alias,
                  trait == AtenTrait::Random,
                  trait == AtenTrait::DataDependent,
                  trait == AtenTrait::Mutates,
                  operands,
                  results,
                  work};
}

std::vector<AtenInfo> sorted_aten_table() {
  constexpr int8_t Many = kManyResults;
  std::vector<AtenInfo> table = {
#define DC_ATEN(overload, cls, alias, trait, operands, results, work)                       \
  make_info("aten." overload, AtenClass::cls, AliasRule::alias, AtenTrait::trait, operands, \
            results, AtenWork::work),
#include "src/ir/aten_ops.def"
#undef DC_ATEN
  };
  auto less = [](const AtenInfo& a, const AtenInfo& b) { return a.overload < b.overload; };
  std::sort(table.begin(), table.end(), less);
  auto equal = [](const AtenInfo& a, const AtenInfo& b) { return a.overload == b.overload; };
  DC_CHECK(std::adjacent_find(table.begin(), table.end(), equal) == table.end());
  return table;
}

}  // namespace

constexpr std::array<OpTraits, kOpKinds> kOpTraits = [] {
  std::array<OpTraits, kOpKinds> all;
  for (size_t i = 0; i < all.size(); ++i) all[i] = kOps[i].traits;
  return all;
}();

const OpInfo& info(OpKind kind) { return kOps[static_cast<size_t>(kind)]; }
const AttrInfo& info(Attr attribute) { return kAttributes[static_cast<size_t>(attribute)]; }

std::optional<OpKind> op_from_text(std::string_view text) {
  for (size_t i = 0; i < kOps.size(); ++i) {
    const OpKind kind = static_cast<OpKind>(i);
    if (kind != OpKind::Aten && kOps[i].text == text) return kind;
  }
  return std::nullopt;
}

std::optional<OpKind> native_op(std::string_view kernel) {
  for (size_t i = 0; i < kOps.size(); ++i) {
    if (kOps[i].traits.provider == Provider::Native && kOps[i].kernel == kernel)
      return static_cast<OpKind>(i);
  }
  return std::nullopt;
}

// In ops.def a done follows its start.
OpKind start_of(OpKind done) {
  DC_CHECK(is_done(done));
  return static_cast<OpKind>(static_cast<int>(done) - 1);
}
OpKind done_of(OpKind start) {
  DC_CHECK(is_start(start));
  return static_cast<OpKind>(static_cast<int>(start) + 1);
}

bool is_model_op(OpKind kind) {
  return kind == OpKind::Aten || kind == OpKind::Fused || kind == OpKind::CrossEntropy ||
         kind == OpKind::CrossEntropyBackward || kind == OpKind::LinearCrossEntropy ||
         kind == OpKind::AddProduct || kind == OpKind::TwoProducts;
}

std::optional<Attr> attribute_of(OpKind kind, std::string_view text) {
  for (const AttributeUse& use : info(kind).attributes()) {
    if (info(use.attribute).text == text) return use.attribute;
  }
  return std::nullopt;
}

const AtenInfo* aten_info(std::string_view overload) {
  static const std::vector<AtenInfo> kTable = sorted_aten_table();
  auto less = [](const AtenInfo& a, std::string_view key) { return a.overload < key; };
  auto found = std::lower_bound(kTable.begin(), kTable.end(), overload, less);
  return found != kTable.end() && found->overload == overload ? &*found : nullptr;
}

}  // namespace dc::ir
