// Level 3 of verification on plans that the compiler made: they have no races, and of plans that
// lack waits it says what a search over all pairs of instructions says.
#include <gtest/gtest.h>

#include <bitset>
#include <map>
#include <set>

#include "runtime/plan/extent.h"
#include "runtime/plan/file.h"
#include "src/cost/costs.h"
#include "src/frontend/import.h"
#include "src/plan/compile.h"

namespace dc::plan {
namespace {

namespace rp = runtime::plan;

constexpr int kRanks = 4;

struct Chain {
  const char *stage, *middle;
  int accumulation = 1;
};

rp::Plan compiled(const Chain& chain) {
  base::Result<ir::Step> step =
      frontend::import_archive(std::string(DC_SOURCE_DIR) + "/tests/data/mlp.pt2");
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  CompileOptions options;
  options.world = kRanks;
  options.accumulation = chain.accumulation;
  options.own_passes = std::string("normalize-graph,shard-parameters=") + chain.stage +
                       ",insert-collectives,add-update,schedule" + chain.middle + ",layout-arenas";
  const cost::Costs costs(std::nullopt, 1);
  base::Result<rp::Plan> plan = compile(std::move(*step), options, costs.model());
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return std::move(*plan);
}

struct Bytes {
  rp::Space space = rp::Space::Device;
  int64_t begin = 0, end = 0;
  bool writes = false;

  bool conflicts(const Bytes& other) const {
    return (writes || other.writes) && space == other.space && begin < other.end &&
           other.begin < end;
  }
};

// Two steps as a graph of instructions, with everything that comes before each.
class AllPairs {
 public:
  AllPairs(const rp::Plan& plan, int rank) : plan_(plan), rank_(rank) {
    for (int step = 0; step < 2; ++step) {
      for (const rp::ProgramRun& run : plan.step) {
        for (int i = 0; i < std::min(run.repeat, 2); ++i) add(run.program);
      }
    }
  }

  bool has_race() const {
    for (size_t j = 0; j < nodes_.size(); ++j) {
      for (size_t i = 0; i < j; ++i) {
        if (!nodes_[j].before[i] && conflict(nodes_[i], nodes_[j])) return true;
      }
    }
    return false;
  }

 private:
  struct Node {
    std::vector<Bytes> bytes;
    std::bitset<1024> before;
  };

  void add(int32_t program) {
    const rp::Program& list = plan_.programs[static_cast<size_t>(program)];
    std::map<int32_t, size_t> last_of;  // stream: its last instruction in this run
    const size_t host = nodes_.size();
    nodes_.emplace_back();
    for (const rp::Input& input : plan_.inputs) touch(input.tensor, true);
    for (int32_t id : {plan_.slots, plan_.rng, plan_.table, plan_.loss_sum})
      if (id >= 0) touch(id, true);
    for (size_t earlier : ends_) comes_behind(earlier);
    std::set<int32_t> signalled;
    bool leaves = false;
    for (const rp::Instruction& in : list.instructions) {
      nodes_.emplace_back();
      const size_t node = nodes_.size() - 1;
      ASSERT_LT(node, 1024u);
      comes_behind(host);
      if (last_.contains(in.stream)) comes_behind(last_[in.stream]);
      if (in.kind == rp::InstructionKind::Wait && signal_.contains(in.event))
        comes_behind(signal_[in.event]);
      if (in.kind == rp::InstructionKind::Wait) leaves |= !signalled.contains(in.event);
      if (in.kind == rp::InstructionKind::Signal) {
        signal_[in.event] = node;
        signalled.insert(in.event);
      }
      for (int32_t tensor : in.reads) touch(tensor, false);
      for (int32_t tensor : in.writes) touch(tensor, true);
      if (in.scratch >= 0) {
        const rp::Slice& slice = plan_.slices[static_cast<size_t>(in.scratch)];
        nodes_.back().bytes.push_back(
            {slice.space, slice.offset, slice.offset + slice.bytes, true});
      }
      last_[in.stream] = last_of[in.stream] = node;
    }
    // These chains let nothing but the step's one program work on into the next step.
    ends_.clear();
    for (const auto& [stream, node] : last_of) {
      if (stream == 0 || !leaves) ends_.push_back(node);
    }
  }

  void touch(int32_t id, bool writes) {
    const rp::Tensor& tensor = plan_.tensors[static_cast<size_t>(id)];
    const rp::Slice& slice = plan_.slices[static_cast<size_t>(tensor.slice)];
    const int64_t begin = slice.offset + tensor.offset + rank_ * tensor.rank_stride;
    nodes_.back().bytes.push_back({slice.space, begin, begin + *rp::reach_bytes(tensor), writes});
  }

  void comes_behind(size_t earlier) {
    nodes_.back().before |= nodes_[earlier].before;
    nodes_.back().before.set(earlier);
  }

  static bool conflict(const Node& a, const Node& b) {
    for (const Bytes& one : a.bytes) {
      for (const Bytes& other : b.bytes) {
        if (one.conflicts(other)) return true;
      }
    }
    return false;
  }

  const rp::Plan& plan_;
  int rank_;
  std::vector<Node> nodes_;
  std::map<int32_t, size_t> last_, signal_;  // by stream, by event
  std::vector<size_t> ends_;                 // what the next run waits for
};

bool has_race(const rp::Plan& plan) {
  return AllPairs(plan, 0).has_race() || AllPairs(plan, kRanks - 1).has_race();
}

struct Counts {
  int events = 0, races = 0;
  int crossing = 0;  // of the races: without the waits for the step before
};

// Waits of a program for one event, all or all but the last, become signals of events that nobody
// waits for; event after event.
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
      const base::Status status = rp::verify_meaning(broken);
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

TEST(Hazards, PlansWithoutWaits) {
  int crossing = 0;
  for (const Chain& chain :
       {Chain{"3", ""}, Chain{"3", ",bucket-reductions,prefetch-gathers,overlap-reductions", 3},
        Chain{"3", ",keep-resident,fuse-gathers,bucket-reductions,prefetch-gathers"},
        Chain{"1", ",bucket-reductions,overlap-reductions,overlap-update"},
        Chain{"2", ",offload-optimizer"}}) {
    const rp::Plan plan = compiled(chain);
    EXPECT_TRUE(rp::verify_meaning(plan).ok()) << rp::verify_meaning(plan).to_string();
    EXPECT_FALSE(has_race(plan)) << chain.middle;
    const Counts all = leave_out_waits(plan, false, chain.middle);
    EXPECT_GT(all.events, 5) << chain.middle;
    EXPECT_GT(2 * all.races, all.events) << chain.middle;  // others stand before a later wait
    crossing += leave_out_waits(plan, true, chain.middle).crossing;
  }
  EXPECT_GT(crossing, 0);
}

}  // namespace
}  // namespace dc::plan
