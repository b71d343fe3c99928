// Plans on a GPU's streams: on the double of the driver (tests/double), next to the CPU.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "runtime/exec/executor.h"
#include "runtime/exec/trace.h"
#include "tests/runtime/exec/hand_plan.h"
#include "tests/runtime/kernel/cuda/kernel_cache.h"

namespace dc::runtime {
namespace {

using base::Status;
using test::HandPlan;
using test::on_ranks;

constexpr int64_t kElements = 64;
constexpr int kStreams = 3;

plan::Arg argument(const std::string& name, plan::ArgKind kind, int64_t integer,
                   const std::string& text = "") {
  plan::Arg arg;
  arg.name = name;
  arg.kind = kind;
  arg.i = integer;
  arg.s = text;
  return arg;
}

// Copies between values, and kernels if they are wanted, each on a stream drawn at random, which
// waits for the streams that wrote what it reads and used what it overwrites. Values start as their
// own numbers. So many of the first steps, of all, are on stream 0.
class RandomWork : public HandPlan {
 public:
  explicit RandomWork(uint32_t seed, bool with_kernels = false, int alone = 0, int all = 80)
      : HandPlan(1, kStreams), with_kernels_(with_kernels), random_(seed) {
    constexpr size_t kValues = 6;
    for (size_t v = 0; v < kValues; ++v)
      values.push_back(tensor("v" + std::to_string(v), base::DType::F32, {kElements}));
    for (int i = 0; i < all; ++i) {
      const size_t from = draw(kValues), to = draw(kValues);
      if (from != to) step(from, to, i < alone ? 0 : static_cast<int32_t>(draw(kStreams)));
    }
    for (int32_t s = 1; s < kStreams; ++s) follow(0, {s, done_[static_cast<size_t>(s)]});
  }
  std::vector<int32_t> values;

 private:
  struct Use {  // the count-th copy of a stream
    int32_t stream = 0;
    int count = 0;
  };
  size_t draw(size_t below) { return random_() % below; }

  void step(size_t from, size_t to, int32_t stream) {
    follow(stream, writers_[from]);
    follow(stream, writers_[to]);
    for (int32_t s = 0; s < kStreams; ++s)
      follow(stream, {s, readers_[to][static_cast<size_t>(s)]});
    if (with_kernels_ && draw(4) != 0)
      kernel(values[from], values[to], stream);
    else
      copy(values[from], values[to], stream);
    const int count = ++done_[static_cast<size_t>(stream)];
    writers_[to] = {stream, count};
    readers_[from][static_cast<size_t>(stream)] = count;
  }
  // `to` becomes what it was and `from` give; values stay between 0 and 8.
  void kernel(int32_t from, int32_t to, int32_t stream) {
    plan::Instruction made;
    made.stream = stream;
    made.outputs = {to};
    made.reads = {from, to};
    made.writes = {to};
    if (draw(3) == 0) {
      made.provider = plan::Provider::Native;
      made.op = "aten.maximum.default";
      made.args = {argument("self", plan::ArgKind::Tensor, from),
                   argument("other", plan::ArgKind::Tensor, to)};
    } else {
      constexpr const char* kBodies[] = {
          "t0:bf16=_to_copy.default(self=a0);t1:f32=mul.Tensor(self=a1,other=t0);"
          "t2:f32=clamp.default(self=t1,min=0.5,max=8.0);->t2",
          "t0:f32=silu.default(self=a0);t1:f32=sigmoid.default(self=a1);"
          "t2:f32=add.Tensor(self=t0,other=t1,alpha=0.5);t3:f32=clamp.default(self=t2,max=8.0);"
          "->t3"};
      made.provider = plan::Provider::Fused;
      made.op = "dc.fused";
      made.args = {argument("a0", plan::ArgKind::Tensor, from),
                   argument("a1", plan::ArgKind::Tensor, to),
                   argument("body", plan::ArgKind::String, 0, kBodies[draw(2)])};
    }
    instructions().push_back(std::move(made));
  }
  void follow(int32_t stream, const Use& use) {
    int& known = known_[static_cast<size_t>(stream)][static_cast<size_t>(use.stream)];
    if (use.stream == stream || use.count <= known) return;
    signal(plan.events, use.stream);
    wait(plan.events - 1, stream);
    known = done_[static_cast<size_t>(use.stream)];
  }

