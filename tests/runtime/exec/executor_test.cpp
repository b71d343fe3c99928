#include "runtime/exec/executor.h"

#include <cmath>

#include "runtime/exec/trace.h"
#include "src/base/json.h"
#include "src/base/step_scalars.h"
#include "tests/runtime/exec/hand_plan.h"
#include "tests/runtime/memory/nameless_file.h"
#include "tests/runtime/train/scratch_folder.h"

namespace dc::runtime::test {
namespace {

using base::DType;
using base::ErrorKind;
using base::Status;

float* floats(exec::Executor& executor, int32_t tensor) {
  return static_cast<float*>(executor.tensor(tensor).data);
}

// acc = 0; acc += g; all ranks' acc are summed on the comm stream; sum = acc.
struct SumPlan : HandPlan {
  SumPlan(int world, int64_t elements, int64_t shard) : HandPlan(world) {
    g = tensor("g", DType::F32, {elements});
    sum = tensor("sum", DType::F32, {elements});
    acc = tensor("acc", DType::F32, {world * shard});
    plan.tensors[static_cast<size_t>(acc)].sizes = {elements};
    native("dc.zero", {acc});
    native("dc.accumulate", {acc, g});
    signal(0, 0);
    wait(0, 1);
    collective(plan::CollectiveKind::AllReduce, acc, acc, elements, shard);
    signal(1, 1);
    wait(1, 0);
    native("dc.copy", {sum, acc});
  }
  int32_t g, sum, acc;
};

void sum_many_times(int world, int64_t shard) {
  const int64_t elements = 70;
  const SumPlan hand(world, elements, shard);
  on_ranks(world, {}, [&](comm::ProcessGroup& job, int rank) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    auto prepared = exec::Executor::prepare(hand.plan, job, *slab, {});
    DC_ASSERT_OK(prepared.status());
    exec::Executor& executor = **prepared;
    for (int run = 0; run < 40; ++run) {
      for (int64_t i = 0; i < elements; ++i) {
        floats(executor, hand.g)[i] = static_cast<float>(i * 8 + rank + int64_t{100} * run);
      }
      DC_ASSERT_OK(executor.run(0));
      for (int64_t i = 0; i < elements; ++i) {
        const int64_t ranks = world;
        const int64_t sum = ranks * (i * 8 + int64_t{100} * run) + ranks * (ranks - 1) / 2;
        ASSERT_EQ(floats(executor, hand.sum)[i], static_cast<float>(sum));
      }
    }
    EXPECT_EQ(executor.counts().native, 3);
    EXPECT_EQ(executor.counts().collectives, 1);
    EXPECT_EQ(executor.counts().aten, 0);
    EXPECT_EQ(executor.traffic().all_reduce > 0, world > 1);
  });
}

TEST(Executor, SumsOverStreamsOneRank) { sum_many_times(1, 96); }
TEST(Executor, SumsOverStreamsTwoRanks) { sum_many_times(2, 64); }
TEST(Executor, SumsOverStreamsThreeRanks) { sum_many_times(3, 32); }

// Each step doubles what the last one gathered; its own gather is awaited by the next.
TEST(Executor, AGatherGoesOnIntoTheNextRun) {
  const int world = 2;
  const int64_t shard = 32;
  HandPlan hand(world);
  const int32_t whole = hand.tensor("whole", DType::F32, {world * shard});
  const int32_t sum = hand.tensor("sum", DType::F32, {world * shard});
  const int32_t own = hand.own_range(whole, shard), own_before = hand.own_range(sum, shard);
  hand.wait(0, 0);
  hand.native("dc.copy", {sum, whole});
  hand.native("dc.accumulate", {own, own_before});
  hand.signal(1, 0);
  hand.wait(1, 1);
  hand.collective(plan::CollectiveKind::AllGather, own, whole, world * shard, shard);
  hand.signal(0, 1);
  hand.plan.events = 2;
  on_ranks(world, {}, [&](comm::ProcessGroup& job, int rank) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    auto prepared = exec::Executor::prepare(hand.plan, job, *slab, {});
    DC_ASSERT_OK(prepared.status());
    exec::Executor& executor = **prepared;
    for (int64_t i = 0; i < world * shard; ++i) floats(executor, whole)[i] = 1;
    float expected = 1;
    for (int run = 0; run < 40; ++run, expected *= 2) {
      if (rank == run % 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      DC_ASSERT_OK(executor.run(0));
      for (int64_t i = 0; i < world * shard; ++i) ASSERT_EQ(floats(executor, sum)[i], expected);
    }
    DC_ASSERT_OK(executor.finish());
    for (int64_t i = 0; i < world * shard; ++i) ASSERT_EQ(floats(executor, whole)[i], expected);
  });
}

TEST(Executor, ScattersAndGathersUnevenShards) {
  const int world = 3;
  const int64_t elements = 70, shard = 32;
  HandPlan hand(world);
  const int32_t g = hand.tensor("g", DType::F32, {elements});
  const int32_t own = hand.tensor("own", DType::F32, {shard});
  const int32_t whole = hand.tensor("whole", DType::F32, {world * shard});
  hand.plan.tensors[static_cast<size_t>(whole)].sizes = {elements};
  hand.collective(plan::CollectiveKind::ReduceScatter, g, own, elements, shard);
  hand.collective(plan::CollectiveKind::AllGather, own, whole, elements, shard);
  on_ranks(world, {}, [&](comm::ProcessGroup& job, int rank) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    auto executor = exec::Executor::prepare(hand.plan, job, *slab, {});
    DC_ASSERT_OK(executor.status());
    for (int64_t i = 0; i < elements; ++i) {
      floats(**executor, g)[i] = static_cast<float>((rank + 1) * i);
    }
    DC_ASSERT_OK((*executor)->run(0));
    for (int64_t i = 0; i < elements; ++i) {
      ASSERT_EQ(floats(**executor, whole)[i], static_cast<float>(6 * i));
    }
    for (int64_t i = 0; i < shard; ++i) {
      const int64_t global = rank * shard + i;
      ASSERT_EQ(floats(**executor, own)[i],
                global < elements ? static_cast<float>(6 * global) : 0.0f);
    }
  });
}

