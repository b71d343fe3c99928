#include "src/driver/frontier.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "src/base/text.h"
#include "src/cost/costs.h"
#include "src/driver/compile_step.h"
#include "src/driver/request_check.h"

namespace dc::driver {
namespace {

using base::Bytes;
using base::Nanos;
using base::Result;
using base::Status;
using runtime::plan::Plan;

Status misuse(std::string what) {
  return Status(base::ErrorKind::Usage, "DC2813", std::move(what));
}

Status no_plan(Bytes budget, const Status& why) {
  Status status(base::ErrorKind::OutOfMemory, why.code(), why.sentence());
  status.add_context("at the budget of " + base::format_bytes(budget.v) + " of the frontier");
  return status;
}

// Of the search that made the plan; 0 if none did.
Nanos bound_of(const Plan& plan) {
  for (const base::Remark& remark : plan.remarks) {
    if (remark.code == "chain-chosen") return Nanos{remark.number("bound_ns").value_or(0)};
  }
  return {};
}

class FrontierWalk {
 public:
  FrontierWalk(const FrontierRequest& request, Stopwatch& watch, const BudgetDone& done)
      : request_(request), watch_(watch), done_(done) {}

  Result<Frontier> run() {
    if (request_.points < 2) return misuse("a frontier has at least two points; raise --points");
    const CompileRequest& one = request_.compile;
    DC_ASSIGN_OR_RETURN(model_, read_model(one.model, one.config, one.dims));
    watch_.lap("read");
    DC_ASSIGN_OR_RETURN(const Bytes to, largest());
    DC_ASSIGN_OR_RETURN(const Bytes from, begin(to));
    for (int i = 1; i < request_.points; ++i) {
      const Bytes next = budget(from, to, i);
      const Status made = add(next);
      // What the search missed there keeps a smaller budget too.
      if (is_too_small(made)) {
        frontier_.points.push_back({next, frontier_.points.back().plan, {}});
      } else {
        DC_RETURN_IF_ERROR(made);
      }
    }
    join();
    return std::move(frontier_);
  }

 private:
  Result<CompileResult> compiled(const std::optional<Bytes>& budget) {
    CompileRequest one = request_.compile;
    one.options.passes.budgets[ir::Space::Device] = budget;
    return compile(one, model_, watch_);
  }

  // The plan without a budget is one of the frontier's.
  Result<Bytes> largest() {
    DC_ASSIGN_OR_RETURN(CompileResult most, compiled(std::nullopt));
    const Bytes bytes = device_memory(most.plan);
    frontier_.plans.push_back(std::move(most));
    said();
    return request_.to.value_or(bytes);
  }

  static bool is_too_small(const Status& made) {
    return !made.ok() && made.kind() == base::ErrorKind::OutOfMemory;
  }

  // Adds the first point and returns its budget.
  Result<Bytes> begin(Bytes to) {
    std::optional<Bytes> from = request_.from;
    if (!from) {
      DC_ASSIGN_OR_RETURN(from, smallest());
    }
    // Where no plan is made at all, compiling says why.
    Bytes first = from.value_or(Bytes{1});
    if (first > to && !request_.from) first = to;  // compiling says that no plan keeps it
    DC_RETURN_IF_ERROR(check_range(first, to));
    Status made = add(first);
    if (is_too_small(made) && request_.from) {
      DC_ASSIGN_OR_RETURN(const std::optional<Bytes> least, smallest());
      if (!least || *least <= first || *least > to) return no_plan(first, made);
      frontier_.too_small = std::exchange(first, *least);
      made = add(first);
    }
    if (!made.ok()) return is_too_small(made) ? no_plan(first, made) : made;
    return first;
  }

  static Status check_range(Bytes from, Bytes to) {
    if (from <= to) return {};
    return misuse("the frontier begins at " + base::format_bytes(from.v) +
                  " and ends below that, at " + base::format_bytes(to.v) +
                  "; give another --memory FROM:TO");
  }

  // Memory of the smallest plan that is found, if one is made.
  Result<std::optional<Bytes>> smallest() {
    const CompileRequest& one = request_.compile;
    DC_ASSIGN_OR_RETURN(const CompileOptions options, completed(one));
    const cost::Costs costs(one.profile, options.threads, options.fused_estimate.network);
    const std::optional<Bytes> found = smallest_memory(model_.step, options, costs.model());
    watch_.lap("smallest");
    return found;
  }

  Bytes budget(Bytes from, Bytes to, int point) const {
    if (point == request_.points - 1) return to;
    const double part = static_cast<double>(point) / (request_.points - 1);
    const double ratio = static_cast<double>(to.v) / static_cast<double>(from.v);
    return Bytes{static_cast<int64_t>(static_cast<double>(from.v) * std::pow(ratio, part))};
  }

  Status add(Bytes budget) {
    DC_ASSIGN_OR_RETURN(CompileResult made, compiled(budget));
    frontier_.points.push_back({budget, frontier_.plans.size(), bound_of(made.plan)});
    frontier_.plans.push_back(std::move(made));
    said();
    return {};
  }

  void said() {
    if (done_) done_(static_cast<int>(frontier_.plans.size()), request_.points + 1);
  }

  // A plan is one for every budget that it keeps, and a bound is one for every smaller budget.
  void join() {
    Nanos bound;
    for (auto point = frontier_.points.rbegin(); point != frontier_.points.rend(); ++point) {
      bound = point->bound = std::max(bound, point->bound);
      for (size_t i = 0; i < frontier_.plans.size(); ++i) {
        const Plan &other = frontier_.plans[i].plan, &best = frontier_.plans[point->plan].plan;
        if (device_memory(other) <= point->budget && step_time(other) < step_time(best))
          point->plan = i;
      }
    }
  }

  const FrontierRequest& request_;
  Stopwatch& watch_;
  const BudgetDone& done_;
  Model model_;
  Frontier frontier_;
};

}  // namespace

Result<Frontier> frontier(const FrontierRequest& request, Stopwatch& watch,
                          const BudgetDone& done) {
  DC_RETURN_IF_ERROR(check_request(request.compile));
  return FrontierWalk(request, watch, done).run();
}

Bytes device_memory(const Plan& plan) {
  return Bytes{plan.arena_bytes[static_cast<size_t>(ir::Space::Device)]};
}

Nanos step_time(const Plan& plan) { return Nanos{plan.prediction.step_ns}; }

}  // namespace dc::driver
