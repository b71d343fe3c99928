// FixedCost: times given by hand, for tests whose expected result must not depend on any table.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/cost/cost_model.h"

namespace dc::cost {

// Names are ops as people say them: "mm" (any overload of aten.mm), "aten.mm.default", "adamw",
// "all_gather" (with hosts, if listed, "all_gather_inside" and "all_gather_across"), "copy";
// "latency" is the part of every collective that leaves the link idle. What
// is not listed takes no time. No op needs scratch, unless listed with a size.
class FixedCost final : public CostModel {
 public:
  struct Entry {
    std::string op;
    base::Nanos time;
    base::Bytes scratch;
  };
  explicit FixedCost(std::vector<Entry> entries) : entries_(std::move(entries)) {}

  Estimate collective(Collective kind, base::Bytes bytes, Group group) const override;
  base::Nanos latency(Collective kind, Group group) const override;
  Estimate copy(base::Bytes bytes, ir::Space from, ir::Space to) const override;
  std::string origin() const override { return "fixed"; }

 private:
  Estimate kernel_time(const base::KernelSignature& kernel) const override;
  Scratch kernel_scratch(const base::KernelSignature& kernel) const override;

  const Entry* find(std::string_view op) const;
  std::vector<Entry> entries_;
};

// "fixed(mm=200us, all_gather=150us)" or "fixed(mm=1ms+64KiB)", a time and scratch. Units: ns, us,
// ms, s; B, KiB, MiB, GiB. BadConfig, DC7020, otherwise.
base::Result<FixedCost> parse_fixed_cost(std::string_view text);

}  // namespace dc::cost