  bool with_kernels_;
  std::minstd_rand random_;
  std::array<int, kStreams> done_{};
  std::array<std::array<int, kStreams>, kStreams> known_{};
  std::array<Use, 8> writers_{};
  std::array<std::array<int, kStreams>, 8> readers_{};
};

// Of all that is issued to stream 0, and of nothing else.
void expect_times_of_compute(const plan::Plan& plan, const std::vector<int64_t>& times) {
  const std::vector<plan::Instruction>& instructions = plan.programs[0].instructions;
  ASSERT_EQ(times.size(), instructions.size());
  for (size_t i = 0; i < times.size(); ++i) {
    if (instructions[i].stream == 0) {
      EXPECT_GT(times[i], 0) << i;
    } else {
      EXPECT_EQ(times[i], 0) << i;
    }
  }
}

// All values after three steps; `timed`: the second says how long its commands took.
std::vector<float> after_steps(const RandomWork& hand, base::DeviceKind kind, bool graphs = true,
                               bool timed = false) {
  std::vector<float> all;
  comm::CommOptions options;
  options.device = *device::open_device(kind);
  on_ranks(1, options, [&](comm::ProcessGroup& job, int) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    exec::ExecutorOptions with;
    with.graphs = graphs;
    const auto executor = exec::Executor::prepare(hand.plan, job, *slab, with);
    DC_ASSERT_OK(executor.status());
    std::array<float, kElements> part{};
    const auto bytes = [&] { return std::as_writable_bytes(std::span(part)); };
    for (size_t v = 0; v < hand.values.size(); ++v) {
      part.fill(static_cast<float>(v));
      EXPECT_TRUE(
          job.device()
              .upload(static_cast<std::byte*>((*executor)->tensor(hand.values[v]).data), bytes())
              .ok());
    }
    for (int run = 0; run < 4; ++run) {
      if (timed && run == 1) {
        const auto times = (*executor)->time(0);
        DC_ASSERT_OK(times.status());
        expect_times_of_compute(hand.plan, *times);
      } else if (timed && run == 2) {
        const auto whole = (*executor)->time_program(0);
        DC_ASSERT_OK(whole.status());
        EXPECT_GT(*whole, 0);
      } else {
        DC_ASSERT_OK((*executor)->run(0));
      }
    }
    for (const int32_t value : hand.values) {
      EXPECT_TRUE(
          job.device()
              .download(bytes(), static_cast<const std::byte*>((*executor)->tensor(value).data))
              .ok());
      all.insert(all.end(), part.begin(), part.end());
    }
  });
  return all;
}

TEST(CudaExecutor, StreamsDoWhatTheyDoOnTheCpu) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const RandomWork hand(seed);
    const std::vector<float> expected = after_steps(hand, base::DeviceKind::Cpu);
    ASSERT_EQ(expected.size(), hand.values.size() * kElements);
    for (const bool graphs : {false, true})
      EXPECT_EQ(after_steps(hand, base::DeviceKind::Cuda, graphs), expected) << "seed " << seed;
  }
}

// Fused and element-wise kernels are compiled, launched and give the CPU's bits.
TEST(CudaExecutor, KernelsAndCopiesGiveTheBitsOfTheCpu) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const RandomWork hand(seed, true);
    const std::vector<float> expected = after_steps(hand, base::DeviceKind::Cpu);
    for (const bool graphs : {false, true})
      EXPECT_EQ(after_steps(hand, base::DeviceKind::Cuda, graphs), expected) << "seed " << seed;
  }
}

// A program that is timed does what it does otherwise, as a graph and without one.
TEST(CudaExecutor, TimesWhatComputeDoes) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    const RandomWork hand(seed, true);
    const std::vector<float> expected = after_steps(hand, base::DeviceKind::Cpu);
    EXPECT_EQ(after_steps(hand, base::DeviceKind::Cpu, false, true), expected);
    for (const bool graphs : {false, true})
      EXPECT_EQ(after_steps(hand, base::DeviceKind::Cuda, graphs, true), expected)
          << "seed " << seed;
  }
}

// A long program whose beginning is kernels of one stream becomes two graphs.
TEST(CudaExecutor, LongProgramsBecomeTwoGraphs) {
  for (const bool timed : {false, true}) {
    const RandomWork hand(7, true, 80, 400);
    const std::vector<float> expected = after_steps(hand, base::DeviceKind::Cpu);
    EXPECT_EQ(after_steps(hand, base::DeviceKind::Cuda, true, timed), expected);
  }
}

