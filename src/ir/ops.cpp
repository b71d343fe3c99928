#include "src/ir/ops.h"

#include <algorithm>
#include <array>
#include <vector>

#include "src/base/status.h"

namespace dc::ir {
namespace {

constexpr std::array kOps = {
#define DC_OP(kind, text, alias, mutated, random, provider) \
  OpInfo{text, AliasRule::alias, mutated, random, Provider::provider},
#include "src/ir/ops.def"
#undef DC_OP
};

enum class AtenTrait : uint8_t { Plain, Random, DataDependent, Mutates };

constexpr AtenInfo make_info(std::string_view overload, AtenClass cls, AliasRule alias,
                             AtenTrait trait, int8_t operands, int8_t results) {
  return AtenInfo{overload,
                  cls,
                  alias,
                  trait == AtenTrait::Random,
                  trait == AtenTrait::DataDependent,
                  trait == AtenTrait::Mutates,
                  operands,
                  results};
}

std::vector<AtenInfo> sorted_aten_table() {
  constexpr int8_t Many = kManyResults;
  std::vector<AtenInfo> table = {
#define DC_ATEN(overload, cls, alias, trait, operands, results)                             \
  make_info("aten." overload, AtenClass::cls, AliasRule::alias, AtenTrait::trait, operands, \
            results),
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

bool is_start(OpKind kind) {
  return kind == OpKind::AllGatherStart || kind == OpKind::AllGatherIntoStart ||
         kind == OpKind::ReduceScatterStart || kind == OpKind::AllReduceStart ||
         kind == OpKind::OffloadStart || kind == OpKind::OffloadIntoStart ||
         kind == OpKind::ReloadStart;
}

bool is_wait(OpKind kind) { return is_done(kind) || kind == OpKind::AllGatherArrived; }

bool is_done(OpKind kind) {
  return kind == OpKind::AllGatherDone || kind == OpKind::AllGatherIntoDone ||
         kind == OpKind::ReduceScatterDone || kind == OpKind::AllReduceDone ||
         kind == OpKind::OffloadDone || kind == OpKind::OffloadIntoDone ||
         kind == OpKind::ReloadDone;
}

bool is_update(OpKind kind) { return kind == OpKind::AdamW || kind == OpKind::Sgd; }

// In ops.def a done follows its start.
OpKind start_of(OpKind done) {
  DC_CHECK(is_done(done));
  return static_cast<OpKind>(static_cast<int>(done) - 1);
}

const AtenInfo* aten_info(std::string_view overload) {
  static const std::vector<AtenInfo> kTable = sorted_aten_table();
  auto less = [](const AtenInfo& a, std::string_view key) { return a.overload < key; };
  auto found = std::lower_bound(kTable.begin(), kTable.end(), overload, less);
  return found != kTable.end() && found->overload == overload ? &*found : nullptr;
}

}  // namespace dc::ir
