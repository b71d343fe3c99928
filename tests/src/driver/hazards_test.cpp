// Level 3 of verification on plans that the compiler made: they have no races, and of plans that
// lack waits it says what a search over all pairs of instructions says.
#include <gtest/gtest.h>

#include "runtime/plan/file.h"
#include "runtime/verify/verify.h"
#include "src/cost/costs.h"
#include "src/driver/compile_step.h"
#include "src/frontend/import.h"
#include "tests/runtime/verify/race_oracle.h"
#include "tests/source_dir.h"

namespace dc::driver {
namespace {

namespace rp = runtime::plan;
using rp::test::has_race;

struct Chain {
  const char *stage, *middle;
  int ranks, accumulation = 1;
};

rp::Plan compiled(const Chain& chain) {
  base::Result<ir::Step> step =
      frontend::import_archive(std::string(dc::kSourceDir) + "/tests/data/mlp.pt2");
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  CompileOptions options;
  options.world = chain.ranks;
  options.accumulation = chain.accumulation;
  options.own_passes = std::string("normalize-graph,shard-parameters=") + chain.stage +
                       ",insert-collectives,add-update,schedule" + chain.middle + ",layout-arenas";
  const cost::Costs costs(std::nullopt, 1);
  base::Result<rp::Plan> plan = compile_step(std::move(*step), options, costs.model());
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return std::move(*plan);
}

struct Counts {
  int events = 0, races = 0;
  int crossing = 0;  // of the races: without the waits for the step before
};

// Waits of a program for one event, all or all but the last, become signals of events without
// a wait; event after event.
Counts leave_out_waits(const rp::Plan& plan, bool keep_last, const char* what) {
  Counts counts;
  for (size_t p = 0; p < plan.programs.size(); ++p) {
    for (int32_t event = 0; event < plan.events; ++event) {
      rp::Plan broken = plan;
      bool is_signalled = false, crosses = false;
      std::vector<rp::Instruction*> waits;
      for (rp::Instruction& in : broken.programs[p].instructions) {
        if (in.event != event) continue;
        is_signalled |= in.kind == rp::InstructionKind::Signal;
        crosses |= !is_signalled;
        if (in.kind == rp::InstructionKind::Wait) waits.push_back(&in);
      }
      if (keep_last && !waits.empty()) waits.pop_back();
      if (waits.empty()) continue;
      for (rp::Instruction* wait : waits) {
        wait->kind = rp::InstructionKind::Signal;
        wait->event = broken.events++;
      }
      const base::Status status = runtime::verify::verify_meaning(broken);
      EXPECT_EQ(status.ok(), !has_race(broken))
          << what << ", program " << p << ", event " << event << ": " << status.to_string();
      ++counts.events;
      if (status.ok()) continue;
      EXPECT_EQ(status.code(), "DC3241") << status.to_string();
      ++counts.races;
      counts.crossing += crosses;
    }
  }
  return counts;
}

const Chain kChains[] = {{"3", "", 3},
                         {"3", ",bucket-reductions,prefetch-gathers,overlap-reductions", 5, 3},
                         {"3", ",keep-resident,fuse-gathers,bucket-reductions,prefetch-gathers", 4},
                         {"1", ",bucket-reductions,overlap-reductions,overlap-update", 5},
                         {"2", ",offload-optimizer", 3},
                         {"3", ",offload-update,bucket-reductions,overlap-reductions", 3, 2},
                         {"3", ",offload-update,offload-gradients", 4}};

TEST(Hazards, PlansWithoutWaits) {
  int crossing = 0;
  for (const Chain& chain : kChains) {
    const rp::Plan plan = compiled(chain);
    EXPECT_TRUE(runtime::verify::verify_meaning(plan).ok())
        << runtime::verify::verify_meaning(plan).to_string();
    EXPECT_FALSE(has_race(plan)) << chain.middle;
    const Counts all = leave_out_waits(plan, false, chain.middle);
    EXPECT_GT(all.events, 5) << chain.middle;
    EXPECT_GT(2 * all.races, all.events) << chain.middle;  // others stand before a later wait
    crossing += leave_out_waits(plan, true, chain.middle).crossing;
  }
  EXPECT_GT(crossing, 0);
}

// Each entry of each list left out, and one put in that does not belong there.
TEST(Hazards, ListsThatHideAnEffect) {
  for (const Chain& chain : kChains) {
    rp::Plan plan = compiled(chain);
    int hidden = 0;
    for (rp::Program& program : plan.programs) {
      for (rp::Instruction& in : program.instructions) {
        for (auto* list : {&in.reads, &in.writes}) {
          const std::vector<int32_t> whole = *list;
          for (size_t i = 0; i < whole.size(); ++i, ++hidden) {
            list->erase(list->begin() + static_cast<long>(i));
            const base::Status status = runtime::verify::verify_meaning(plan);
            EXPECT_TRUE(status.code() == "DC3211" || status.code() == "DC3214")
                << in.op << " without entry " << i << ": " << status.to_string();
            *list = whole;
          }
          if (whole.empty()) continue;
          list->push_back(plan.rng);  // on the device
          const bool on_host =
              in.kind == rp::InstructionKind::Kernel &&
              plan.streams[static_cast<size_t>(in.stream)].space == rp::Space::Host;
          EXPECT_EQ(runtime::verify::verify_meaning(plan).code(), on_host ? "DC3222" : "DC3211")
              << in.op;
          *list = whole;
        }
      }
    }
    EXPECT_GT(hidden, 100) << chain.middle;
    EXPECT_TRUE(runtime::verify::verify_meaning(plan).ok());
  }
}

}  // namespace
}  // namespace dc::driver
