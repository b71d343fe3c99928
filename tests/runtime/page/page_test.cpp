#include "runtime/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "runtime/page/columns.h"
#include "runtime/page/reasons.h"
#include "src/base/json.h"
#include "tests/runtime/plan/plan_builder.h"

namespace dc::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

plan::Loaded tiny() { return {plan::test::tiny_plan(), std::string(64, 'd')}; }

TEST(Columns, SevenBitsPerByteLowestFirst) {
  page::Column column;
  for (const uint64_t value : {0u, 127u, 128u, 300u}) column.add(value);
  EXPECT_EQ(column.base64(), "AH+AAawC");  // 00 7f 80 01 ac 02
  page::Column one;
  one.add(1);
  EXPECT_EQ(one.base64(), "AQ==");
  EXPECT_EQ(page::Column().base64(), "");
  page::Column signs;
  for (const int64_t value : {0, -1, 1, -2}) signs.add_signed(value);
  EXPECT_EQ(signs.base64(), "AAECAw==");
  page::Column extreme;
  extreme.add_signed(std::numeric_limits<int64_t>::min());
  EXPECT_EQ(extreme.base64(), "////////////AQ==");
}

TEST(Columns, StringsHaveOneNumberEach) {
  page::StringTable table;
  EXPECT_EQ(table.number("b"), 1u);
  EXPECT_EQ(table.number("a"), 2u);
  EXPECT_EQ(table.number("b"), 1u);
  EXPECT_EQ(table.number(""), 0u);
  EXPECT_THAT(table.strings(), ElementsAre("", "b", "a"));
}

TEST(Reasons, RemarksAreFoundByParameterAndCollective) {
  using base::SubjectKind;
  plan::Plan plan = plan::test::tiny_plan();
  plan.remarks = {{"a", "of-the-parameter", {{SubjectKind::Parameter, 0}}},
                  {"b", "of-nothing", {}, {{"w", 1}}, "net.linear.weight is large"},
                  {"c", "of-reductions", {{SubjectKind::Collective, 1}}},
                  {"d", "of-both", {{SubjectKind::Parameter, 0}, {SubjectKind::Collective, 0}}}};
  const page::Reasons reasons(plan);
  const auto& list = plan.programs[0].instructions;
  EXPECT_THAT(reasons.of(list[plan::test::kMatmul]),
              ElementsAre(0, 3));  // reads the gathered whole
  EXPECT_THAT(reasons.of(list[plan::test::kGather]), ElementsAre(0, 3));
  EXPECT_THAT(reasons.of(list[plan::test::kReduce]), ElementsAre(0, 2, 3));
  EXPECT_THAT(reasons.of(list[plan::test::kAdamW]), ElementsAre(0, 3));
  EXPECT_THAT(reasons.of(list[plan::test::kExchangeTable]), ElementsAre(3));
  EXPECT_THAT(reasons.of(list[plan::test::kLossSumOf]), ElementsAre());
}

// Events of `count` instructions of rank `rank` in step `step`, from `begin` to `end`.
void add_step(exec::TraceFile& trace, int rank, int64_t step, int count, int64_t begin,
              int64_t end) {
  for (int i = 0; i < count; ++i) {
    exec::TraceEvent& event = trace.events.emplace_back();
    event.rank = rank;
    event.step = static_cast<int32_t>(step);
    event.instruction = i;
    event.begin_ns = begin + (end - begin) * i / count;
    event.end_ns = begin + (end - begin) * (i + 1) / count;
  }
}

TEST(ChosenStep, TheMedianOfTheWholeSteps) {
  exec::TraceFile trace;
  const int64_t ends[] = {0, 900, 1130, 2120, 3150, 4110};
  add_step(trace, 0, 1, 3, 0, 900);  // what the ring kept of it
  for (int64_t step = 2; step <= 5; ++step)
    add_step(trace, 0, step, 10, 1000 * (step - 1), ends[step]);
  for (int64_t step = 1; step <= 4; ++step)
    add_step(trace, 1, step, 10, 7000 * step, 7000 * step + 50);
  auto chosen = page::choose_step(trace);
  ASSERT_TRUE(chosen.ok()) << chosen.status().to_string();
  EXPECT_EQ(chosen->whole_steps, 3);  // 2, 3, 4: rank 1 has no step 5, rank 0 only part of 1
  EXPECT_EQ(chosen->step, 2);         // 130 of {120, 130, 150}
  EXPECT_THAT(chosen->ranks, ElementsAre(0, 1));
  ASSERT_EQ(chosen->events.size(), 20u);
  EXPECT_EQ(chosen->events[0].begin_ns, 0);
  EXPECT_EQ(chosen->events[9].end_ns, 130);
  EXPECT_EQ(chosen->events[10].begin_ns, 0);  // of the rank's own begin
  EXPECT_EQ(chosen->events[19].end_ns, 50);
}

TEST(ChosenStep, WithoutAWholeStepIsBadInput) {
  exec::TraceFile trace;
  EXPECT_EQ(page::choose_step(trace).status().code(), "DC6631");
  add_step(trace, 0, 1, 3, 0, 10);
  add_step(trace, 1, 2, 3, 0, 10);
  auto chosen = page::choose_step(trace);
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(base::exit_code(chosen.status().kind()), 65);
}