// t (transient, dead after instruction 1) = 0, kept += t, kept += one.
struct PoisonPlan : HandPlan {
  PoisonPlan() : HandPlan(1, 1) {
    t = tensor("t", DType::F32, {20}, 0, 0, 1);
    kept = tensor("kept", DType::F32, {20});
    one = tensor("one", DType::F32, {20});
    native("dc.zero", {t});
    native("dc.accumulate", {kept, t});
    native("dc.accumulate", {kept, one});
  }
  int32_t t, kept, one;
};

TEST(Executor, PoisonsAfterTheLastUseAndBeforeTheFirst) {
  const PoisonPlan hand;
  for (const bool poison : {false, true}) {
    on_ranks(1, {}, [&](comm::ProcessGroup& job, int) {
      auto slab = job.allocate(hand.plan.arena_bytes[0]);
      DC_ASSERT_OK(slab.status());
      exec::ExecutorOptions options;
      options.poison = poison;
      auto prepared = exec::Executor::prepare(hand.plan, job, *slab, options);
      DC_ASSERT_OK(prepared.status());
      exec::Executor& executor = **prepared;
      EXPECT_EQ(std::isnan(floats(executor, hand.t)[0]), poison);
      floats(executor, hand.one)[7] = 1;
      bool alive_when_read = false;
      executor.observe([&](int32_t program, int32_t index) {
        EXPECT_EQ(program, 0);
        if (index == 1) alive_when_read = floats(executor, hand.t)[19] == 0;
        if (index == 2) {
          EXPECT_EQ(std::isnan(floats(executor, hand.t)[19]), poison);
        }
        return base::ok_status();
      });
      DC_ASSERT_OK(executor.run(0));
      DC_ASSERT_OK(executor.run(0));
      EXPECT_TRUE(alive_when_read);
      EXPECT_EQ(floats(executor, hand.kept)[7], 2);  // state is never poisoned
      EXPECT_EQ(floats(executor, hand.kept)[8], 0);
    });
  }
}

TEST(Executor, AFailureOnComputeEndsTheOtherStreams) {
  const SumPlan hand(1, 70, 96);
  on_ranks(1, {}, [&](comm::ProcessGroup& job, int) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    auto executor = exec::Executor::prepare(hand.plan, job, *slab, {});
    DC_ASSERT_OK(executor.status());
    DC_ASSERT_OK((*executor)->run(0));
    // Before the signal that the comm stream waits for.
    (*executor)->observe([](int32_t, int32_t index) {
      return index == 1 ? Status(ErrorKind::Io, "DC0001", "made to fail") : Status();
    });
    const Status first = (*executor)->run(0);
    ASSERT_FALSE(first.ok());
    EXPECT_EQ(first.code(), "DC0001");
    ASSERT_EQ(first.context().size(), 1u);
    EXPECT_EQ(first.context()[0], "at instruction 1 of program 'step', dc.accumulate");
    (*executor)->observe(nullptr);
    EXPECT_EQ((*executor)->run(0).code(), "DC0001");  // for good
  });
}

