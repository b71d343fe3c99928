// Random sets of items on real models: time and bytes of the draft are those of the step in which
// they are carried out.
#include "src/schedule/draft.h"

#include <gtest/gtest.h>

#include <random>

#include "src/analysis/live_bytes.h"
#include "src/cost/analytic.h"
#include "src/frontend/import.h"
#include "src/ir/step.h"
#include "src/passes/pass_manager.h"
#include "src/sim/simulate.h"
#include "tests/source_dir.h"

namespace dc::schedule {
namespace {

// With all that may be gathered and made again.
ir::Step lean(const std::string& archive, int accumulation, const std::string& movers,
              const cost::CostModel& cost) {
  auto step = frontend::import_archive(std::string(dc::kSourceDir) + "/tests/data/" + archive);
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  step->mesh.axes = {{"dp", 8}};
  step->accumulation = accumulation;
  passes::Options options;
  options.budgets[ir::Space::Device] = base::Bytes{int64_t{1} << 50};
  std::vector<passes::Remark> remarks;
  const auto chain = passes::parse_passes(
      "normalize-graph,shard-parameters=3,insert-collectives,add-update,schedule,recompute=0," +
      movers);
  EXPECT_TRUE(chain.ok()) << chain.status().to_string();
  const auto change = passes::run_passes(*step, *chain, {cost, options, remarks});
  EXPECT_TRUE(change.ok()) << change.status().to_string();
  return std::move(*step);
}

struct Figures {
  int64_t time = 0, bytes = 0;
  bool operator==(const Figures&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Figures& figures) {
  return out << figures.time << " ns, " << figures.bytes << " bytes";
}

Figures carried_out(const ir::Step& step, size_t program, const Draft& draft,
                    const cost::CostModel& cost) {
  ir::Step kept = step;
  draft.carry_out(kept.programs[program].graph);
  const base::Status sound = ir::verify(kept, kept.stage);
  EXPECT_TRUE(sound.ok()) << sound.to_string();
  const auto scratch = [&](const ir::Graph& graph, const ir::Node& node) {
    return cost.scratch(graph, node).bytes;
  };
  const ir::Graph& graph = kept.programs[program].graph;
  const analysis::Liveness live =
      analysis::liveness(kept, graph, analysis::StorageMap(kept, graph));
  return {sim::simulate(kept, cost).programs[program].time.v,
          analysis::live_bytes(graph, live, scratch).peak(ir::Space::Device).bytes.v};
}

void compare_random_sets(const ir::Step& step, const cost::CostModel& cost, int sets) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (size_t p = 0; p < step.programs.size(); ++p) {
    ASSERT_TRUE(Draft::can_hold(step.programs[p]));
    Draft draft(step, step.programs[p].graph, cost);
    const size_t items = draft.items().size();
    ASSERT_GT(items, 0u);
    for (int i = 0; i < sets; ++i) {
      for (size_t left = 1 + below(i % 2 == 0 ? 3 : items / 4 + 1); left-- > 0;)
        draft.toggle(below(items));
      const Figures figures{draft.time().v, draft.most_bytes()};
      ASSERT_EQ(figures, carried_out(step, p, draft, cost)) << "program " << p << ", set " << i;
      if (below(2) == 0) {
        draft.accept();
      } else {
        draft.reject();
        const Figures back{draft.time().v, draft.most_bytes()};
        ASSERT_EQ(back, carried_out(step, p, draft, cost)) << "program " << p << ", back to " << i;
      }
    }
  }
}

// Compute and collectives slow each other.
class Contending final : public cost::CostModel {
 public:
  cost::Estimate collective(cost::Collective kind, base::Bytes bytes,
                            cost::Group group) const override {
    return costs_.collective(kind, bytes, group);
  }
  base::Nanos latency(cost::Collective kind, cost::Group group) const override {
    return costs_.latency(kind, group);
  }
  cost::Estimate copy(base::Bytes bytes, ir::Space from, ir::Space to) const override {
    return costs_.copy(bytes, from, to);
  }
  cost::Contention contention(cost::Collective, base::Bytes, cost::Group) const override {
    return {1300, 1700};
  }
  std::string origin() const override { return costs_.origin(); }

 private:
  cost::Estimate kernel_time(const base::KernelSignature& kernel) const override {
    return costs_.compute(kernel);
  }
  cost::Scratch kernel_scratch(const base::KernelSignature& kernel) const override {
    return costs_.scratch(kernel);
  }

  cost::AnalyticCost costs_{1};
};

constexpr const char* kMovers =
    "fuse-gathers,bucket-reductions,prefetch-gathers,overlap-reductions";

TEST(Draft, RandomSetsCostWhatTheyCostCarriedOut) {
  const Contending cost;
  compare_random_sets(lean("llama_8b_cuda.pt2", 1, kMovers, cost), cost, 12);
  compare_random_sets(lean("llama_8b_cuda.pt2", 1, "gather-by-block,overlap-reductions=1", cost),
                      cost, 12);
  compare_random_sets(lean("official_joint.pt2", 1, kMovers, cost), cost, 40);
}

TEST(Draft, SeveralPrograms) {
  const cost::AnalyticCost cost(1);
  compare_random_sets(lean("mixtral_dcc_8x7b_cuda.pt2", 4, kMovers, cost), cost, 6);
  compare_random_sets(lean("llama_8b_cuda.pt2", 4, "gather-by-block", cost), cost, 6);
}

TEST(Draft, TakingNothingIsTheProgram) {
  const cost::AnalyticCost cost(1);
  const ir::Step step = lean("llama_8b_cuda.pt2", 1, kMovers, cost);
  Draft draft(step, step.programs[0].graph, cost);
  EXPECT_EQ(draft.time().v, sim::simulate(step, cost).time.v);
  int parameters = 0, kernels = 0;
  for (const DraftItem& item : draft.items()) ++(item.is_parameter ? parameters : kernels);
  EXPECT_GT(parameters, 200);  // of 291
  EXPECT_GT(kernels, 32 * 10);
}

}  // namespace
}  // namespace dc::schedule
