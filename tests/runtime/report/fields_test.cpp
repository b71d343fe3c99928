// Every field of the plan's structs is written to the file, read again, shown in JSON and in text,
// and makes two plans unequal.
#include <gtest/gtest.h>

#include "runtime/plan/fields.h"
#include "runtime/plan/file.h"
#include "runtime/report/changes.h"
#include "runtime/report/report.h"
#include "tests/runtime/plan/plan_builder.h"

namespace dc::runtime::plan {
namespace {

void alter(bool& value) { value = !value; }
void alter(std::string& value) { value += "x"; }
template <typename T>
void alter(T& value);
template <typename T>
void alter(std::vector<T>& items) {
  if (items.empty()) items.emplace_back();
  alter(items[0]);
}
template <typename T>
void alter(T& value) {
  if constexpr (std::is_enum_v<T>) {
    value = static_cast<T>(value == T{} ? 1 : 0);
  } else if constexpr (std::is_arithmetic_v<T>) {
    value = value > 0 ? value - 1 : value + 1;  // an id stays one
  } else {
    alter(std::get<0>(kFields<T>).of(value));
  }
}

// All but what would be another thing if it were another: see the calls.
template <const auto& fields, typename Item>
void expect_shown(const char* what, Item item, FieldSet<fields> but = {}) {
  Plan before = test::evaluating_plan();
  (void)item(before);
  size_t index = 0;
  for_each_field(fields, [&](const auto& field) {
    if (but.has(index++)) return;
    const std::string label = std::string(what) + "." + std::string(field.name);
    Plan after = before;
    alter(field.of(item(after)));
    EXPECT_NE(after, before) << label;
    EXPECT_NE(encode(after), encode(before)) << label;
    EXPECT_NE(report::to_text(after), report::to_text(before)) << label;
    EXPECT_NE(report::to_json(after), report::to_json(before)) << label;
  });
}

Instruction& instruction(Plan& plan, int index) {
  return plan.programs[0].instructions[static_cast<size_t>(index)];
}

TEST(Fields, OfMemory) {
  const int transient = test::kScratchSlice;
  expect_shown<kFields<Slice>>("slice", [](Plan& p) -> Slice& { return p.slices[transient]; });
  expect_shown<kFields<Tensor>>("tensor", [](Plan& p) -> Tensor& { return p.tensors[0]; },
                                {"stride_axes"});  // the mesh has one axis
  expect_shown<kFields<StepTensors>>("step", [](Plan& p) -> Plan& { return p; });
}

TEST(Fields, OfTheModel) {
  expect_shown<kFields<Parameter>>("parameter",
                                   [](Plan& p) -> Parameter& { return p.parameters[0]; },
                                   {"trainable"});  // a frozen one has no gradient
  expect_shown<kFields<Initializer>>(
      "initializer", [](Plan& p) -> Initializer& { return p.parameters[0].initializer; });
  expect_shown<kFields<ArchiveRecord>>(
      "record", [](Plan& p) -> ArchiveRecord& { return p.parameters[0].record; });
  expect_shown<kFields<StateEntry>>("state", [](Plan& p) -> StateEntry& { return p.state[0]; },
                                    {"placement"});  // there are no other axes
  const auto input = [](Plan& p) -> Input& {
    p.inputs[0].role = InputRole::Labels;
    return p.inputs[0];
  };
  expect_shown<kFields<Input>>("input", input);
  expect_shown<kFields<Optimizer>>("optimizer", [](Plan& p) -> Optimizer& { return p.optimizer; });
  expect_shown<kFields<OptimizerGroup>>(
      "optimizer group", [](Plan& p) -> OptimizerGroup& { return p.optimizer.groups[0]; });
}

TEST(Fields, OfWhatRuns) {
  expect_shown<kFields<SumOrder>>("sums", [](Plan& p) -> SumOrder& { return p.sums; });
  expect_shown<kFields<Stream>>("stream", [](Plan& p) -> Stream& { return p.streams[1]; });
  expect_shown<kFields<Group>>("group", [](Plan& p) -> Group& { return p.groups[0]; }, {"axes"});
  const auto program = [](Plan& p) -> Program& {
    Program& first = p.programs[0];
    first.duration_origins.resize(first.instructions.size());  // one each, or none
    return first;
  };
  expect_shown<kFields<Program>>("program", program);
  expect_shown<kFields<ProgramRun>>("run", [](Plan& p) -> ProgramRun& { return p.step[0]; });
  expect_shown<kFields<Variant>>("variant", [](Plan& p) -> Variant& { return p.variants[0]; });
  expect_shown<kFields<Prediction>>("prediction",
                                    [](Plan& p) -> Prediction& { return p.prediction; });
  const auto kernel = [](Plan& p) -> Instruction& { return instruction(p, test::kMatmul); };
  const auto gather = [](Plan& p) -> Instruction& { return instruction(p, test::kGather); };
  expect_shown<kFields<Instruction>>("instruction", kernel);
  expect_shown<kBodyFields<InstructionKind::Kernel>>("kernel", kernel);
  expect_shown<kBodyFields<InstructionKind::Collective>>("collective", gather);
  expect_shown<kFields<CollectiveBuffer>>(
      "buffer", [&](Plan& p) -> CollectiveBuffer& { return gather(p).buffers[0]; });
  expect_shown<kFields<Arg>>("argument", [&](Plan& p) -> Arg& { return kernel(p).args[0]; },
                             {"ints", "floats", "text"});  // not of a tensor
}

TEST(Fields, OfThePlan) {
  expect_shown<kFields<Plan>>("plan", [](Plan& p) -> Plan& { return p; });
  expect_shown<kRankClassFields>("rank class", [](Plan& p) -> Plan& { return p; });
}

// What runs is compared by all fields but those that only describe it.
TEST(Fields, ThatRunMakeAPlanAnother) {
  const Plan before = test::evaluating_plan();
  const auto nothing = [&](const Plan& after) {
    return report::changes(before, after)[0].starts_with("nothing changed");
  };
  for_each_field(kFields<Slice>, [&](const auto& field) {
    Plan after = before;
    alter(field.of(after.slices[0]));
    EXPECT_EQ(nothing(after), field.name == "kind") << field.name;
  });
  for_each_field(kFields<Tensor>, [&](const auto& field) {
    Plan after = before;
    alter(field.of(after.tensors[0]));
    EXPECT_FALSE(nothing(after)) << field.name;
  });
  for_each_field(kFields<Group>, [&](const auto& field) {
    Plan after = before;
    alter(field.of(after.groups[0]));
    EXPECT_FALSE(nothing(after)) << field.name;
  });
  for_each_field(kFields<Instruction>, [&](const auto& field) {
    Plan after = before;
    alter(field.of(instruction(after, test::kMatmul)));
    EXPECT_EQ(nothing(after), field.name == "module" || field.name == "phase") << field.name;
  });
  for_each_field(kBodyFields<InstructionKind::Kernel>, [&](const auto& field) {
    Plan after = before;
    alter(field.of(instruction(after, test::kMatmul)));
    EXPECT_FALSE(nothing(after)) << field.name;
  });
  for_each_field(kFields<Variant>, [&](const auto& field) {
    Plan after = before;
    alter(field.of(after.variants[0]));
    EXPECT_EQ(nothing(after), field.name == "inputs" || field.name == "prediction") << field.name;
  });
}

}  // namespace
}  // namespace dc::runtime::plan
