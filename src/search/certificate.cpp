#include "src/search/certificate.h"

#include <string>
#include <vector>

#include "src/search/moves.h"
#include "src/search/starts.h"

namespace dc::search {
namespace {

using base::Result;
using passes::ReductionOrder;

class Certificate {
 public:
  Certificate(const ir::Step& imported, const passes::Options& options, const cost::CostModel& cost)
      : imported_(imported), options_(options), cost_(cost) {}

  Result<bound::LowerBound> run() {
    for (const ReductionOrder order : orders()) {
      for (const std::string_view prefix : {std::string_view(), kByHost}) {
        if (!prefix.empty() && !has_hosts(imported_, options_)) continue;
        DC_RETURN_IF_ERROR(add(std::string(prefix), order));
      }
    }
    return std::move(least_);
  }

 private:
  std::vector<ReductionOrder> orders() const {
    const ReductionOrder given = options_.reduction_order;
    if (given == ReductionOrder::PerStep || given == ReductionOrder::PerMicroBatch) return {given};
    if (imported_.accumulation == 1) return {ReductionOrder::PerMicroBatch};
    return {ReductionOrder::PerMicroBatch, ReductionOrder::PerStep};
  }

  // The least bound holds for all.
  base::Status add(const std::string& prefix, ReductionOrder order) {
    std::vector<ir::Step> steps;
    for (const char* stage : {"3", "2", "0"}) {
      if (imported_.mesh.world() == 1 && !steps.empty()) break;  // all the same
      DC_ASSIGN_OR_RETURN(ir::Step step, scheduled(prefix, stage, order));
      steps.push_back(std::move(step));
    }
    bound::Allowed allowed;
    allowed.budget = options_.memory();
    if (options_.offload_space) allowed.away = {*options_.offload_space};
    allowed.recompute = options_.recompute != passes::Recompute::Off;
    std::vector<const ir::Step*> others;
    for (size_t i = 1; i < steps.size(); ++i) others.push_back(&steps[i]);
    bound::LowerBound found = bound::lower_bound(steps[0], others, cost_, allowed);
    if (is_first_ || found.time < least_.time) least_ = std::move(found);
    is_first_ = false;
    return {};
  }

  Result<ir::Step> scheduled(const std::string& prefix, const char* stage,
                             ReductionOrder order) const {
    const std::string text = prefix + "normalize-graph,shard-parameters=" + stage +
                             ",insert-collectives,add-update,schedule";
    DC_ASSIGN_OR_RETURN(const passes::Chain chain, passes::parse_passes(text));
    ir::Step step = imported_;
    passes::Options options = options_;
    options.reduction_order = order;
    std::vector<passes::Remark> remarks;
    passes::PassContext context{cost_, options, remarks};
    context.collect_remarks = false;
    for (const passes::PassCall& call : chain)
      DC_RETURN_IF_ERROR(passes::apply(call, step, context).status());
    return step;
  }

  const ir::Step& imported_;
  const passes::Options& options_;
  const cost::CostModel& cost_;
  bound::LowerBound least_;
  bool is_first_ = true;
};

}  // namespace

Result<bound::LowerBound> certificate(const ir::Step& imported, const passes::Options& options,
                                      const cost::CostModel& cost) {
  return Certificate(imported, options, cost).run();
}

}  // namespace dc::search