// Two programs: the second leaves a copy on the communication stream, for which the first waits
// when it runs again.
class CopyThatGoesOn : public HandPlan {
 public:
  CopyThatGoesOn() : HandPlan(1) {
    for (const char* name : {"a", "b", "c", "d"})
      values.push_back(tensor(name, base::DType::F32, {kElements}));
    plan.programs.push_back({"second", {}});
    plan.step.push_back({1, 1});
    wait(0, 0);
    copy(values[1], values[2], 0);  // c = b, as the step before has left it
    program = 1;
    copy(values[0], values[3], 0);
    signal(1, 0);
    wait(1, 1);
    copy(values[3], values[1], 1);  // goes on when the program has returned
    signal(0, 1);
  }
  std::vector<int32_t> values;
};

// Values after each step, those that compute has written also before the rest is over.
std::vector<float> seen_in_steps(const CopyThatGoesOn& hand, base::DeviceKind kind, bool graphs) {
  std::vector<float> all;
  comm::CommOptions options;
  options.device = *device::open_device(kind);
  on_ranks(1, options, [&](comm::ProcessGroup& job, int) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    exec::ExecutorOptions with;
    with.graphs = graphs;
    const auto executor = exec::Executor::prepare(hand.plan, job, *slab, with);
    DC_ASSERT_OK(executor.status());
    const auto at = [&](size_t value) {
      return static_cast<std::byte*>((*executor)->tensor(hand.values[value]).data);
    };
    std::array<float, kElements> part{};
    const auto see = [&](size_t value) {
      EXPECT_TRUE(job.device().download(std::as_writable_bytes(std::span(part)), at(value)).ok());
      all.push_back(part[kElements - 1]);
    };
    for (int step = 0; step < 8; ++step) {
      part.fill(static_cast<float>(step + 1));
      EXPECT_TRUE(job.device().upload(at(0), std::as_bytes(std::span(part))).ok());
      DC_ASSERT_OK((*executor)->run(0));
      see(2);
      part.fill(0);
      DC_ASSERT_OK((*executor)->run(1));
      see(3);
    }
    DC_ASSERT_OK((*executor)->finish());
    for (size_t value = 0; value < hand.values.size(); ++value) see(value);
  });
  return all;
}

TEST(CudaExecutor, WorkGoesOnIntoTheNextStep) {
  const CopyThatGoesOn hand;
  const std::vector<float> expected = seen_in_steps(hand, base::DeviceKind::Cpu, false);
  ASSERT_EQ(expected.size(), 20u);
  EXPECT_EQ(expected[14], 7);  // what the step before has left
  EXPECT_EQ(expected[15], 8);
  for (const bool graphs : {false, true})
    EXPECT_EQ(seen_in_steps(hand, base::DeviceKind::Cuda, graphs), expected) << graphs;
}

// An observer sees each instruction, so there is no graph; afterwards there is one again.
TEST(CudaExecutor, ObserversAndGraphsTakeTurns) {
  const RandomWork hand(3);
  comm::CommOptions options;
  options.device = *device::open_device(base::DeviceKind::Cuda);
  on_ranks(1, options, [&](comm::ProcessGroup& job, int) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    const auto executor = exec::Executor::prepare(hand.plan, job, *slab, {});
    DC_ASSERT_OK(executor.status());
    int seen = 0;
    DC_ASSERT_OK((*executor)->run(0));
    (*executor)->observe([&seen](int32_t, int32_t) {
      ++seen;
      return Status();
    });
    DC_ASSERT_OK((*executor)->run(0));
    EXPECT_GT(seen, 0);
    (*executor)->observe({});
    const int before = seen;
    DC_ASSERT_OK((*executor)->run(0));
    EXPECT_EQ(seen, before);
  });
}

Status prepared_on_gpu(const HandPlan& hand) {
  Status status;
  comm::CommOptions options;
  options.device = *device::open_device(base::DeviceKind::Cuda);
  on_ranks(1, options, [&](comm::ProcessGroup& job, int) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    status = exec::Executor::prepare(hand.plan, job, *slab, {}).status();
  });
  return status;
}

