// Printer and parser: equal texts after a round trip, exact errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "src/ir/step.h"
#include "tests/src/ir/sample_steps.h"

namespace dc::ir {
namespace {

using ::testing::HasSubstr;

// Parses what print() made and expects the same text again.
void expect_round_trip(const Step& step) {
  const std::string text = print(step);
  const base::Result<Step> again = parse(text);
  ASSERT_TRUE(again.ok()) << again.status().to_string() << "\n" << text;
  EXPECT_EQ(print(*again), text);
}

void expect_canonical(const std::string& text) {
  const base::Result<Step> step = parse(text);
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_EQ(print(*step), text);
}

TEST(Text, SamplesAreCanonical) {
  expect_canonical(kImported);
  expect_canonical(kScheduled);
  expect_canonical(kOffloaded);
}

constexpr const char* kEverything =
    R"(step @"odd name" stage=allocated mesh=<dp=2, "t p"=3> accumulation=4 reduce_dtype=bf16 arena=4096 host_arena=128 disk_arena=64 model="00ff" {
  input "ids" : i64[2,8] varying<dp> role=tokens range=(0.0,256.0)
  input "mask" : bool[2,8] role=mask
  parameter "w" : f32[8,8] frozen placement=gathered_per_use gradient=sharded_each_micro_batch state=sharded group=1 shard=32 init=normal(0.0,0.02) zero_row=7 archive="data/weights/weight_0" archive_type(f32[8,8] strides=(1,8) offset=3) alias="tied.w" alias="also \"w\""
  parameter "b" : bf16[8] init=zeros archive="data/weights/weight_1"
  parameter "c" : bf16[8] shard=32
  buffer "mean" : f32[8] archive="data/weights/weight_2"
  buffer "pos" : i64[2] transient constant init=constant(1.5,0.0) zero_row=0 data="00ff10"
  optimizer sgd clip clip_norm=0.5 seed=18446744073709551615 schedule=cosine warmup=10 total=1000 final_lr=0.1 {
    group "*" lr=0.1 weight_decay=0.0 momentum=0.9 dampening=0.1 nesterov
    group "*.norm.*" beta1=0.5 beta2=0.95 eps=1e-06
  }
  state "w" : f32[8,8] parameter="w" storage=96 at device:0+384
  state "shard.w" : f32[16] flat_shard<dp> role=shard parameter="w" range_of="w"
  state "mean" : f32[8] role=buffer buffer="mean" at host:64+32
  state "var" : f32[8] role=buffer buffer="mean" at disk
  streams "compute" "comm" "odd stream"
  program @accumulate repeat=3 {
    %x = input(name="ids") : i64[2,8] varying<dp>
  }
  program @step {
    %x = input(name="ids") : i64[2,8] varying<dp> shard<"t p",1> at device:128+64
    %"a:b", -, %c = aten.split.Tensor(self=%x, sizes=[2,3]) : i64[2,4] strides=(8,1), -, i64[2,4] strides=(8,1) offset=4 backward accumulates in "model.layers.0" stream=comm provider=native scratch=device:512+64
    release %c stream=#2
    output loss %x
    output gradient "w" %c
    output buffer "mean" %"a:b"
  }
}
)";

TEST(Text, EveryTableAndAttribute) { expect_canonical(kEverything); }