TEST(Executor, APeerThatLeavesEndsTheRun) {
  const SumPlan hand(2, 70, 64);
  on_ranks(2, {}, [&](comm::ProcessGroup& job, int rank) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    auto executor = exec::Executor::prepare(hand.plan, job, *slab, {});
    DC_ASSERT_OK(executor.status());
    DC_ASSERT_OK((*executor)->run(0));
    if (rank == 1) {
      job.leave(Status(ErrorKind::Io, "DC0002", "disk on fire"));
      return;
    }
    const Status status = (*executor)->run(0);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.kind(), ErrorKind::PeerDied);
    EXPECT_NE(status.sentence().find("rank 1"), std::string::npos) << status.sentence();
  });
}

// Of the CPU they run on the checked device too, which is the same machine code.
TEST(Executor, RefusesPlansForAnotherDevice) {
  PoisonPlan hand;
  for (const auto& [device, planned, expected] :
       {std::tuple{base::DeviceKind::Cpu, base::DeviceKind::Checked, "DC6606"},
        std::tuple{base::DeviceKind::Checked, base::DeviceKind::Cpu, ""},
        std::tuple{base::DeviceKind::Checked, base::DeviceKind::Checked, ""}}) {
    const char* code = expected;  // clang 14 cannot capture a binding
    hand.plan.device = planned;
    comm::CommOptions options;
    options.device = *device::open_device(device);
    on_ranks(1, options, [&](comm::ProcessGroup& job, int) {
      auto slab = job.allocate(hand.plan.arena_bytes[0]);
      DC_ASSERT_OK(slab.status());
      const auto executor = exec::Executor::prepare(hand.plan, job, *slab, {});
      if (executor.ok()) {
        EXPECT_STREQ(code, "");
        return;
      }
      EXPECT_EQ(executor.status().code(), code);
      EXPECT_EQ(executor.status().kind(), ErrorKind::Mismatch);
      EXPECT_NE(executor.status().sentence().find("for device 'checked' but runs on device 'cpu'"),
                std::string::npos);
    });
  }
}

TEST(Executor, RefusesWhatItCannotRun) {
  on_ranks(1, {}, [](comm::ProcessGroup& job, int) {
    auto slab = job.allocate(4096);
    DC_ASSERT_OK(slab.status());
    const auto refusal = [&](const plan::Plan& plan) {
      auto executor = exec::Executor::prepare(plan, job, *slab, {});
      EXPECT_FALSE(executor.ok());
      return executor.ok() ? 0 : base::exit_code(executor.status().kind());
    };
    PoisonPlan unknown;
    unknown.instructions()[0].op = "dc.nonsense";
    EXPECT_EQ(refusal(unknown.plan), 81);
    PoisonPlan fused;
    fused.instructions()[0].provider = plan::Provider::Fused;
    EXPECT_EQ(refusal(fused.plan), 81);
    PoisonPlan host;
    host.plan.arena_bytes = {1024, 64};
    EXPECT_EQ(refusal(host.plan), 70);  // its caller must bring the memory
    PoisonPlan more;
    more.plan.mesh = {{"dp", 2}};
    EXPECT_EQ(refusal(more.plan), 76);
  });
}

// By its name: other versions have other collectives.
TEST(Executor, RefusesACollectiveThatItCannotRun) {
  HandPlan hand(1);
  const int32_t x = hand.tensor("x", DType::F32, {4}), y = hand.tensor("y", DType::F32, {4});
  hand.collective(plan::CollectiveKind::AllToAll, x, y, 4, 4);
  on_ranks(1, {}, [&](comm::ProcessGroup& job, int) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    const Status status = exec::Executor::prepare(hand.plan, job, *slab, {}).status();
    EXPECT_EQ(status.code(), "DC6616");
    EXPECT_NE(status.sentence().find("of kind all_to_all"), std::string::npos) << status.sentence();
  });
}