TEST(CudaExecutor, RefusesKernelsThatGpusDoNotHave) {
  HandPlan hand(1);
  const int32_t value = hand.tensor("value", base::DType::F32, {4, 4});
  plan::Instruction& products = hand.native("aten.cumprod.default", {value, value}, {}, {value});
  Status status = prepared_on_gpu(hand);
  EXPECT_EQ(status.code(), "DC6155");
  EXPECT_EQ(base::exit_code(status.kind()), 81);
  products.provider = plan::Provider::Aten;
  status = prepared_on_gpu(hand);
  EXPECT_EQ(status.code(), "DC6624");
  EXPECT_EQ(base::exit_code(status.kind()), 81);
}

// What keeps a kernel from being made, in other processes.
struct Obstacle {
  const char *variable, *value, *code;
  int exit = 69;
};
class CudaExecutorDeathTest : public ::testing::TestWithParam<Obstacle> {};
TEST_P(CudaExecutorDeathTest, SaysWhatKeepsKernelsFromBeingMade) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Obstacle& obstacle = GetParam();
  EXPECT_EXIT(
      {
        setenv(obstacle.variable, obstacle.value, 1);
        const Status status = prepared_on_gpu(RandomWork(1, true));
        std::fputs(status.to_string().c_str(), stderr);
        std::_Exit(base::exit_code(status.kind()));
      },
      ::testing::ExitedWithCode(obstacle.exit), obstacle.code);
}
INSTANTIATE_TEST_SUITE_P(Cases, CudaExecutorDeathTest,
                         ::testing::Values(Obstacle{"DOUBLE_VERSION", "12080", "DC6152"},
                                           Obstacle{"DOUBLE_NVRTC", "14", "DC6151"},
                                           Obstacle{"DOUBLE_ARCHITECTURE", "75", "DC6153", 81},
                                           Obstacle{"DOUBLE_FAIL", "cuModuleLoadData:1:209",
                                                    "DC6156"}));

// Streams copy: a plan that does no more compiles nothing.
TEST(CudaCopiesDeathTest, NeedNoNvrtc) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("DOUBLE_NVRTC", "14", 1);
        HandPlan hand(1);
        const int32_t from = hand.tensor("from", base::DType::F32, std::vector<int64_t>(1, 64));
        const int32_t to = hand.tensor("to", base::DType::F32, std::vector<int64_t>(1, 64));
        hand.native("dc.copy", std::vector<int32_t>({to, from}));
        const Status status = prepared_on_gpu(hand);
        std::fputs(status.to_string().c_str(), stderr);
        std::_Exit(status.ok() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

// What runs of a plan, one after the other, left in a trace.
struct Traced {
  std::vector<exec::TraceEvent> events;
  int64_t began_ns = 0, ended_ns = 0;  // by the host's clock
};
Traced traced(const HandPlan& hand, bool graphs, bool poison, const std::vector<int32_t>& runs) {
  Traced all;
  comm::CommOptions options;
  options.device = *device::open_device(base::DeviceKind::Cuda);
  on_ranks(1, options, [&](comm::ProcessGroup& job, int) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    DC_ASSERT_OK(slab.status());
    exec::TraceRecorder trace(hand.plan, 0, 10000);
    exec::ExecutorOptions with;
    with.graphs = graphs;
    with.poison = poison;
    with.trace = &trace;
    const auto executor = exec::Executor::prepare(hand.plan, job, *slab, with);
    DC_ASSERT_OK(executor.status());
    all.began_ns = exec::TraceRecorder::now();
    for (const int32_t program : runs) DC_ASSERT_OK((*executor)->run(program));
    DC_ASSERT_OK((*executor)->finish());
    all.ended_ns = exec::TraceRecorder::now();
    all.events = trace.events();
  });
  return all;
}

constexpr int64_t kRoundingNs = 1000;  // times come as single-precision milliseconds

// Events of a stream follow each other, within the time in which they ran.
void expect_in_order(const Traced& all, int32_t streams) {
  std::vector<int64_t> reached(static_cast<size_t>(streams), all.began_ns - kRoundingNs);
  for (const exec::TraceEvent& event : all.events) {
    int64_t& end = reached[static_cast<size_t>(event.stream)];
    EXPECT_GE(event.begin_ns, end);
    EXPECT_GE(event.end_ns, event.begin_ns);
    end = event.end_ns;
  }
  for (const int64_t end : reached) EXPECT_LE(end, all.ended_ns + kRoundingNs);
}