TEST(Text, EveryKindOfArgument) {
  Step step;
  step.name = "s";
  Program program{Graph("p"), 1};
  const ValueId x =
      program.graph.insert({}, OpKind::Input, {}, {{"x", contiguous(DType::F32, {2})}}, {}, {})
          .results[0];
  std::vector<Arg> args = {
      {"self", OperandRef{0}, false},
      {"tensors", OperandList{{1, -1, 2}}, false},
      {"no_tensors", OperandList{}, false},
      {"all_none", OperandList{{-1, -1}}, false},
      {"none", std::monostate{}, true},
      {"yes", true, true},
      {"no", false, false},
      {"int", int64_t{-5}, false},
      {"least", std::numeric_limits<int64_t>::min(), true},
      {"double", 1.0, true},
      {"small", 1e-300, true},
      {"large", 1e20, true},
      {"minus", -0.0, true},
      {"inf", std::numeric_limits<double>::infinity(), true},
      {"minus_inf", -std::numeric_limits<double>::infinity(), true},
      {"nan", std::nan(""), true},
      {"text", std::string("a \"b\" \\ \n \x01 \xc3\xa9"), true},
      {"bools", std::vector<bool>{true, false}, true},
      {"no_bools", std::vector<bool>{}, true},
      {"ints", std::vector<int64_t>{1, -2, 3}, true},
      {"no_ints", std::vector<int64_t>{}, true},
      {"floats", std::vector<double>{1.0, 2.5}, true},
      {"no_floats", std::vector<double>{}, true},
      {"dtype", DType::BF16, true},
      {"dev", DeviceArg{}, true},
      {"lay", LayoutArg{7}, true},
      {"fmt", MemoryFormatArg{2}, true},
      {"odd name", int64_t{1}, true},
  };
  program.graph.insert_aten({}, "aten.cat.default", {x, x, x}, {{"y", contiguous(DType::F32, {2})}},
                            args, {});
  step.programs.push_back(std::move(program));
  expect_round_trip(step);
  const base::Result<Step> again = parse(print(step));
  ASSERT_TRUE(again.ok());
  const Graph& graph = again->programs[0].graph;
  const Node& node = graph.node(graph.last());
  ASSERT_EQ(node.args.size(), args.size());
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].name == "nan") continue;  // never equal to itself
    EXPECT_EQ(node.args[i], args[i]) << args[i].name;
  }
  EXPECT_EQ(node.operands.size(), 3u);
}

TEST(Text, OperandsThatArgumentsNameOutOfOrderAreListed) {
  Step step;
  step.name = "s";
  Program program{Graph("p"), 1};
  Graph& graph = program.graph;
  const ValueId x =
      graph.insert({}, OpKind::Input, {}, {{"x", contiguous(DType::F32, {2})}}, {}, {}).results[0];
  const ValueId y =
      graph.insert({}, OpKind::Input, {}, {{"y", contiguous(DType::F32, {2})}}, {}, {}).results[0];
  graph.insert_aten({}, "aten.add.Tensor", {x, y}, {{"z", contiguous(DType::F32, {2})}},
                    {{"self", OperandRef{1}}, {"other", OperandRef{0}}}, {});
  step.programs.push_back(std::move(program));
  EXPECT_THAT(print(step), HasSubstr("%z = aten.add.Tensor %x, %y (self=#1, other=#0) : f32[2]\n"));
  expect_round_trip(step);
}

TEST(Text, DefaultsAreNotPrinted) {
  Step step;
  step.name = "s";
  EXPECT_EQ(print(step), "step @s stage=imported {\n}\n");
}

TEST(Text, StateReferencesThatNameNothingSurvive) {
  Step step;
  step.name = "s";
  StateEntry entry;
  entry.name = "e";
  entry.parameter = 7;
  entry.range_of = 0;  // itself
  entry.storage_elements = 1;
  step.state.push_back(entry);
  expect_round_trip(step);
}

TEST(Text, HandWrittenFormsAreAccepted) {
  const base::Result<Step> step = parse(R"(
// a comment
step @s stage=normalized {   // another
  program @p {
    %x = input : f32[2]      // no argument list
    %y = aten.relu.default %x : f32[2]
    aten._assert_async.default %x
    %z = aten.relu.default %y
         : f32[2]
  }
})");
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_EQ(step->programs[0].graph.node_count(), 4u);
}

struct BadText {
  const char* name;
  const char* text;
  const char* code;
  const char* where;  // part of the sentence
};
void PrintTo(const BadText& bad, std::ostream* out) { *out << bad.name; }

class ParseError : public ::testing::TestWithParam<BadText> {};

TEST_P(ParseError, NamesLineAndColumn) {
  const BadText& bad = GetParam();
  const base::Result<Step> step = parse(bad.text);
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.status().code(), bad.code);
  EXPECT_EQ(step.status().kind(), base::ErrorKind::BadInput);
  EXPECT_THAT(step.status().sentence(), HasSubstr(bad.where));
}

