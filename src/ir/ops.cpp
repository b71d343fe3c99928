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

struct Operands {
  std::array<OperandInfo, kMaxOperands> list{};
  size_t count = 0;
};
template <typename... Each>
constexpr Operands operands_of(Each... each) {
  return {{{each...}}, sizeof...(each)};
}

constexpr OpInfo make_op(std::string_view text, std::string_view kernel, AliasRule alias,
                         Provider provider, Half half, OpTrait trait, size_t results,
                         const Operands& operands) {
  return {text, kernel, alias, provider, half, trait, results, operands.list, operands.count};
}

constexpr std::array kOps = {
#define DC_OP(kind, text, alias, provider, half, trait, rule, results, operands)              \
  make_op(text, "dc." text, AliasRule::alias, Provider::provider, Half::half, OpTrait::trait, \
          results, operands_of operands),
#include "src/ir/ops.def"
#undef DC_OP
};

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

std::optional<size_t> gradient_operand(OpKind kind) {
  const std::span<const OperandInfo> operands = info(kind).operands();
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].role == OperandRole::Gradient) return i;
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