// Each instruction but signals once in each step, none that waits over before what it waits for.
TEST(CudaTrace, HasEachInstructionWhenItRan) {
  constexpr int32_t kSteps = 3;
  for (const auto [graphs, poison] : {std::array{true, false}, {false, false}, {true, true}}) {
    const RandomWork hand(5, true);
    const std::vector<plan::Instruction>& instructions = hand.plan.programs[0].instructions;
    const Traced all = traced(hand, graphs, poison, std::vector<int32_t>(kSteps, 0));
    expect_in_order(all, kStreams);
    for (int32_t step = 1; step <= kSteps; ++step) {
      std::vector<int64_t> ends(instructions.size(), 0);
      for (const exec::TraceEvent& event : all.events) {
        if (event.step != step) continue;
        EXPECT_EQ(std::exchange(ends[static_cast<size_t>(event.instruction)], event.end_ns), 0);
        EXPECT_EQ(event.stream, instructions[static_cast<size_t>(event.instruction)].stream);
      }
      std::array<int64_t, kStreams> reached{};
      std::map<int32_t, int64_t> signalled;  // by event: when all before its signal was over
      for (size_t i = 0; i < instructions.size(); ++i) {
        const plan::Instruction& in = instructions[i];
        if (in.kind == plan::InstructionKind::Signal) {
          EXPECT_EQ(ends[i], 0);
          signalled[in.event] = reached[static_cast<size_t>(in.stream)];
          continue;
        }
        EXPECT_GT(ends[i], 0) << i;
        reached[static_cast<size_t>(in.stream)] = ends[i];
        if (in.kind == plan::InstructionKind::Wait) {
          EXPECT_GE(ends[i], signalled.at(in.event) - kRoundingNs) << i;
        }
      }
    }
  }
}

// Work that goes on into the next step is traced as it is without a trace: concurrent with it.
TEST(CudaTrace, HasWhatGoesOnIntoTheNextStep) {
  const CopyThatGoesOn hand;
  const std::vector<int32_t> runs = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1};
  for (const bool graphs : {false, true}) {
    const Traced all = traced(hand, graphs, false, runs);
    expect_in_order(all, 2);
    std::map<int32_t, int> of_step;
    for (const exec::TraceEvent& event : all.events) ++of_step[event.step];
    EXPECT_EQ(of_step.size(), 6U);
    for (const auto& [step, count] : of_step) EXPECT_EQ(count, 5) << step;
  }
}

// Runs a plan twice while a call of the driver fails, and ends the process as the first run says;
// with exit code 1 if the second says something else.
void run_with_failing_call(const char* failure, bool traces = false) {
  setenv("DOUBLE_FAIL", failure, 1);
  const RandomWork hand(1);
  comm::CommOptions options;
  options.device = *device::open_device(base::DeviceKind::Cuda);
  on_ranks(1, options, [&](comm::ProcessGroup& job, int) {
    auto slab = job.allocate(hand.plan.arena_bytes[0]);
    exec::TraceRecorder trace(hand.plan, 0, 1000);
    exec::ExecutorOptions with;
    if (traces) with.trace = &trace;
    const auto executor = exec::Executor::prepare(hand.plan, job, *slab, with);
    if (traces) (void)(*executor)->run(0);
    const Status first = (*executor)->run(0), second = (*executor)->run(0);
    std::fputs(first.to_string().c_str(), stderr);
    std::_Exit(first.code() == second.code() ? base::exit_code(first.kind()) : 1);
  });
}

TEST(CudaFailureDeathTest, ADriverThatRecordsNoGraphEndsTheRun) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_with_failing_call("cuGraphInstantiate:1:801"), ::testing::ExitedWithCode(69),
              "DC6147");
}

TEST(CudaFailureDeathTest, AGpuThatDoesNotSayItsTimesEndsATracedRun) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_with_failing_call("cuEventElapsedTime:1:801", true),
              ::testing::ExitedWithCode(69), "DC6148");
}

// A failure of the GPU is the failure of the run, and stays; in another process.
TEST(CudaFailureDeathTest, AFailureOfTheGpuEndsTheRun) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_with_failing_call("cuMemcpyAsync:5:700"), ::testing::ExitedWithCode(69),
              "DC6143.*CUDA_ERROR_ILLEGAL_ADDRESS");
}

}  // namespace
}  // namespace dc::runtime