TEST(Page, TheDataHoldsEveryInstructionAndTheRealStep) {
  const plan::Loaded loaded = tiny();
  const auto count = static_cast<int64_t>(loaded.plan.programs[0].instructions.size());
  exec::TraceFile trace;
  trace.communicator = "local";
  for (const int rank : {0, 1}) add_step(trace, rank, 1, 5, 100, 600);
  const auto chosen = page::choose_step(trace);
  auto json = base::parse_json_value(page::timeline_json(loaded, &trace, &*chosen), "page");
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  const base::JsonValue& program = json->find("programs")->items().at(0);
  EXPECT_EQ(*program.find("count")->to_integer(), count);
  EXPECT_EQ(*program.find("time_ns")->to_integer(), 10 * plan::test::kTinyDuration);
  EXPECT_EQ(*json->find("slices")->find("count")->to_integer(),
            static_cast<int64_t>(loaded.plan.slices.size()));
  EXPECT_EQ(json->find("real")->find("ranks")->items().size(), 2u);
  // 100 ns each, stored as 101, then nine that left no record.
  EXPECT_EQ(*json->find("real")
                 ->find("ranks")
                 ->items()[1]
                 .find("runs")
                 ->items()[0]
                 .find("length")
                 ->to_string(),
            "ZWVlZWUAAAAAAAAAAAA=");
}

// The numbers of a packed column.
std::vector<int> numbers(const base::JsonValue& program, std::string_view key) {
  const std::string text(*program.find(key)->to_string());
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<int> found;
  int bits = 0, held = 0, value = 0, shift = 0;
  for (const char c : text.substr(0, text.find('='))) {
    bits = (bits << 6 | static_cast<int>(kDigits.find(c))) & 0xffff;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    const int byte = bits >> held & 0xff;
    value |= (byte & 0x7f) << shift;
    shift += 7;
    if (byte >= 0x80) continue;
    found.push_back(value);
    value = shift = 0;
  }
  return found;
}

TEST(Page, TheDataSaysWhatIsOneOfSeveral) {
  plan::Loaded loaded = tiny();
  std::vector<plan::Instruction>& list = loaded.plan.programs[0].instructions;
  plan::Instruction& fused = list[plan::test::kMatmul];
  const int32_t operand = static_cast<int32_t>(fused.args[0].i), result = fused.outputs[0];
  loaded.plan.tensors[static_cast<size_t>(operand)].sizes =
      loaded.plan.tensors[static_cast<size_t>(result)].sizes;
  plan::Arg body;
  body.name = "body";
  body.kind = plan::ArgKind::String;
  body.s = "t0:f32=silu.default(self=a0);t1:f32=mul.Tensor(self=t0,other=a0);->t1";
  fused.provider = plan::Provider::Fused;
  fused.op = "dc.fused";
  fused.args = {fused.args[0], body};
  plan::Instruction& gather = list[plan::test::kGather];
  gather.buffers.push_back(gather.buffers[0]);
  auto json = base::parse_json_value(page::timeline_json(loaded, nullptr, nullptr), "page");
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  const base::JsonValue& program = json->find("programs")->items().at(0);
  const auto string_of = [&](std::string_view key, int index) {
    const int number = numbers(program, key).at(static_cast<size_t>(index));
    return std::string(*json->find("strings")->items().at(static_cast<size_t>(number)).to_string());
  };
  const auto& tensors = loaded.plan.tensors;
  const std::string name = tensors[static_cast<size_t>(operand)].name;
  const std::string shard = tensors[static_cast<size_t>(gather.buffers[0].input)].name;
  EXPECT_EQ(string_of("body", plan::test::kMatmul), body.s);
  EXPECT_EQ(string_of("parts", plan::test::kMatmul), name);
  EXPECT_EQ(string_of("body", plan::test::kGather), "");
  EXPECT_EQ(string_of("parts", plan::test::kGather), shard + "," + shard);
  EXPECT_EQ(string_of("parts", plan::test::kReduce), "");  // of one buffer
  // silu's value is neither written nor read, and the operand read once instead of twice.
  int64_t bytes[] = {4, 4};
  for (const int64_t size : tensors[static_cast<size_t>(result)].sizes) bytes[0] *= size;
  for (const int64_t size : tensors[static_cast<size_t>(operand)].sizes) bytes[1] *= size;
  EXPECT_EQ(numbers(program, "saved").at(plan::test::kMatmul), 2 * bytes[0] + bytes[1]);
}

TEST(Page, IsOneFileThatAsksForNothing) {
  plan::Loaded loaded = tiny();
  loaded.plan.programs[0].instructions[0].module = "</script><b>";
  loaded.plan.remarks = {{"a", "b", {}, {}, "<!-- not a comment"}};
  auto page = page::timeline_page(loaded, nullptr);
  ASSERT_TRUE(page.ok()) << page.status().to_string();
  EXPECT_TRUE(page->starts_with("<!doctype html>"));
  EXPECT_THAT(*page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(*page, HasSubstr("\\u003c/script>\\u003cb>"));
  for (const char* never : {"{{", "://", "src=", "url(", "@import", "</script><b>", "<!-- not"}) {
    EXPECT_THAT(*page, Not(HasSubstr(never)));
  }
}

TEST(Page, APlanWithoutPredictedTimesIsAMismatch) {
  plan::Loaded loaded = tiny();
  loaded.plan.programs[0].duration_ns.clear();
  auto page = page::timeline_page(loaded, nullptr);
  ASSERT_FALSE(page.ok());
  EXPECT_EQ(base::exit_code(page.status().kind()), 76);
}

}  // namespace
}  // namespace dc::runtime
