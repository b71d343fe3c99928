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

constexpr uint32_t set_of(const List<AttributeUse, kMaxAttributes>& attributes) {
  uint32_t set = 0;
  for (size_t i = 0; i < attributes.count; ++i)
    set |= 1U << static_cast<unsigned>(attributes.items[i].attribute);
  return set;
}

constexpr OpInfo make_op(std::string_view text, std::string_view kernel, AliasRule alias,
                         Provider provider, Half half, OpTrait trait, size_t results,
                         const List<OperandInfo, kMaxOperands>& operands,
                         const List<AttributeUse, kMaxAttributes>& attributes) {
  return {text,
          kernel,
          alias,
          provider,
          half,
          trait,
          results,
          operands.items,
          operands.count,
          attributes.items,
          attributes.count,
          set_of(attributes)};
}

constexpr std::array kOps = [] {
  using enum Attr;
  return std::array{
#define DC_OP(kind, text, alias, provider, half, trait, rule, results, operands, attributes)  \
  make_op(text, "dc." text, AliasRule::alias, Provider::provider, Half::half, OpTrait::trait, \
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
static_assert(kAttributes.size() <= 32, "OpInfo::attribute_set has a bit for each");

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
    if (kOps[i].provider == Provider::Native && kOps[i].kernel == kernel)
      return static_cast<OpKind>(i);
  }
  return std::nullopt;
}

bool is_start(OpKind kind) { return info(kind).half == Half::Start; }
bool is_done(OpKind kind) { return info(kind).half == Half::Done; }
bool is_wait(OpKind kind) { return is_done(kind) || info(kind).half == Half::Arrival; }

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
bool is_update(OpKind kind) { return info(kind).trait == OpTrait::Update; }
bool is_tail(OpKind kind) { return info(kind).trait == OpTrait::Tail; }

bool writes(OpKind kind, size_t operand) {
  const std::span<const OperandInfo> operands = info(kind).operands();
  return operand < operands.size() && operands[operand].access != Access::Read;
}

bool writes_any(OpKind kind) {
  const std::span<const OperandInfo> operands = info(kind).operands();
  return std::any_of(operands.begin(), operands.end(),
                     [](const OperandInfo& one) { return one.access != Access::Read; });
}

std::optional<Attr> attribute_of(OpKind kind, std::string_view text) {
  for (const AttributeUse& use : info(kind).attributes()) {
    if (info(use.attribute).text == text) return use.attribute;
  }
  return std::nullopt;
}

std::optional<size_t> gradient_operand(OpKind kind) {
  const std::span<const OperandInfo> operands = info(kind).operands();
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].role == OperandRole::Gradient) return i;
  }
  return std::nullopt;
}
std::optional<size_t> optional_operand(OpKind kind) {
  const std::span<const OperandInfo> operands = info(kind).operands();
  if (operands.empty() || operands.back().is_needed) return std::nullopt;
  return operands.size() - 1;
}

const AtenInfo* aten_info(std::string_view overload) {
  static const std::vector<AtenInfo> kTable = sorted_aten_table();
  auto less = [](const AtenInfo& a, std::string_view key) { return a.overload < key; };
  auto found = std::lower_bound(kTable.begin(), kTable.end(), overload, less);
  return found != kTable.end() && found->overload == overload ? &*found : nullptr;
}

}  // namespace dc::ir
