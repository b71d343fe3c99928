// encode and decode: nothing is lost, equal plans give equal bytes, another schema version is
// reported apart from damage.
#include <gtest/gtest.h>

#include <unistd.h>

#include <clocale>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/plan/file.h"
#include "runtime/plan/schema_version.h"
#include "runtime/report/report.h"
#include "runtime/verify/verify.h"
#include "schemas/plan_generated.h"
#include "tests/runtime/plan/plan_builder.h"

namespace dc::runtime::plan {
namespace {

std::span<const uint8_t> bytes_of(const std::string& file) {
  return {reinterpret_cast<const uint8_t*>(file.data()), file.size()};
}

TEST(RoundTrip, TheTinyPlanIsGood) {
  const base::Status status = verify::verify_meaning(test::tiny_plan());
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(RoundTrip, AnEvaluationIsKept) {
  const Plan plan = test::evaluating_plan();
  const base::Status status = verify::verify_meaning(plan);
  EXPECT_TRUE(status.ok()) << status.to_string();
  const std::string file = encode(plan);
  auto decoded = decode(bytes_of(file));
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  ASSERT_NE(decoded->variant(Purpose::Evaluate), nullptr);
  EXPECT_EQ(report::to_text(*decoded), report::to_text(plan));
  EXPECT_EQ(report::to_json(*decoded), report::to_json(plan));
}

TEST(RoundTrip, EqualPlansGiveEqualBytes) {
  const std::string first = encode(test::tiny_plan());
  std::setlocale(LC_ALL, "");
  EXPECT_EQ(first, encode(test::tiny_plan()));
}

TEST(RoundTrip, NothingIsLost) {
  Plan plan = test::tiny_plan();
  // Every field and every argument kind away from its default.
  plan.profile_digest = std::string(64, 'c');
  plan.step_digest = {std::string(64, 'd'), std::string(64, 'e')};
  plan.inputs[0].next = true;
  plan.accumulation = 3;
  plan.updates_by_range = true;
  plan.device = base::DeviceKind::Checked;
  plan.threads = 2;
  plan.prediction.copy_ns = 5;
  plan.prediction.copied_out_bytes = 6;
  plan.prediction.copied_in_bytes = 7;
  plan.arena_bytes.push_back(640);
  plan.slices.push_back({Space::Host, 64, 128, -1, 0, 0, SliceKind::Gathered});
  plan.buffers = {{"bn.mean",
                   DType::F64,
                   {4},
                   false,
                   {InitKind::Ones, 1, 2, 3},
                   {"data/b", DType::F64, {4}, {1}, 3}}};
  plan.state[1].data = {1, 2, 255};
  plan.state[1].buffer = 0;
  plan.optimizer = {OptimizerKind::Sgd,
                    {{"*norm*", 1, 2, 3, 4, 5, 6, 7, true}},
                    true,
                    0.5,
                    7,
                    ScheduleKind::Cosine,
                    10,
                    100,
                    0.1};
  Instruction& in = plan.programs[0].instructions[test::kMatmul];
  for (int kind = 0; kind <= static_cast<int>(ArgKind::MemoryFormat); ++kind) {
    Arg arg;
    arg.name = "a" + std::to_string(kind);
    arg.kind = static_cast<ArgKind>(kind);
    if (arg.kind == ArgKind::Ints || arg.kind == ArgKind::Tensors || arg.kind == ArgKind::Bools)
      arg.ints = {-1, 1, 0};
    if (arg.kind == ArgKind::Float) arg.f = -0.0;
    if (arg.kind == ArgKind::Floats) arg.floats = {1.5, -2.5};
    if (arg.kind == ArgKind::String) arg.s = "gelu \"tanh\"";
    if (arg.kind == ArgKind::Int) arg.i = -(int64_t{1} << 40);
    if (arg.kind == ArgKind::Bool) arg.i = 1;
    in.args.push_back(arg);
  }
  Instruction copy;
  copy.kind = InstructionKind::Copy;
  copy.src = test::kMoment1;
  copy.dst = test::kMoment2;
  copy.reads = {test::kMoment1};
  copy.writes = {test::kMoment2};
  plan.programs[0].instructions.push_back(copy);
  plan.programs[0].duration_ns.push_back(int64_t{1} << 40);
  plan.programs.push_back({"accumulate", {copy}, {7}});
  plan.step = {{1, 2}, {0, 1}};

  const std::string file = encode(plan);
  auto decoded = decode(bytes_of(file));
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(*decoded, plan);
  EXPECT_EQ(report::to_text(*decoded), report::to_text(plan));
  EXPECT_EQ(report::to_json(*decoded), report::to_json(plan));
  EXPECT_EQ(encode(*decoded), file);
  EXPECT_TRUE(std::signbit(decoded->programs[0].instructions[test::kMatmul].args[7].f));
}

Plan on_two_axes() {
  Plan plan = test::tiny_plan();
  plan.mesh = {{"host", 2}, {"dp", 2}};
  plan.groups = {{0b10, 0}, {0b01, 1}, {kAllAxes, 1}};
  plan.tensors[test::kTableRow].stride_axes = 0b01;
  return plan;
}

TEST(RoundTrip, GroupsAlongSomeAxesAreKept) {
  const Plan plan = on_two_axes();
  const std::string file = encode(plan);
  auto decoded = decode(bytes_of(file));
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(decoded->groups[0].axes, 0b10u);
  EXPECT_EQ(decoded->groups[1].axes, 0b01u);
  EXPECT_EQ(decoded->groups[2].axes, kAllAxes);
  EXPECT_EQ(decoded->tensors[test::kTableRow].stride_axes, 0b01u);
  EXPECT_EQ(decoded->tensors[test::kTable].stride_axes, kAllAxes);
  const std::string text = report::to_text(*decoded);
  EXPECT_EQ(text, report::to_text(plan));
  EXPECT_EQ(report::to_json(*decoded), report::to_json(plan));
  EXPECT_NE(text.find("group 1 axis=host ranks=[0,2] stream=1"), std::string::npos) << text;
  EXPECT_NE(text.find("group 2 axis=host+dp ranks=[0,1,2,3] stream=1"), std::string::npos);
  EXPECT_NE(text.find(" along=host\n"), std::string::npos);
}

// Every axis by name is the world, as in files that know no axes.
TEST(RoundTrip, AllAxesOneByOneAreTheWorld) {
  Plan named = on_two_axes(), all = named;
  named.groups[2].axes = named.tensors[test::kTable].stride_axes = 0b11;
  EXPECT_EQ(encode(named), encode(all));
}

TEST(RoundTrip, RanksThatAreNotThoseOfTheAxesAreRefused) {
  const std::string file = encode(on_two_axes());
  std::vector<uint8_t> payload(file.begin() + kHeaderBytes, file.end());
  auto* root = flatbuffers::GetMutableRoot<schema::Plan>(payload.data());
  const auto* ranks = root->groups()->Get(1)->ranks();
  const_cast<flatbuffers::Vector<int32_t>*>(ranks)->Mutate(1, 3);
  const std::string changed = seal({reinterpret_cast<const char*>(payload.data()), payload.size()});
  auto decoded = decode(bytes_of(changed));
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.status().code(), "DC3106");
  EXPECT_NE(decoded.status().sentence().find("group 1 lists other ranks than those along 'host'"),
            std::string::npos)
      << decoded.status().to_string();
}

TEST(RoundTrip, LoadVerifiesAndGivesTheDigest) {
  const auto path =
      std::filesystem::temp_directory_path() / ("dcr_plan_load_" + std::to_string(::getpid()));
  const std::string file = encode(test::tiny_plan());
  std::ofstream(path, std::ios::binary) << file;
  auto loaded = verify::load(path.string());
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded->digest.size(), 64u);
  EXPECT_EQ(encode(loaded->plan), file);
  Plan bad = test::tiny_plan();
  bad.programs[0].instructions[test::kMatmul].reads.clear();
  std::ofstream(path, std::ios::binary) << encode(bad);
  auto refused = verify::load(path.string());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), "DC3211");
  std::filesystem::remove(path);
  auto missing = verify::load(path.string());
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().kind(), base::ErrorKind::MissingInput);
}

TEST(RoundTrip, AnotherMajorVersionIsAMismatch) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(schema::CreatePlan(builder, kSchemaMajor + 1, 4), schema::PlanIdentifier());
  const std::string file =
      seal({reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize()});
  auto decoded = decode(bytes_of(file));
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.status().kind(), base::ErrorKind::Mismatch);
  EXPECT_EQ(decoded.status().sentence(),
            "the plan has schema version 4.4 and this program reads version 3.2; recompile the "
            "model with this dcc");
}

TEST(RoundTrip, UnalignedBytesDecodeToo) {
  const std::string file = encode(test::tiny_plan());
  for (size_t shift = 0; shift < 9; ++shift) {
    std::vector<uint8_t> moved(file.size() + shift);
    std::memcpy(moved.data() + shift, file.data(), file.size());
    EXPECT_TRUE(decode(std::span<const uint8_t>(moved).subspan(shift)).ok());
  }
}

}  // namespace
}  // namespace dc::runtime::plan
