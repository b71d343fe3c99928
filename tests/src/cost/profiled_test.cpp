// ProfiledCost: which figure answers, what it is, and where it says it comes from.
#include "src/cost/profiled.h"

#include <gtest/gtest.h>

#include "src/cost/analytic.h"
#include "src/cost/costs.h"
#include "src/ir/kernel_signature.h"
#include "tests/src/analysis/small_steps.h"

namespace dc::cost {
namespace {

using base::Bytes;
using base::KernelSignature;
using base::Provider;

base::Timing taking(int64_t ns) { return {ns, ns - 1, 3, 9}; }

class Profiled : public testing::Test {
 protected:
  Profiled() : b_(2) {
    const ir::ValueId x = b_.input("x", ir::f32({64, 32})), w = b_.input("w", ir::f32({32, 16}));
    known_ = b_.aten("aten.mm.default", {x, w}, {"y", ir::f32({64, 16})});
    const ir::ValueId t = b_.aten("aten.add.Tensor", {known_, known_}, {"z", ir::f32({64, 16})});
    unknown_ = b_.aten("aten.mul.Tensor", {t, t}, {"u", ir::f32({64, 16})});
    cast_ = b_.op(ir::OpKind::Cast, {unknown_}, {{"c", ir::contiguous(ir::DType::BF16, {64, 16})}});
    other_cast_ = b_.op(ir::OpKind::Cast, {x}, {{"d", ir::contiguous(ir::DType::BF16, {64, 32})}});
    profile_.digest = "d1";
    profile_.measurements.kernels = {{kernel(known_), taking(5000), 777},
                                     {cast(1024), taking(100), 0},
                                     {cast(4096), taking(400), 0}};
  }
  const ir::Node& node(ir::ValueId value) {
    return b_.graph().node(b_.graph().value(value).producer);
  }
  KernelSignature kernel(ir::ValueId value) { return ir::signature_of(b_.graph(), node(value)); }
  static KernelSignature cast(int elements) {
    const std::string n = std::to_string(elements);  // 6 bytes an element
    return *KernelSignature::parse("dc.cast f32[" + n + "](1) -> bf16[" + n + "](1)",
                                   Provider::Native);
  }
  Estimate time(ir::ValueId value) {
    return ProfiledCost(profile_, table_).compute(b_.graph(), node(value));
  }

