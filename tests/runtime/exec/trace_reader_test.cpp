#include "runtime/exec/trace_reader.h"

#include <gtest/gtest.h>

#include "runtime/exec/trace.h"
#include "tests/runtime/plan/plan_builder.h"
#include "tests/runtime/train/scratch_folder.h"

namespace dc::runtime {
namespace {

plan::Loaded tiny() { return {plan::test::tiny_plan(), std::string(64, 'd')}; }

std::string head(const std::string& digest) {
  return R"({"otherData":{"schema":"dcrun-trace/1","plan":")" + digest +
         R"(","communicator":"local","ranks":2},"traceEvents":[)";
}
std::string event(const std::string& args, const std::string& rest = R"("pid":1,"tid":0)") {
  return R"({"ph":"X",)" + rest + R"(,"ts":1000.25,"dur":3.5,"name":"x","args":{)" + args + "}}";
}
const char* const kGood = R"("step":2,"run":0,"program":"step","index":1)";

TEST(TraceReader, ReadsWhatTheRecorderWrites) {
  const plan::Loaded loaded = tiny();
  exec::TraceRecorder recorder(loaded.plan, 1, 10);
  recorder.record(0, 0, plan::test::kMatmul, 1, 5'000'000'100, 5'000'000'400);
  recorder.record(1, 0, plan::test::kReduce, 2, 5'000'001'000, 5'000'001'001);
  const test::ScratchFolder folder;
  std::FILE* file = std::tmpfile();
  ASSERT_TRUE(recorder.write_events(file, true).ok());
  std::rewind(file);
  std::string text = head(loaded.digest);
  for (int c = 0; (c = std::fgetc(file)) != EOF;) text.push_back(static_cast<char>(c));
  std::fclose(file);
  auto trace = exec::read_trace(folder.write("trace.json", text + "]}"), loaded);
  ASSERT_TRUE(trace.ok()) << trace.status().to_string();
  EXPECT_EQ(trace->communicator, "local");
  EXPECT_EQ(trace->ranks, 2);
  ASSERT_EQ(trace->events.size(), 2u);
  EXPECT_EQ(trace->events[0].rank, 1);
  EXPECT_EQ(trace->events[0].stream, 0);
  EXPECT_EQ(trace->events[0].step, 1);
  EXPECT_EQ(trace->events[0].instruction, plan::test::kMatmul);
  EXPECT_EQ(trace->events[0].begin_ns, 5'000'000'100);
  EXPECT_EQ(trace->events[0].end_ns, 5'000'000'400);
  EXPECT_EQ(trace->events[1].stream, 1);
  EXPECT_EQ(trace->events[1].step, 2);
  EXPECT_EQ(trace->events[1].end_ns - trace->events[1].begin_ns, 1);
}

TEST(TraceReader, RefusalsSayWhatIsWrong) {
  const plan::Loaded loaded = tiny();
  const test::ScratchFolder folder;
  const auto refusal = [&](const std::string& text) {
    auto trace = exec::read_trace(folder.write("trace.json", text), loaded);
    EXPECT_FALSE(trace.ok()) << text;
    return trace.ok() ? 0 : base::exit_code(trace.status().kind());
  };
  const std::string good = head(loaded.digest);
  ASSERT_TRUE(exec::read_trace(folder.write("good.json", good + event(kGood) + "]}"), loaded).ok());
  EXPECT_EQ(refusal(head(std::string(64, 'e')) + "]}"), 76);
  // Another plan's instructions do not matter: the plan is named first.
  EXPECT_EQ(refusal(head(std::string(64, 'e')) +
                    event(R"("step":1,"run":0,"program":"other","index":0)") + "]}"),
            76);
  EXPECT_EQ(refusal(""), 65);
  EXPECT_EQ(refusal("{}"), 65);
  EXPECT_EQ(refusal(R"({"traceEvents":[]})"), 65);
  EXPECT_EQ(refusal(good), 65);  // cut off
  EXPECT_EQ(refusal(good + event(R"("step":1,"run":0,"program":"step","index":14)") + "]}"), 65);
  EXPECT_EQ(refusal(good + event(R"("step":1,"run":0,"program":"step","index":-1)") + "]}"), 65);
  EXPECT_EQ(refusal(good + event(R"("step":1,"run":0,"program":"x","index":1)") + "]}"), 65);
  EXPECT_EQ(refusal(good + event(R"("run":0,"program":"step","index":1)") + "]}"), 65);
  EXPECT_EQ(refusal(good + event(kGood, R"("pid":2,"tid":0)") + "]}"), 65);
  EXPECT_EQ(refusal(good + event(kGood, R"("pid":0,"tid":2)") + "]}"), 65);
  auto missing = exec::read_trace(folder / "nowhere.json", loaded);
  EXPECT_EQ(base::exit_code(missing.status().kind()), 66);
}

}  // namespace
}  // namespace dc::runtime