TEST(Executor, CopiesAndCountsThem) {
  HandPlan hand(1, 1);
  const int32_t from = hand.tensor("from", DType::F32, {4, 3});
  const int32_t to = hand.tensor("to", DType::F32, {4, 3});
  hand.copy(from, to);
  on_ranks(1, {}, [&](comm::ProcessGroup& job, int) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    auto executor = exec::Executor::prepare(hand.plan, job, *slab, {});
    DC_ASSERT_OK(executor.status());
    for (int i = 0; i < 12; ++i) floats(**executor, from)[i] = static_cast<float>(i);
    DC_ASSERT_OK((*executor)->run(0));
    EXPECT_EQ(floats(**executor, to)[11], 11);
    EXPECT_EQ((*executor)->counts().copies, 1);
  });
}

// x goes out on one stream, comes back to y on another, and y is added to `sum`.
struct OffloadPlan : HandPlan {
  explicit OffloadPlan(plan::Space space) : HandPlan(1, 3) {
    x = tensor("x", DType::F32, {kElements});
    away = tensor("away", DType::F32, {kElements}, 0, 0, 9, space);
    y = tensor("y", DType::F32, {kElements}, 0, 5, 10);
    sum = tensor("sum", DType::F32, {kElements});
    signal(0, 0);
    wait(0, 1);
    copy(x, away, 1);
    signal(1, 1);
    wait(1, 0);
    signal(2, 0);
    wait(2, 2);
    copy(away, y, 2);
    signal(3, 2);
    wait(3, 0);
    native("dc.accumulate", {sum, y});
  }
  static constexpr int64_t kElements = 100'000;
  int32_t x, away, y, sum;
};

void offload_many_times(plan::Space space, bool poison) {
  const OffloadPlan hand(space);
  const ScratchFolder folder;
  on_ranks(1, {}, [&](comm::ProcessGroup& job, int) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    auto outside = memory::OffloadMemory::create(hand.plan, 0, folder / "", device::cpu_device());
    DC_ASSERT_OK(outside.status());
    exec::ExecutorOptions options;
    options.poison = poison;
    options.outside = &*outside;
    auto prepared = exec::Executor::prepare(hand.plan, job, *slab, options);
    DC_ASSERT_OK(prepared.status());
    exec::Executor& executor = **prepared;
    double expected = 0;
    for (int run = 0; run < 20; ++run) {
      for (int64_t i = 0; i < OffloadPlan::kElements; ++i)
        floats(executor, hand.x)[i] = static_cast<float>(run + i % 7);
      DC_ASSERT_OK(executor.run(0));
      expected += run + 3;
      ASSERT_EQ(floats(executor, hand.sum)[3], expected);
      ASSERT_EQ(floats(executor, hand.sum)[99'998], expected);  // 3 modulo 7
    }
    EXPECT_EQ(executor.counts().copies, 2);
    if (space != plan::Space::Disk) return;
    std::byte dead[4];
    EXPECT_EQ(outside->disk->read_part(hand.away, 0, dead).ok(), !poison);
  });
}

TEST(Executor, OffloadsToTheHost) { offload_many_times(plan::Space::Host, false); }
TEST(Executor, OffloadsToTheHostPoisoned) { offload_many_times(plan::Space::Host, true); }
TEST(Executor, OffloadsToDisk) { offload_many_times(plan::Space::Disk, false); }
TEST(Executor, OffloadsToDiskPoisoned) { offload_many_times(plan::Space::Disk, true); }

TEST(Executor, DamageOnDiskEndsTheRunNamingTheTensor) {
  const OffloadPlan hand(plan::Space::Disk);
  const ScratchFolder folder;
  on_ranks(1, {}, [&](comm::ProcessGroup& job, int) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    auto outside = memory::OffloadMemory::create(hand.plan, 0, folder / "", device::cpu_device());
    DC_ASSERT_OK(outside.status());
    exec::ExecutorOptions options;
    options.outside = &*outside;
    auto executor = exec::Executor::prepare(hand.plan, job, *slab, options);
    DC_ASSERT_OK(executor.status());
    DC_ASSERT_OK((*executor)->run(0));
    // Between the wait for the copy out and the signal for the copy in.
    (*executor)->observe([&](int32_t, int32_t index) {
      if (index == 4) damage_file_in(folder / "", 200'001);
      return base::ok_status();
    });
    const Status status = (*executor)->run(0);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.kind(), ErrorKind::Io);
    EXPECT_EQ(status.code(), "DC6705");
    EXPECT_NE(status.sentence().find("'away' came back from disk damaged"), std::string::npos)
        << status.to_string();
    EXPECT_NE(status.to_string().find("instruction 7 of program 'step'"), std::string::npos)
        << status.to_string();
    (*executor)->observe(nullptr);
    EXPECT_EQ((*executor)->run(0).code(), "DC6705");
  });
}