  ir::StepBuilder b_;
  ir::ValueId known_, unknown_, cast_, other_cast_;
  profile::Profile profile_;
  const AnalyticCost table_{1};
};

TEST_F(Profiled, TheVeryKernelIsMeasured) {
  EXPECT_EQ(time(known_).time.v, 5000);
  EXPECT_EQ(time(known_).source, Source::Measured);
}

TEST_F(Profiled, AnUnknownKernelComesFromTheTable) {
  EXPECT_EQ(time(unknown_).time.v, table_.compute(b_.graph(), node(unknown_)).time.v);
  EXPECT_EQ(time(unknown_).source, Source::Analytic);
}

TEST_F(Profiled, AtenKernelsOfOtherShapesAreNotInterpolated) {
  profile_.measurements.kernels[0].signature = *KernelSignature::parse(
      "aten.mm.default f32[128,32](32,1) f32[32,16](16,1) -> f32[128,16](16,1)", Provider::Aten);
  EXPECT_EQ(time(known_).source, Source::Analytic);
}

TEST_F(Profiled, NativeKernelsAreReadOffTheirSizes) {
  const Estimate inside = time(other_cast_);  // 2048 elements: a third of the way from 1024 to 4096
  EXPECT_EQ(inside.source, Source::Interpolated);
  EXPECT_EQ(inside.time.v, 200);
  EXPECT_EQ(time(cast_).time.v, 100);  // 1024 elements in another shape: the same bytes
  profile_.measurements.kernels.erase(profile_.measurements.kernels.begin() + 2);
  EXPECT_EQ(time(other_cast_).time.v, 200);  // above the last point: in proportion
  profile_.measurements.kernels.back() = {cast(4096), taking(400), 0};
  EXPECT_EQ(time(other_cast_).time.v, 400);  // below the first: its time
  profile_.measurements.kernels.clear();
  EXPECT_EQ(time(other_cast_).source, Source::Analytic);
}

// Of two measured providers the cost is that of the one which the plan will run, whichever row
// comes last.
TEST_F(Profiled, EachProviderHasItsOwnFigures) {
  const KernelSignature aten = kernel(known_);
  const auto native = *KernelSignature::parse(aten.text(), Provider::Native);
  for (const bool last : {false, true}) {
    auto& rows = profile_.measurements.kernels;
    rows = {{native, taking(3000), 99}};
    rows.insert(last ? rows.begin() : rows.end(), {aten, taking(5000), 777});
    const ProfiledCost cost(profile_, table_);
    EXPECT_EQ(cost.compute(aten).time.v, 5000);
    EXPECT_EQ(cost.scratch(aten).bytes.v, 777);
    EXPECT_EQ(cost.compute(native).time.v, 3000);
    EXPECT_EQ(cost.scratch(native).bytes.v, 99);
    EXPECT_EQ(cost.scratch(native).source, Source::Measured);
    EXPECT_EQ(cost.compute(b_.graph(), node(known_)).time.v, 5000);  // what the plan will run
    EXPECT_EQ(cost.scratch(b_.graph(), node(known_)).bytes.v, 777);
  }
  // One provider's figures say nothing about another's, of this size or any.
  profile_.measurements.kernels = {{native, taking(3000), 99}};
  EXPECT_EQ(time(known_).source, Source::Analytic);
}

// The time of a model's operator does not follow from its bytes, with any provider.
TEST_F(Profiled, ANativeProductOfAnotherShapeIsNotInterpolated) {
  const auto product = [](const char* text) {
    return *KernelSignature::parse(text, Provider::Native);
  };
  profile_.measurements.kernels = {
      {product("aten.mm.default f32[128,32](32,1) f32[32,16](16,1) -> f32[128,16](16,1)"),
       taking(3000), 0}};
  const KernelSignature other =
      product("aten.mm.default f32[64,32](32,1) f32[32,16](16,1) -> f32[64,16](16,1)");
  EXPECT_EQ(ProfiledCost(profile_, table_).compute(other).source, Source::Analytic);
}

// Nor does that of an output layer, though it is an operator of our own.
TEST_F(Profiled, AnOutputLayerOfAnotherShapeIsNotInterpolated) {
  const auto layer = [](int rows) {
    const std::string n = std::to_string(rows);
    return *KernelSignature::parse(
        "dc.linear_cross_entropy f32[" + n + ",8](8,1) f32[16,8](8,1) i64[" + n +
            "](1) f32[]() -> f32[]() f32[]() f32[" + n + ",8](8,1) f32[16,8](8,1)",
        Provider::Native);
  };
  profile_.measurements.kernels = {{layer(4), taking(3000), 128}};
  const ProfiledCost cost(profile_, table_);
  EXPECT_EQ(cost.compute(layer(4)).time.v, 3000);
  EXPECT_EQ(cost.compute(layer(5)).source, Source::Analytic);
}

TEST_F(Profiled, NativeKernelsMayNeedScratch) {
  profile_.measurements.kernels = {{kernel(cast_), taking(100), 640}};
  EXPECT_EQ(ProfiledCost(profile_, table_).scratch(b_.graph(), node(cast_)).bytes.v, 640);
  EXPECT_EQ(ProfiledCost(profile_, table_).scratch(b_.graph(), node(other_cast_)).bytes.v, 0);
}

TEST_F(Profiled, ScratchIsMeasuredOrEstimated) {
  const ProfiledCost cost(profile_, table_);
  EXPECT_EQ(cost.scratch(b_.graph(), node(known_)).bytes.v, 777);
  EXPECT_EQ(cost.scratch(b_.graph(), node(known_)).source, Source::Measured);
  const Scratch unknown = cost.scratch(b_.graph(), node(unknown_));
  EXPECT_EQ(unknown.source, Source::Analytic);
  EXPECT_EQ(unknown.bytes.v, table_.scratch(b_.graph(), node(unknown_)).bytes.v);
}

TEST_F(Profiled, CollectivesAreReadOffTheirSizes) {
  profile_.measurements.collectives = {{"all_gather", 2, 16384, taking(1400)},
                                       {"all_gather", 2, 4096, taking(200)},
                                       {"all_reduce", 4, 4096, taking(900)}};
  const ProfiledCost cost(profile_, table_);
  const auto gather = [&](int64_t bytes) {
    return cost.collective(Collective::AllGather, {bytes}, 2);
  };
  EXPECT_EQ(gather(4096).time.v, 200);
  EXPECT_EQ(gather(4096).source, Source::Measured);
  EXPECT_EQ(gather(8192).time.v, 600);
  EXPECT_EQ(gather(8192).source, Source::Interpolated);
  EXPECT_EQ(gather(0).time.v, 200);
  EXPECT_EQ(gather(16384).source, Source::Measured);
  EXPECT_EQ(gather(32768).time.v, 2800);
  EXPECT_EQ(gather(32768).source, Source::Extrapolated);
  EXPECT_EQ(cost.latency(Collective::AllGather, 2).v, 200);
  EXPECT_EQ(cost.collective(Collective::ReduceScatter, {4096}, 2).source, Source::Analytic);
  EXPECT_EQ(cost.collective(Collective::AllReduce, {4096}, 4).time.v, 900);
  EXPECT_EQ(cost.collective(Collective::AllGather, {4096}, 1).time.v, 0);
}

TEST_F(Profiled, CollectivesOfOtherGroupsTakeWhatSendsAsMuch) {
  profile_.measurements.collectives = {{"all_gather", 2, 4096, taking(200)},
                                       {"all_gather", 2, 16384, taking(1400)},
                                       {"all_gather", 8, 4096, taking(5000)}};
  profile_.measurements.during_compute = {{{"all_gather", 2, 16384, taking(2100)}, 1250},
                                          {{"all_gather", 2, 4096, taking(200)}, 1000}};
  const ProfiledCost cost(profile_, table_);
  const auto gather = [&](int64_t bytes, int ranks) {
    return cost.collective(Collective::AllGather, {bytes}, ranks);
  };
  // Three of four parts are sent, of two ranks' one of two: 8192 bytes as 12288 bytes there.
  EXPECT_EQ(gather(8192, 4).time.v, gather(12288, 2).time.v);
  EXPECT_EQ(gather(8192, 4).source, Source::Extrapolated);
  EXPECT_EQ(gather(int64_t{3} * 4096, 3).time.v, gather(int64_t{4} * 4096, 2).time.v);
  EXPECT_EQ(gather(1 << 20, 4).time.v, gather(3 << 19, 2).time.v);
  EXPECT_EQ(gather(4096, 5).time.v, 5000);  // equally far from both: the larger, and it sends less
  EXPECT_EQ(cost.latency(Collective::AllGather, 4).v, 200);
  EXPECT_EQ(cost.latency(Collective::AllGather, 6).v, 5000);
  EXPECT_EQ(cost.contention(Collective::AllGather, {8192}, 4),
            cost.contention(Collective::AllGather, {12288}, 2));
  EXPECT_EQ(cost.contention(Collective::AllGather, {8192}, 7), Contention{});  // 8 ranks: unknown
  EXPECT_EQ(cost.collective(Collective::AllReduce, {4096}, 4).source, Source::Analytic);
}

// Between two bends, below the first and above the last, sizes lie on one line.
TEST_F(Profiled, CollectivesAreLinearBetweenBends) {
  for (const auto& [bytes, ns] : {std::pair{100, 5000}, {1000, 4000}, {5000, 90'000}})
    profile_.measurements.collectives.push_back({"all_gather", 4, bytes, taking(ns)});
  const ProfiledCost cost(profile_, table_);
  for (const int ranks : {2, 3, 4, 8}) {
    std::vector<Bytes> bends = cost.bends(Collective::AllGather, ranks);
    EXPECT_GE(bends.size(), 3u);
    bends.insert(bends.begin(), Bytes{0});
    bends.push_back(bends.back() * 3);
    for (size_t i = 0; i + 1 < bends.size(); ++i) {
      const int64_t low = bends[i].v + 1, high = bends[i + 1].v - 1, middle = (low + high) / 2;
      if (high - low < 3) continue;
      const auto time = [&](int64_t size) {
        return static_cast<double>(cost.collective(Collective::AllGather, {size}, ranks).time.v);
      };
      const double share = static_cast<double>(middle - low) / static_cast<double>(high - low);
      // Sizes of other groups are rounded to those that were measured.
      EXPECT_NEAR(time(middle), time(low) + share * (time(high) - time(low)), 60)
          << ranks << " ranks, " << low << " to " << high << " bytes";
    }
  }
}

// Inside and across hosts other links carry a collective; what was not measured there takes what
// all ranks take to send as much.
TEST_F(Profiled, LevelsHaveFiguresOfTheirOwn) {
  profile_.measurements.collectives = {{"all_gather", 4, 4096, taking(4000)},
                                       {"all_gather", 2, 4096, taking(100), Level::Inside},
                                       {"all_reduce", 4, 4096, taking(9000)}};
  profile_.measurements.during_compute = {
      {{"all_gather", 4, 4096, taking(8000)}, 1500},
      {{"all_gather", 2, 4096, taking(100), Level::Inside}, 1200}};
  const ProfiledCost cost(profile_, table_);
  const Group inside{2, Level::Inside}, across{2, Level::Across};
  EXPECT_EQ(cost.collective(Collective::AllGather, {4096}, 4).time.v, 4000);
  EXPECT_EQ(cost.collective(Collective::AllGather, {4096}, inside).time.v, 100);
  EXPECT_EQ(cost.collective(Collective::AllGather, {4096}, inside).source, Source::Measured);
  EXPECT_EQ(cost.latency(Collective::AllGather, inside).v, 100);
  EXPECT_EQ(cost.contention(Collective::AllGather, {4096}, inside).compute, 1200);
  EXPECT_EQ(cost.contention(Collective::AllGather, {4096}, 4).compute, 1500);
  // One of two parts is sent, three of four by all: 6144 bytes of two as 4096 of all.
  EXPECT_EQ(cost.collective(Collective::AllReduce, {6144}, across).time.v, 9000);
  EXPECT_EQ(cost.collective(Collective::AllReduce, {6144}, across).source, Source::Extrapolated);
}

TEST(GroupOn, IsOfALevel) {
  const ir::Mesh hosts{{{"host", 3}, {"dp", 2}}}, flat{{{"dp", 6}}};
  EXPECT_EQ(group_on(hosts, ir::kAllAxes), (Group{6, Level::World}));
  EXPECT_EQ(group_on(hosts, 0b11), (Group{6, Level::World}));
  EXPECT_EQ(group_on(hosts, 0b10), (Group{2, Level::Inside}));
  EXPECT_EQ(group_on(hosts, 0b01), (Group{3, Level::Across}));
  EXPECT_EQ(group_on(flat, 0b01), (Group{6, Level::World}));
}

TEST_F(Profiled, ContentionIsWhatWasMeasuredBesideCompute) {
  profile_.measurements.collectives = {{"all_gather", 2, 4096, taking(200)},
                                       {"all_gather", 2, 16384, taking(1000)}};
  profile_.measurements.during_compute = {{{"all_gather", 2, 16384, taking(1100)}, 1050},
                                          {{"all_gather", 2, 4096, taking(300)}, 1250},
                                          {{"all_reduce", 2, 4096, taking(300)}, 1250}};
  const ProfiledCost cost(profile_, table_);
  const auto of = [&](int64_t bytes) { return cost.contention(Collective::AllGather, {bytes}, 2); };
  EXPECT_EQ(of(4096), (Contention{1500, 1250}));
  EXPECT_EQ(of(16384), (Contention{1100, 1050}));
  EXPECT_EQ(of(10240), (Contention{1300, 1150}));
  EXPECT_EQ(of(1), of(4096));
  EXPECT_EQ(of(1 << 20), of(16384));
  EXPECT_EQ(cost.contention(Collective::AllReduce, {4096}, 2), Contention{});  // alone: unknown
  // Faster concurrent with compute than alone is noise.
  profile_.measurements.during_compute = {{{"all_gather", 2, 4096, taking(150)}, 990}};
  EXPECT_EQ(ProfiledCost(profile_, table_).contention(Collective::AllGather, {4096}, 2),
            Contention{});
}

TEST_F(Profiled, SharingALinkIsWhatWasMeasuredOfTwoAtOnce) {
  profile_.measurements.collectives = {{"all_gather", 2, 4096, taking(100)},
                                       {"all_gather", 2, 65536, taking(900)},
                                       {"all_gather", 2, 262144, taking(3100)},
                                       {"reduce_scatter", 2, 65536, taking(900)}};
  const auto of = [&](Collective kind, int64_t bytes) {
    return ProfiledCost(profile_, table_).contention(kind, {bytes}, 2).shared;
  };
  EXPECT_EQ(of(Collective::AllGather, 65536), 1000);  // not measured: evenly
  profile_.measurements.together = {
      {{"all_gather", 2, 262144, taking(100 + 2 * 3000 * 3 / 2)}, "reduce_scatter"},
      {{"all_gather", 2, 65536, taking(100 + 2 * 800 * 5 / 4)}, "reduce_scatter"},
      {{"all_gather", 2, 4096, taking(1000)}, "reduce_scatter"},  // all latency: says nothing
      {{"reduce_scatter", 2, 65536, taking(900)}, "all_gather"}};
  EXPECT_EQ(of(Collective::AllGather, 65536), 1250);
  EXPECT_EQ(of(Collective::AllGather, 262144), 1500);
  EXPECT_EQ(of(Collective::AllGather, 200000), 1250);
  EXPECT_EQ(of(Collective::AllGather, 1), 1250);
  EXPECT_EQ(of(Collective::AllGather, 1 << 20), 1500);
  // Sooner than one after the other: the bounds count on an even share at best.
  EXPECT_EQ(of(Collective::ReduceScatter, 65536), 1000);
  EXPECT_EQ(of(Collective::AllReduce, 65536), 1000);
  EXPECT_EQ(ProfiledCost(profile_, table_).contention(Collective::AllGather, {65536}, 2),
            (Contention{1000, 1000, 1250}));
}

TEST_F(Profiled, RatesOfTheMachineStandInForTheGenericOne) {
  profile_.measurements.machine.cpu = "A machine";
  profile_.measurements.rates = base::MachineRates{1'000'000'000'000,
                                                   2'000'000'000'000,
                                                   8'000'000'000'000,
                                                   100'000'000'000,
                                                   500,
                                                   10'000'000'000,
                                                   3000,
                                                   20'000'000'000,
                                                   30'000'000'000,
                                                   2'000'000'000};
  const Costs costs(profile_, 1);
  const CostModel& cost = costs.model();
  EXPECT_EQ(cost.compute(b_.graph(), node(known_)).time.v, 5000);  // measured all the same
  EXPECT_EQ(cost.compute(b_.graph(), node(unknown_)).time.v, 500 + 3 * 64 * 16 * 4 / 100);
  EXPECT_EQ(cost.compute(b_.graph(), node(unknown_)).source, Source::Analytic);
  EXPECT_EQ(cost.table(), "A machine");
  EXPECT_EQ(cost.collective(Collective::AllGather, {1 << 20}, 4).time.v, 3000 + (3 << 18) / 10);
  profile_.measurements.rates->link_bytes = 125'000'000;  // 1 Gbit/s
  EXPECT_EQ(Costs(profile_, 1).model().collective(Collective::AllGather, {1 << 20}, 4).time.v,
            3000 + (3 << 18) * 8);
  EXPECT_EQ(cost.copy({1 << 20}, ir::Space::Device, ir::Space::Host).time.v, 500 + (1 << 20) / 20);
  EXPECT_EQ(cost.copy({1 << 20}, ir::Space::Host, ir::Space::Device).time.v, 500 + (1 << 20) / 30);
  EXPECT_EQ(cost.copy({1 << 20}, ir::Space::Disk, ir::Space::Device).time.v, 500 + (1 << 20) / 2);
  profile_.measurements.kernels.clear();  // 2 * 64 * 16 * 32 operations at 2000 a nanosecond
  const Costs unmeasured(profile_, 1);
  EXPECT_EQ(unmeasured.model().compute(b_.graph(), node(known_)).time.v,
            500 + (64 * 32 + 32 * 16 + 64 * 16) * 4 / 100);
  EXPECT_EQ(Costs(std::nullopt, 1).model().table(), "a generic CPU");
}

// On a CPU the host's memory is the device's; a machine with rates has a rate for it.
TEST_F(Profiled, AnUpdateOnTheHost) {
  const std::string kF32 = " f32[1000](1)", kF64 = " f64[9](1)";
  const KernelSignature device = *KernelSignature::parse(
      "dc.adamw" + kF32 + kF32 + kF32 + kF32 + kF64 + kF64 + " ->", Provider::Native);
  const KernelSignature host = device.in(ir::Space::Host);
  EXPECT_EQ(table_.compute(host).time, table_.compute(device).time);
  profile_.measurements.kernels = {{device, taking(700), 0}};
  const ProfiledCost as_on_device(profile_, table_);
  EXPECT_EQ(as_on_device.compute(host).time.v, 700);
  EXPECT_EQ(as_on_device.compute(host).source, Source::Measured);
  profile_.measurements.kernels.push_back({host, taking(900), 0});
  const ProfiledCost measured(profile_, table_);
  EXPECT_EQ(measured.compute(host).time.v, 900);
  EXPECT_EQ(measured.compute(device).time.v, 700);
  // Three of four operands are written too. Without a rate: that of a generic CPU, 8e9.
  profile_.measurements.kernels.pop_back();
  profile_.measurements.rates.emplace();
  profile_.measurements.rates->host_memory_bytes = 1'000'000'000;
  EXPECT_EQ(Costs(profile_, 1).model().compute(host).time.v, 7 * 4000 + 2 * 72);
  EXPECT_EQ(Costs(profile_, 1).model().compute(host).source, Source::Analytic);
  profile_.measurements.rates->host_memory_bytes = 0;
  EXPECT_EQ(Costs(profile_, 1).model().compute(host).time.v, (7 * 4000 + 2 * 72) / 8);
  // What a GPU takes says nothing of its host.
  profile_.measurements.rates.reset();
  profile_.measurements.machine.device = base::DeviceKind::Cuda;
  EXPECT_EQ(ProfiledCost(profile_, table_).compute(host).time, table_.compute(host).time);
  EXPECT_EQ(ProfiledCost(profile_, table_).compute(device).time.v, 700);
}

// A profile of one plan has its collectives alone: none is all latency.
TEST_F(Profiled, LatencyWhereNoCollectiveIsSmall) {
  profile_.measurements.collectives = {{"all_gather", 2, 50'000'000, taking(12'000'000)}};
  const base::Nanos fallback = table_.latency(Collective::AllGather, 2);
  EXPECT_EQ(ProfiledCost(profile_, table_).latency(Collective::AllGather, 2), fallback);
  profile_.measurements.collectives.push_back({"all_gather", 2, 100'000'000, taking(23'000'000)});
  EXPECT_EQ(ProfiledCost(profile_, table_).latency(Collective::AllGather, 2).v, 1'000'000);
  profile_.measurements.collectives.push_back({"all_gather", 2, 4096, taking(30'000)});
  EXPECT_EQ(ProfiledCost(profile_, table_).latency(Collective::AllGather, 2).v, 30'000);
}

TEST_F(Profiled, CopiesFollowTheirDirection) {
  profile_.measurements.copies = {{"host", "device", 1000, taking(50)}};
  const ProfiledCost cost(profile_, table_);
  EXPECT_EQ(cost.copy({2000}, ir::Space::Host, ir::Space::Device).time.v, 100);
  EXPECT_EQ(cost.copy({2000}, ir::Space::Host, ir::Space::Device).source, Source::Extrapolated);
  EXPECT_EQ(cost.copy({900}, ir::Space::Host, ir::Space::Device).time.v, 50);
  EXPECT_EQ(cost.copy({900}, ir::Space::Host, ir::Space::Device).source, Source::Interpolated);
  EXPECT_EQ(cost.copy({2000}, ir::Space::Device, ir::Space::Host).source, Source::Analytic);
}

TEST_F(Profiled, NamesTheProfile) {
  EXPECT_EQ(ProfiledCost(profile_, table_).origin(), "profile d1");
}

TEST_F(Profiled, APointOfNoBytesDoesNotDivide) {
  profile_.measurements.collectives = {{"all_gather", 2, 0, taking(7)}};
  const ProfiledCost cost(profile_, table_);
  EXPECT_GE(cost.collective(Collective::AllGather, {1 << 30}, 2).time.v, 0);
}

}  // namespace
}  // namespace dc::cost
