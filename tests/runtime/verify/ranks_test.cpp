// Level 3 on every rank: places that move with the rank, races that only some ranks have.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "runtime/plan/file.h"
#include "runtime/plan/mesh.h"
#include "runtime/report/report.h"
#include "runtime/verify/places.h"
#include "runtime/verify/verify.h"
#include "tests/runtime/plan/plan_builder.h"
#include "tests/runtime/verify/race_oracle.h"

namespace dc::runtime::plan {
namespace {

using test::has_race;

TEST(SharedRanks, AreThoseThatBruteForceFinds) {
  std::mt19937 random(1);
  const auto draw = [&](int below) {
    return static_cast<int64_t>(random() % static_cast<unsigned>(below));
  };
  int some = 0;
  for (int i = 0; i < 20000; ++i) {
    const int64_t world = 1 + draw(9);
    const verify::Place a{Space::Device, draw(60), draw(12), draw(10)};
    const verify::Place b{Space::Device, draw(60), draw(12), draw(10)};
    const verify::Ranks ranks = verify::shared_ranks(a, b, world);
    int64_t shared = 0;
    for (int64_t r = 0; r < world; ++r) {
      bool shares = false;
      for (int64_t x = a.begin + r * a.stride; x < a.begin + r * a.stride + a.bytes; ++x) {
        shares |= x >= b.begin + r * b.stride && x < b.begin + r * b.stride + b.bytes;
      }
      EXPECT_EQ(shares, ranks.first <= r && r <= ranks.last)
          << "rank " << r << " of " << world << ": " << a.begin << "+" << a.bytes << " by "
          << a.stride << " and " << b.begin << "+" << b.bytes << " by " << b.stride;
      shared += shares;
    }
    some += shared > 0 && shared < world;
  }
  EXPECT_GT(some, 2000);
}

// Along all axes of a mesh, or along some, the same or different ones for the two places.
TEST(SharedRanks, OfAMeshAreFoundWhereverBruteForceFindsOne) {
  std::mt19937 random(2);
  const auto draw = [&](int below) {
    return static_cast<int64_t>(random() % static_cast<unsigned>(below));
  };
  Plan plan;
  plan.mesh = {{"host", 3}, {"dp", 4}};
  int shared = 0, apart = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto place = [&] {
      verify::Place made{Space::Device, draw(90), draw(12), draw(2) * draw(10)};
      if (made.stride != 0) made.axes = std::array{kAllAxes, 1U, 2U}[static_cast<size_t>(draw(3))];
      return made;
    };
    const verify::Place a = place(), b = place();
    const auto shares = [&](int32_t rank) {
      const auto begin = [&](const verify::Place& p) {
        return p.begin + index_in_group(plan, p.axes, rank) * p.stride;
      };
      return a.bytes > 0 && b.bytes > 0 && begin(a) < begin(b) + b.bytes &&
             begin(b) < begin(a) + a.bytes;
    };
    bool any = false, all = true;
    for (int32_t rank = 0; rank < 12; ++rank) {
      any |= shares(rank);
      all &= shares(rank);
    }
    const verify::Ranks ranks = verify::shared_ranks(plan, a, b);
    ASSERT_EQ(any, !ranks.empty()) << i;
    EXPECT_EQ(any, any && shares(static_cast<int32_t>(ranks.first))) << i;
    EXPECT_TRUE(all || ranks.first > 0 || ranks.last < 11) << i;
    (any ? shared : apart) += 1;
  }
  EXPECT_GT(shared, 2000);
  EXPECT_GT(apart, 2000);
}

TEST(SharedRanks, NeedTheSameSpace) {
  EXPECT_TRUE(verify::shared_ranks({Space::Device, 0, 8, 0}, {Space::Host, 0, 8, 0}, 2).empty());
}

constexpr int64_t kRoom = 4096;

// A plan for `world` ranks without parameters to train; its program and one slice are the test's.
class Bare {
 public:
  explicit Bare(int32_t world) : plan(test::tiny_plan()) {
    plan.mesh = {{"dp", world}};
    plan.groups.clear();
    plan.streams = {{"compute"}, {"one"}, {"two"}};
    plan.slices.resize(9);
    plan.tensors.resize(10);
    Parameter& w = plan.parameters[0];
    w.trainable = false;
    w.gradient = w.gradient_ready = w.trainable_index = -1;
    plan.tensors[test::kScalars].sizes = {8};
    plan.tensors[test::kTable].sizes = {world, 2};
    plan.tensors[test::kTable].strides = {2, 1};
    plan.tensors[test::kTableRow].sizes = {2};
    plan.tensors[test::kTableRow].rank_stride = 16;
    const int64_t end = plan.arena_bytes[0];
    plan.slices[6] = {Space::Device, end, 128, -1, 0, 0, SliceKind::Scalars};
    plan.slices.push_back({Space::Device, end + 128, kRoom, -1, 0, 0, SliceKind::Scalars});
    plan.arena_bytes = {end + 128 + kRoom};
    plan.programs[0].instructions.clear();
    plan.programs[0].duration_ns.clear();
    const int32_t all = tensor(0, kRoom / 4, 0);
    plan.state.push_back({"room", all, StateSource::Zeros, -1, -1, {}, StateRole::Scalars, {}});
  }

