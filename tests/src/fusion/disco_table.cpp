// What DisCo's simulator says of a model: disco_table MODEL.pt2 PROFILE.json WORLD [in-plans|any]
// [alpha-beta]. One line of JSON for each rule: times of ZeRO 0's forward and backward phase with
// all-reduce. With what a fused kernel of a plan can run (in-plans), or with every operator fused
// that DisCo would fuse (any; simulated alone: no kernel for it is there); both if neither is
// named. `disco-...` are the search without one of its moves; `joint`: decide_jointly(). Seconds
// are of one core. `bucket_by_bucket_ns`: of the same kernels and buckets, if the device could run
// kernels in another order than as they become ready. Not a test; scripts/benchmark/disco.py makes
// the table.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <set>
#include <string>
#include <vector>

#include "src/cost/costs.h"
#include "src/frontend/import.h"
#include "src/fusion/bounds.h"
#include "src/fusion/greedy.h"
#include "src/fusion/joint.h"
#include "src/fusion/search.h"
#include "src/passes/fuse/fuse_rules.h"
#include "src/passes/fuse/fusion_program.h"
#include "src/passes/pass_manager.h"

namespace dc::fusion {
namespace {

constexpr Order kOrder = Order::FirstReady;

struct Setting {
  std::string fusible;
  Draft start;
  LinearTime line;
};

double seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// A draft's kernels and buckets when the device runs all that one bucket needs before it turns to
// the next: the one that then needs least of the device, those that the channel takes longer for
// than the device first (Johnson 1954, as far as buckets share no kernels).
class BucketByBucket {
 public:
  BucketByBucket(const Draft& draft, const LinearTime& line)
      : draft_(draft), before_(draft.groups().size()), has_run_(draft.groups().size()) {
    const size_t groups = draft.groups().size();
    for (size_t i = 0; i < groups; ++i) {
      if (draft.groups()[i] == nullptr) continue;
      draft.each_successor(static_cast<int32_t>(i),
                           [&](int32_t to) { before_[static_cast<size_t>(to)].push_back(i); });
    }
    const std::vector<Reduction>& reductions = draft.problem().reductions;
    std::vector<Bucket> all(reductions.size());
    for (size_t i = 0; i < reductions.size(); ++i) {
      Bucket& bucket = all[static_cast<size_t>(draft.bucket(static_cast<int32_t>(i)))];
      bucket.bytes += reductions[i].bytes;
      for (const int32_t kernel : reductions[i].after)
        bucket.makers.push_back(static_cast<size_t>(draft.owner(kernel)));
    }
    for (Bucket& bucket : all) {
      if (bucket.makers.empty()) continue;
      bucket.channel = line.time(bucket.bytes);
      buckets_.push_back(std::move(bucket));
    }
  }

  base::Nanos time() {
    base::Nanos device, channel;
    while (!buckets_.empty()) {
      size_t best = 0;
      std::vector<size_t> runs;
      base::Nanos most{INT64_MAX};
      bool is_short = false;
      for (size_t i = 0; i < buckets_.size(); ++i) {
        std::vector<size_t> needed = needs(buckets_[i]);
        base::Nanos time;
        for (const size_t group : needed) time += draft_.groups()[group]->time;
        const bool hides = time < buckets_[i].channel;
        // Those that the device takes longer for come last, the shortest on the channel at the end.
        const base::Nanos rank = hides ? time : base::Nanos{-buckets_[i].channel.v};
        if (i > 0 && (hides == is_short ? rank >= most : is_short)) continue;
        best = i, runs = std::move(needed), most = rank, is_short = hides;
      }
      for (const size_t group : runs) {
        has_run_[group] = true;
        device += draft_.groups()[group]->time;
      }
      channel = std::max(channel, device) + buckets_[best].channel;
      buckets_.erase(buckets_.begin() + static_cast<std::ptrdiff_t>(best));
    }
    for (size_t i = 0; i < has_run_.size(); ++i) {
      if (draft_.groups()[i] != nullptr && !has_run_[i]) device += draft_.groups()[i]->time;
    }
    return std::max(device, channel);
  }

 private:
  struct Bucket {
    base::Bytes bytes;
    base::Nanos channel;
    std::vector<size_t> makers;
  };
  // Groups that have not run.
  std::vector<size_t> needs(const Bucket& bucket) const {
    std::vector<bool> seen = has_run_;
    std::vector<size_t> open, found;
    const auto reach = [&](size_t group) {
      if (seen[group]) return;
      seen[group] = true;
      open.push_back(group);
      found.push_back(group);
    };
    for (const size_t group : bucket.makers) reach(group);
    while (!open.empty()) {
      const size_t group = open.back();
      open.pop_back();
      for (const size_t earlier : before_[group]) reach(earlier);
    }
    return found;
  }