TEST(Executor, WaitsOfComputeAreExposedAndOthersAreNot) {
  for (const bool waits : {true, false}) {
    SumPlan hand(2, 70, 64);
    if (!waits) hand.instructions().resize(6);  // until the signal that compute waits for
    on_ranks(2, {}, [&](comm::ProcessGroup& job, int) {
      auto slab = job.allocate(hand.plan.arena_bytes[0]);
      DC_ASSERT_OK(slab.status());
      auto prepared = exec::Executor::prepare(hand.plan, job, *slab, {});
      DC_ASSERT_OK(prepared.status());
      exec::Executor& executor = **prepared;
      EXPECT_EQ(executor.communication_time().collective_ns, 0);
      DC_ASSERT_OK(executor.run(0));
      const auto once = executor.communication_time();
      EXPECT_GT(once.collective_ns, 0);
      EXPECT_EQ(once.exposed_ns > 0, waits);
      DC_ASSERT_OK(executor.run(0));
      EXPECT_GT(executor.communication_time().collective_ns, once.collective_ns);
    });
  }
}

TEST(Executor, ACollectiveOnTheComputeStreamIsExposed) {
  HandPlan hand(2, 1);
  const int32_t acc = hand.tensor("acc", DType::F32, {128});
  hand.collective(plan::CollectiveKind::AllReduce, acc, acc, 128, 64);
  on_ranks(2, {}, [&](comm::ProcessGroup& job, int) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    auto executor = exec::Executor::prepare(hand.plan, job, *slab, {});
    DC_ASSERT_OK(executor.status());
    DC_ASSERT_OK((*executor)->run(0));
    const auto time = (*executor)->communication_time();
    EXPECT_GT(time.collective_ns, 0);
    EXPECT_EQ(time.exposed_ns, time.collective_ns);
  });
}

TEST(Trace, KeepsTheNewestAndWritesJson) {
  const SumPlan hand(1, 70, 96);
  std::string text;
  on_ranks(1, {}, [&](comm::ProcessGroup& job, int) {
    exec::TraceRecorder trace(hand.plan, 0, 6);
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    exec::ExecutorOptions options;
    options.trace = &trace;
    auto executor = exec::Executor::prepare(hand.plan, job, *slab, options);
    DC_ASSERT_OK(executor.status());
    for (int run = 0; run < 3; ++run) DC_ASSERT_OK((*executor)->run(0));
    EXPECT_EQ(trace.dropped(), 3 * 4 - 6);  // compute: three kernels and a wait per run
    std::FILE* file = std::tmpfile();
    DC_ASSERT_OK(trace.write_events(file, true));
    std::rewind(file);
    for (int c = 0; (c = std::fgetc(file)) != EOF;) text.push_back(static_cast<char>(c));
    std::fclose(file);
  });
  auto json = base::parse_json_value("[" + text + "]", "trace");
  DC_ASSERT_OK(json.status());
  int kernels = 0, reductions = 0, waits = 0;
  for (const base::JsonValue& event : json->items()) {
    const auto* name = event.find("name");
    ASSERT_NE(name, nullptr);
    const std::string word = *name->to_string();
    kernels += word == "dc.accumulate";
    reductions += word == "all_reduce";
    if (word == "all_reduce") {
      EXPECT_EQ(*event.find("tid")->to_integer(), 1);
      EXPECT_EQ(*event.find("args")->find("bytes")->to_integer(), 280);
      EXPECT_EQ(event.find("args")->find("awaits"), nullptr);  // comm never keeps itself waiting
      EXPECT_EQ(*event.find("args")->find("step")->to_integer(), reductions);
    }
    if (word == "wait" && *event.find("tid")->to_integer() == 0) {
      ++waits;
      const auto* awaits = event.find("args")->find("awaits");
      ASSERT_NE(awaits, nullptr);
      EXPECT_EQ(*awaits->find("index")->to_integer(), 4);
      EXPECT_EQ(*awaits->find("name")->to_string(), "all_reduce");
      EXPECT_EQ(*awaits->find("bytes")->to_integer(), 280);
    }
  }
  EXPECT_EQ(reductions, 3);
  EXPECT_GE(kernels, 1);
  EXPECT_EQ(waits, 2);  // of six records: the last two of step 2, the four of step 3
}

}  // namespace
}  // namespace dc::runtime::test