  int32_t tensor(int64_t offset, int64_t elements, int64_t rank_stride) {
    plan.tensors.push_back({"t", DType::F32, {elements}, {1}, 9, offset, rank_stride});
    return static_cast<int32_t>(plan.tensors.size() - 1);
  }
  void zero(int32_t id) {
    Instruction in;
    in.provider = Provider::Native;
    in.op = "dc.zero";
    Arg x;
    x.kind = ArgKind::Tensor;
    x.i = id;
    in.args = {x};
    in.writes = {id};
    add(in);
  }
  void copy(int32_t from, int32_t to, int32_t stream) {
    Instruction in;
    in.kind = InstructionKind::Copy;
    in.stream = stream;
    in.src = from;
    in.dst = to;
    in.reads = {from};
    in.writes = {to};
    add(in);
  }
  void sync(InstructionKind kind, int32_t event, int32_t stream) {
    Instruction in;
    in.kind = kind;
    in.event = event;
    in.stream = stream;
    plan.events = std::max(plan.events, event + 1);
    add(in);
  }

  Plan plan;

 private:
  void add(Instruction in) { plan.programs[0].instructions.push_back(std::move(in)); }
};

// Compute clears each rank's own 64 bytes; a stream reads bytes that only one rank clears.
TEST(Hazards, ARaceOnAMiddleRank) {
  for (int32_t world : {3, 5}) {
    for (int32_t rank = 0; rank < world; ++rank) {
      for (bool meets : {true, false}) {
        Bare bare(world);
        bare.zero(bare.tensor(0, 8, 64));
        const int32_t from = bare.tensor(rank * 64 + (meets ? 28 : 32), 1, 0);
        bare.copy(from, bare.tensor(kRoom - 4, 1, 0), 1);
        const base::Status status = verify::verify_meaning(bare.plan);
        EXPECT_EQ(has_race(bare.plan), meets);
        ASSERT_EQ(status.ok(), !meets) << status.to_string();
        if (!meets) continue;
        EXPECT_EQ(status.code(), "DC3241") << status.to_string();
        const std::string says = "(on rank " + std::to_string(rank) + ")";
        EXPECT_NE(status.sentence().find(says), std::string::npos) << status.sentence();
      }
    }
  }
}

// The last access of a stream at a byte does not stand for an earlier one of other ranks.
TEST(Hazards, AnEarlierAccessOfOtherRanksIsRemembered) {
  Bare bare(3);
  bare.copy(bare.tensor(kRoom - 64, 4, 0), bare.tensor(64, 4, 0), 1);  // rank 1's range, on all
  bare.copy(bare.tensor(kRoom - 64, 4, 0), bare.tensor(0, 4, 128), 1);
  bare.zero(bare.tensor(0, 4, 64));
  EXPECT_TRUE(has_race(bare.plan));
  EXPECT_EQ(verify::verify_meaning(bare.plan).code(), "DC3241");
}

// Whether two tensors of 16 bytes share one on some rank.
bool meet(const Plan& plan, int32_t a, int32_t b) {
  const Tensor &one = plan.tensors[static_cast<size_t>(a)],
               &other = plan.tensors[static_cast<size_t>(b)];
  for (int64_t rank = 0; rank < plan.world(); ++rank) {
    const int64_t apart = one.offset - other.offset + rank * (one.rank_stride - other.rank_stride);
    if (std::abs(apart) < 16) return true;
  }
  return false;
}

Plan random_plan(std::mt19937& random) {
  const auto draw = [&](int below) {
    return static_cast<int32_t>(random() % static_cast<unsigned>(below));
  };
  const int32_t world = 2 + draw(5);
  Bare bare(world);
  std::vector<int32_t> ids;
  ids.reserve(6);
  for (int i = 0; i < 6; ++i)
    ids.push_back(bare.tensor(int64_t{4} * draw(96), 4, int64_t{4} * draw(3) * draw(8)));
  int32_t events = 0;
  for (int i = 0; i < 12; ++i) {
    const int32_t stream = draw(3);
    switch (draw(4)) {
      case 0:
        bare.sync(InstructionKind::Signal, events++, stream);
        break;
      case 1:
        if (events > 0) bare.sync(InstructionKind::Wait, draw(events), stream);
        break;
      case 2:
        bare.zero(ids[static_cast<size_t>(draw(6))]);
        break;
      default: {
        // What overlaps itself is refused whatever the order.
        const int32_t from = ids[static_cast<size_t>(draw(6))],
                      to = ids[static_cast<size_t>(draw(6))];
        if (!meet(bare.plan, from, to)) bare.copy(from, to, stream);
      }
    }
  }
  return bare.plan;
}

TEST(Hazards, RandomPlansAsBruteForceSays) {
  std::mt19937 random(2);
  int races = 0, some_ranks = 0;
  constexpr int kPlans = 4000;
  for (int i = 0; i < kPlans; ++i) {
    const Plan plan = random_plan(random);
    const base::Status status = verify::verify_meaning(plan);
    ASSERT_EQ(status.ok(), !has_race(plan)) << status.to_string() << "\n" << report::to_text(plan);
    if (status.ok()) continue;
    ASSERT_EQ(status.code(), "DC3241") << status.to_string();
    ++races;
    some_ranks += status.sentence().find("(on rank") != std::string::npos;
  }
  EXPECT_GT(races, kPlans / 10);
  EXPECT_LT(races, kPlans * 9 / 10);
  EXPECT_GT(some_ranks, 50);
}

}  // namespace
}  // namespace dc::runtime::plan