constexpr BadText kBadTexts[] = {
    {"empty", "", "DC2001", "line 1:1: expected 'step', found the end of the text"},
    {"no_name", "step {", "DC2001", "line 1:6: expected the step's name such as @step, found '{'"},
    {"stage", "step @s stage=later {}", "DC2001", "line 1:15: expected a stage"},
    {"attribute", "step @s colour=1 {}", "DC2001", "line 1:9: a step has no attribute 'colour'"},
    {"unclosed", "step @s {\n", "DC2001", "line 2:1"},
    {"trailing", "step @s {}\nx", "DC2001", "line 2:1: expected the end of the text, found 'x'"},
    {"table", "step @s {\n  rows\n}", "DC2001", "line 2:3: a step has no table 'rows'"},
    {"character", "step @s {\n  !\n}", "DC2001", "line 2:3: unexpected character"},
    {"string", "step @s model=\"abc", "DC2001", "line 1:15: the string has no closing quote"},
    {"escape", "step @\"\\q\"", "DC2001", "line 1:6: unknown escape"},
    {"dtype", "step @s {\n state \"a\" : f33[2]\n}", "DC2001",
     "line 2:14: expected an element type"},
    {"huge", "step @s {\n state \"a\" : f32[4611686018427387904,4]\n}", "DC2003",
     "line 2:14: the type is too large"},
    {"overflow", "step @s {\n state \"a\" : f32[99999999999999999999]\n}", "DC2003",
     "line 2:18: the integer"},
    {"stride", "step @s {\n state \"a\" : f32[2] strides=(1,2)\n}", "DC2003",
     "line 2:14: a type needs one stride per dim"},
    {"wild_stride", "step @s {\n state \"a\" : f32[1] strides=(-9223372036854775808)\n}", "DC2003",
     "too large"},
    {"entry", "step @s {\n program @p {\n  %w = state(entry=\"w\") : f32[2]\n }\n}", "DC2002",
     "line 3:23: there is no state entry 'w'"},
    {"own_attribute", "step @s {\n program @p {\n  %x = input(nam=\"x\") : f32[2]\n }\n}", "DC2002",
     "line 3:21: input has no attribute 'nam'"},
    {"axis", "step @s {\n state \"a\" : f32[2] varying<dp>\n}", "DC2002",
     "line 2:29: the mesh has no axis 'dp'"},
    {"op", "step @s {\n program @p {\n  conv %x\n }\n}", "DC2002",
     "line 3:3: there is no op 'conv'"},
    {"value", "step @s {\n program @p {\n  release %x\n }\n}", "DC2002",
     "line 3:11: the value %x is not defined before this line"},
    {"twice", "step @s {\n program @p {\n  %x = input : f32[]\n  %x = input : f32[]\n }\n}",
     "DC2002", "line 4:3: the value %x is defined twice"},
    {"dash", "step @s {\n program @p {\n  %\"-\" = input : f32[]\n }\n}", "DC2002", "line 3:3"},
    {"types", "step @s {\n program @p {\n  %x, %y = input : f32[]\n }\n}", "DC2001",
     "expected ','"},
    {"suffix", "step @s {\n program @p {\n  %x = input : f32[] sideways\n }\n}", "DC2001",
     "line 3:22: 'sideways' means nothing after a node"},
    {"stream", "step @s {\n program @p {\n  %x = input : f32[] stream=comm\n }\n}", "DC2002",
     "line 3:29: there is no stream 'comm'"},
    {"operand_index",
     "step @s {\n program @p {\n  %x = input : f32[]\n  %y = aten.relu.default %x (self=#1) : "
     "f32[]\n }\n}",
     "DC2003", "there is no operand #1"},
    {"mixed_list", "step @s {\n program @p {\n  %x = input(a=[1, 2.5]) : f32[]\n }\n}", "DC2001",
     "line 3:20: expected an integer"},
    {"reference", "step @s {\n state \"a\" : f32[2] parameter=\"w\"\n}", "DC2002",
     "no row above is parameter 'w'"},
    {"bytes", "step @s {\n buffer \"a\" : u8[1] data=\"0g\"\n}", "DC2003", "not hexadecimal"},
};
INSTANTIATE_TEST_SUITE_P(Text, ParseError, ::testing::ValuesIn(kBadTexts),
                         [](const auto& info) { return std::string(info.param.name); });

// Neither a cut nor a changed byte may do more than give an error; what parses must print and parse
// again.
TEST(Text, DamagedTextsAreHandled) {
  const std::string good = kEverything;
  for (size_t size = 0; size < good.size() - 2; ++size) {
    EXPECT_FALSE(parse(good.substr(0, size)).ok()) << "cut after " << size << " bytes";
  }
  uint64_t state = 1;
  for (int i = 0; i < 4000; ++i) {
    std::string damaged = good;
    for (int change = 0; change < 2; ++change) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      damaged[(state >> 33) % damaged.size()] =
          "%@\"{}()[]<>=,;:+-#?0 9a.\n\\e"[(state >> 20) % 27];
    }
    const base::Result<Step> step = parse(damaged);
    if (step.ok()) expect_round_trip(*step);
  }
}

}  // namespace
}  // namespace dc::ir