  const Draft& draft_;
  std::vector<std::vector<size_t>> before_;
  std::vector<bool> has_run_;
  std::vector<Bucket> buckets_;
};

void say(const Setting& setting, const std::string& rule, const Draft& draft, double spent,
         int64_t candidates) {
  const Timeline time = play(draft, setting.line, kOrder);
  std::printf(
      "{\"fusible\": \"%s\", \"rule\": \"%s\", \"time_ns\": %ld, \"compute_ns\": %ld, "
      "\"communication_ns\": %ld, \"full_overlap_ns\": %ld, \"with_ends_ns\": %ld, "
      "\"bucket_by_bucket_ns\": %ld, \"seconds\": %.3f, \"candidates\": %ld}\n",
      setting.fusible.c_str(), rule.c_str(), time.time.v, time.compute.v, time.communication.v,
      time.full_overlap().v, with_ends(draft, setting.line).v,
      BucketByBucket(draft, setting.line).time().v, spent, candidates);
  std::fflush(stdout);
}

void say_search(const Setting& setting, const std::string& rule, const SearchRules& rules) {
  const double begin = seconds();
  const Found found = search(setting.start, setting.line, kOrder, rules);
  const double spent = seconds() - begin;
  say(setting, rule, found.best, spent, found.candidates);
}

void say_rules(const Setting& setting) {
  const auto one = [&](const std::string& rule, bool fuse, auto merge) {
    Draft draft = setting.start;
    const double begin = seconds();
    if (fuse) fuse_in_order(draft);
    merge(draft);
    const double spent = seconds() - begin;
    say(setting, rule, draft, spent, 0);
  };
  const auto none = [](Draft&) {};
  const auto xla = [](Draft& draft) {
    merge_in_order(draft, kOrder, Closing::UpTo, {passes::kXlaBucket}, {});
  };
  one("no-fusion", false, none);
  one("op-fusion", true, none);
  one("allreduce-fusion", false, xla);
  one("default-fusion", true, xla);
  one("ddp", false, [](Draft& draft) {
    merge_in_order(draft, kOrder, Closing::Past, {passes::kDdpBucket}, {passes::kDdpFirstBucket});
  });
  say_search(setting, "disco", {});
  const double begin = seconds();
  const Joint joint = decide_jointly(setting.start, setting.line, kOrder);
  const double spent = seconds() - begin;
  say(setting, "joint", joint.best, spent, joint.played);
  const char* const without[kMethods] = {"disco-no-fuse", "disco-no-copies", "disco-no-merges"};
  for (int i = 0; i < kMethods; ++i) {
    SearchRules rules;
    rules.uses[i] = false;
    say_search(setting, without[i], rules);
  }
}

void say_alpha_and_beta(const Setting& setting) {
  for (const double alpha : {1.0, 1.05, 1.1}) {
    SearchRules rules;
    rules.alpha = alpha;
    say_search(setting, "alpha " + std::to_string(alpha).substr(0, 4), rules);
  }
  for (const int beta : {1, 5, 10, 30}) {
    SearchRules rules;
    rules.beta = beta;
    say_search(setting, "beta " + std::to_string(beta), rules);
  }
}

base::Status run(const char* model, const char* profile_path, int world,
                 const std::set<std::string>& options) {
  DC_ASSIGN_OR_RETURN(ir::Step step, frontend::import_archive(model));
  DC_ASSIGN_OR_RETURN(profile::Profile profile, profile::read_profile(profile_path));
  step.mesh.axes = {{"dp", world}};
  const cost::Costs costs(profile, 1);
  passes::Options compiling;
  compiling.providers = passes::Providers::Native;
  std::vector<passes::Remark> remarks;
  DC_ASSIGN_OR_RETURN(
      const passes::Chain chain,
      passes::parse_passes(
          "normalize-graph,shard-parameters=0,insert-collectives,add-update,schedule"));
  const auto change =
      passes::run_passes(step, chain, passes::PassContext{costs.model(), compiling, remarks});
  if (!change.ok()) return change.status();
  const ir::Graph& graph = step.programs.back().graph;
  const ClosedFormTime fused = passes::closed_form_time(costs.model());
  for (const auto& [name, fusible] : {std::pair("in-plans", passes::Fusible::InPlans),
                                      std::pair("any", passes::Fusible::AnyOperator)}) {
    if (options.contains(name == std::string("any") ? "in-plans" : "any")) continue;
    const auto program = passes::fusion_program(step, graph, costs.model(), fusible);
    if (!program) continue;
    const Setting setting{name, Draft(program->problem, fused),
                          passes::reduction_line(step, graph, *program, costs.model())};
    if (options.contains("alpha-beta")) {
      say_alpha_and_beta(setting);
    } else {
      say_rules(setting);
    }
  }
  return {};
}

}  // namespace
}  // namespace dc::fusion

int main(int argc, char** argv) {
  if (argc < 4)
    return std::fprintf(stderr, "disco_table MODEL PROFILE WORLD [in-plans|any] [alpha-beta]\n"),
           64;
  const dc::base::Status status =
      dc::fusion::run(argv[1], argv[2], std::atoi(argv[3]), {argv + 4, argv + argc});
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return dc::base::exit_code(status.kind());
}
