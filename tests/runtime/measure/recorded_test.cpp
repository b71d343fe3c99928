// What `dcrun --record-profile` makes of the records of a run; ranks are threads, times are made
// up.
#include "runtime/measure/recorded.h"

#include <gtest/gtest.h>

#include <map>

#include "runtime/measure/measure.h"
#include "runtime/plan/kernel_signature.h"
#include "tests/runtime/train/training_plan.h"

namespace dc::runtime {
namespace {

constexpr int kAccumulation = 3;

bool syncs(const plan::Instruction& in) {
  return in.kind == plan::InstructionKind::Signal || in.kind == plan::InstructionKind::Wait;
}

// Two programs; every instruction is predicted to take 100 ns times its index and one.
struct PredictedPlan : test::TrainingPlan {
  PredictedPlan() : TrainingPlan(2, kAccumulation) {
    for (plan::Program& one : plan.programs) {
      for (size_t i = 0; i < one.instructions.size(); ++i) {
        one.duration_ns.push_back(syncs(one.instructions[i]) ? 0
                                                             : 100 * static_cast<int64_t>(i + 1));
      }
    }
  }
};

using DurationOf = std::function<int64_t(int64_t predicted, int step, const plan::Instruction&)>;

// Records `steps` steps, one instruction after the other.
void record(const plan::Plan& plan, int steps, const DurationOf& duration,
            exec::TraceRecorder& trace) {
  int64_t now = 1'000'000;
  for (int step = 1; step <= steps; ++step) {
    for (const plan::ProgramRun& run : plan.step) {
      const plan::Program& program = plan.programs[static_cast<size_t>(run.program)];
      for (int32_t repeat = 0; repeat < run.repeat; ++repeat) {
        const auto epoch = static_cast<uint32_t>((step - 1) * run.repeat + repeat + 1);
        for (size_t i = 0; i < program.instructions.size(); ++i) {
          const plan::Instruction& in = program.instructions[i];
          if (in.kind == plan::InstructionKind::Signal) continue;
          const int64_t end = now + duration(program.duration_ns[i], step, in);
          trace.record(in.stream, run.program, static_cast<int32_t>(i), epoch, now, end);
          now = end;
        }
      }
    }
  }
}

// What both ranks made of it; they must agree.
measure::Recorded measured(const plan::Plan& plan, int steps,
                           const std::function<DurationOf(int)>& of_rank, size_t capacity = 1000) {
  measure::Recorded seen[2];
  test::on_ranks(2, {}, [&](comm::ProcessGroup& job, int rank) {
    exec::TraceRecorder trace(plan, rank, capacity);
    record(plan, steps, of_rank(rank), trace);
    auto recorded = measure::measure_recorded(plan, trace, job.control());
    ASSERT_TRUE(recorded.ok()) << recorded.status().to_string();
    seen[rank] = std::move(recorded).value();
  });
  EXPECT_EQ(seen[0].step.median_ns, seen[1].step.median_ns);
  EXPECT_EQ(seen[0].kernels.size(), seen[1].kernels.size());
  return seen[0];
}

TEST(Recorded, MediansOfTheSlowestRankWithoutTheWarmUp) {
  const PredictedPlan hand;
  // Rank 1 takes three times what rank 0 takes; one step in five has an outlier, the first two are
  // slow.
  const measure::Recorded seen = measured(hand.plan, 7, [](int rank) {
    return [rank](int64_t predicted, int step, const plan::Instruction&) {
      const int64_t time = predicted * (rank == 0 ? 2 : 6) + step;
      return step <= measure::kRecordedWarmup || step == 4 ? 1000 * time : time;
    };
  });
  EXPECT_EQ(seen.steps, 5);
  EXPECT_EQ(seen.step.samples, 5);
  std::map<base::KernelSignature, int> samples;
  for (const plan::ProgramRun& run : hand.plan.step) {
    for (const plan::Instruction& in :
         hand.plan.programs[static_cast<size_t>(run.program)].instructions) {
      if (in.kind == plan::InstructionKind::Kernel) {
        samples[plan::signature_of(hand.plan, in)] += 5 * run.repeat;
      }
    }
  }
  ASSERT_EQ(seen.kernels.size(), samples.size());
  for (const base::KernelMeasurement& row : seen.kernels) {
    EXPECT_EQ(row.signature.provider(), base::Provider::Native);
    EXPECT_EQ(row.timing.samples, samples[row.signature]) << row.signature.text();
  }
  const plan::Program& step = hand.plan.programs[1];
  for (size_t i = 0; i < step.instructions.size(); ++i) {
    const base::Timing& timing = seen.instructions[1][i];
    if (step.instructions[i].kind == plan::InstructionKind::Signal) {
      EXPECT_EQ(timing.samples, 0);
    } else {
      EXPECT_EQ(timing.median_ns, 6 * step.duration_ns[i] + 6) << i;  // steps 3, 4!, 5, 6, 7
    }
  }
  ASSERT_EQ(seen.collectives.size(), 2u);
  EXPECT_EQ(seen.collectives[0].kind, "all_gather");
  EXPECT_EQ(seen.collectives[0].bytes, 2 * 3 * 8);  // the table
  EXPECT_EQ(seen.collectives[1].kind, "reduce_scatter");
  EXPECT_EQ(seen.collectives[1].bytes, 70 * 4);
  EXPECT_EQ(seen.collectives[1].ranks, 2);
}

// One after the other, whatever the stream: compute is all of the step but what stream 0 waits for.
TEST(Recorded, AStepIsComputeAndWhereItStands) {
  const PredictedPlan hand;
  const measure::Recorded seen = measured(hand.plan, 6, [](int rank) {
    return [rank](int64_t predicted, int, const plan::Instruction& in) {
      const bool waits = in.kind == plan::InstructionKind::Wait;
      return waits ? 70 : predicted + rank;
    };
  });
  int64_t whole = 0, waited = 0;
  for (const plan::ProgramRun& run : hand.plan.step) {
    const plan::Program& program = hand.plan.programs[static_cast<size_t>(run.program)];
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const plan::Instruction& in = program.instructions[i];
      if (in.kind == plan::InstructionKind::Signal) continue;
      const bool waits = in.kind == plan::InstructionKind::Wait;
      const int64_t time = waits ? 70 : program.duration_ns[i] + 1;
      whole += run.repeat * time;
      const bool stands = waits || in.kind == plan::InstructionKind::Collective;
      if (stands && in.stream == 0) waited += run.repeat * time;
    }
  }
  EXPECT_GT(waited, 0);
  EXPECT_EQ(seen.step.median_ns, whole);
  EXPECT_EQ(seen.compute.median_ns, whole - waited);
}

TEST(Recorded, EqualKernelsAreOneRow) {
  const PredictedPlan hand;
  const measure::Recorded seen = measured(hand.plan, 5, [](int) {
    return [](int64_t, int, const plan::Instruction&) { return int64_t{50}; };
  });
  const base::KernelSignature first =
      plan::signature_of(hand.plan, hand.plan.programs[0].instructions[0]);
  for (const base::KernelMeasurement& row : seen.kernels) {
    EXPECT_EQ(row.timing.median_ns, 50);
    if (row.signature == first) {
      EXPECT_EQ(row.timing.samples, 3 * kAccumulation);  // in both programs
    }
  }
}

TEST(Recorded, ARingThatKeptPartOfAStepDoesNotShortenIt) {
  const PredictedPlan hand;
  const auto same = [](int) {
    return [](int64_t, int, const plan::Instruction&) { return int64_t{10}; };
  };
  const measure::Recorded all = measured(hand.plan, 9, same);
  EXPECT_EQ(all.steps, 7);
  int per_step = 0;  // records of compute
  for (const plan::ProgramRun& run : hand.plan.step) {
    for (const plan::Instruction& in :
         hand.plan.programs[static_cast<size_t>(run.program)].instructions) {
      const bool recorded = in.stream == 0 && in.kind != plan::InstructionKind::Signal;
      per_step += recorded ? run.repeat : 0;
    }
  }
  const measure::Recorded some =
      measured(hand.plan, 9, same, 3 * static_cast<size_t>(per_step) + 2);
  EXPECT_EQ(some.steps, 3);
  EXPECT_EQ(some.step.median_ns, all.step.median_ns);
}

// As an evaluation of many micro-batches after every step.
TEST(Recorded, EvaluationsTakeNoStepsPlace) {
  PredictedPlan hand;
  const auto evaluation = static_cast<int32_t>(hand.plan.programs.size());
  hand.plan.programs.push_back(hand.plan.programs[0]);
  const auto always = [](int64_t predicted, int, const plan::Instruction&) { return predicted; };
  measure::Recorded alone = measured(hand.plan, 8, [&](int) { return always; });
  test::on_ranks(2, {}, [&](comm::ProcessGroup& job, int rank) {
    using Outside = exec::TraceRecorder::Outside;
    exec::TraceRecorder trace(hand.plan, rank, 1000, Outside::Begin);
    const auto evaluates = [&, last = 0](int64_t predicted, int step,
                                         const plan::Instruction&) mutable {
      for (uint32_t i = 0; step != last && i < 2000; ++i)
        trace.record(0, evaluation, 0, 2000 * static_cast<uint32_t>(step) + i, 0, 0);
      last = step;
      return predicted;
    };
    record(hand.plan, 8, evaluates, trace);
    auto recorded = measure::measure_recorded(hand.plan, trace, job.control());
    ASSERT_TRUE(recorded.ok()) << recorded.status().to_string();
    EXPECT_EQ(recorded->steps, alone.steps);
    EXPECT_EQ(recorded->step.median_ns, alone.step.median_ns);
    EXPECT_EQ(recorded->kernels.size(), alone.kernels.size());
  });
}

TEST(Recorded, TooFewStepsAreRefused) {
  const PredictedPlan hand;
  test::on_ranks(2, {}, [&](comm::ProcessGroup& job, int rank) {
    exec::TraceRecorder trace(hand.plan, rank, 1000);
    // One rank has enough: both must say no, or the other would wait for ever.
    record(
        hand.plan, rank == 0 ? 6 : 4,
        [](int64_t, int, const plan::Instruction&) { return int64_t{1}; }, trace);
    auto recorded = measure::measure_recorded(hand.plan, trace, job.control());
    ASSERT_FALSE(recorded.ok());
    EXPECT_EQ(recorded.status().code(), "DC6504");
    EXPECT_EQ(base::exit_code(recorded.status().kind()), 69);
  });
}

TEST(Deviation, ACommonFactorIsBiasAndTheRestIsResidual) {
  const PredictedPlan hand;
  const auto scaled = [](int) {
    return [](int64_t predicted, int, const plan::Instruction& in) {
      return in.kind == plan::InstructionKind::Collective ? predicted / 2 : predicted * 3;
    };
  };
  plan::Plan plan = hand.plan;
  plan.prediction.step_ns = 1000;
  measure::Recorded seen = measured(plan, 5, scaled);
  measure::Deviations all = measure::compare(plan, seen);
  EXPECT_DOUBLE_EQ(all.kernels.bias, 2);
  EXPECT_DOUBLE_EQ(all.kernels.residual, 0);
  EXPECT_DOUBLE_EQ(all.collectives.bias, -0.5);
  EXPECT_DOUBLE_EQ(all.collectives.residual, 0);
  EXPECT_EQ(all.step.measured_ns, seen.step.median_ns);
  EXPECT_DOUBLE_EQ(all.step.bias, static_cast<double>(seen.step.median_ns) / 1000 - 1);
  int64_t predicted = 0;
  for (const plan::ProgramRun& run : plan.step) {
    const plan::Program& program = plan.programs[static_cast<size_t>(run.program)];
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const bool kernel = program.instructions[i].kind == plan::InstructionKind::Kernel;
      predicted += kernel ? run.repeat * program.duration_ns[i] : 0;
    }
  }
  EXPECT_EQ(all.kernels.predicted_ns, predicted);
  EXPECT_EQ(all.kernels.measured_ns, 3 * predicted);

  // What one collective takes more and the other less leaves the sum as it was.
  std::vector<size_t> at;
  const plan::Program& step = plan.programs[1];
  for (size_t i = 0; i < step.instructions.size(); ++i) {
    if (step.instructions[i].kind == plan::InstructionKind::Collective) at.push_back(i);
  }
  ASSERT_EQ(at.size(), 2u);
  seen.instructions[1][at[0]].median_ns += 40;
  seen.instructions[1][at[1]].median_ns -= 40;
  all = measure::compare(plan, seen);
  EXPECT_DOUBLE_EQ(all.collectives.bias, -0.5);
  EXPECT_DOUBLE_EQ(all.collectives.residual,
                   80.0 / static_cast<double>(all.collectives.measured_ns));
}

}  // namespace
}  // namespace dc::runtime
