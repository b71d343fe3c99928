// Damaged files: every byte flipped, every length cut, every payload byte changed behind a correct
// digest, and bombs.
#include <gtest/gtest.h>

#include <functional>

#include "runtime/plan/file.h"
#include "runtime/plan/schema_version.h"
#include "runtime/report/memory_report.h"
#include "runtime/report/report.h"
#include "runtime/verify/verify.h"
#include "schemas/plan_generated.h"
#include "src/base/enum_names.h"
#include "tests/runtime/plan/plan_builder.h"

namespace dc::runtime::plan {
namespace {

base::Result<Plan> decode_string(const std::string& file) {
  return decode({reinterpret_cast<const uint8_t*>(file.data()), file.size()});
}

// What `load` does with the bytes of a file.
base::Status check(const std::string& file) {
  auto decoded = decode_string(file);
  return decoded.ok() ? verify::verify_meaning(*decoded) : decoded.status();
}

TEST(Damage, EveryFlippedByteIsRejected) {
  const std::string good = encode(test::tiny_plan());
  for (size_t i = 0; i < good.size(); ++i) {
    for (unsigned mask : {0x01u, 0x80u, 0xffu}) {
      std::string bad = good;
      bad[i] = static_cast<char>(static_cast<unsigned char>(bad[i]) ^ mask);
      const base::Status status = check(bad);
      ASSERT_FALSE(status.ok()) << "byte " << i;
      ASSERT_EQ(status.kind(), base::ErrorKind::BadInput) << "byte " << i;
    }
  }
}

TEST(Damage, EveryTruncationIsRejected) {
  const std::string good = encode(test::tiny_plan());
  for (size_t size = 0; size < good.size(); ++size) {
    ASSERT_FALSE(check(good.substr(0, size)).ok()) << size;
    if (size < static_cast<size_t>(kHeaderBytes)) continue;
    // A cut payload behind a correct header.
    const std::string sealed =
        seal(std::string_view(good).substr(kHeaderBytes, size - kHeaderBytes));
    (void)check(sealed);
  }
  EXPECT_FALSE(check(good + "x").ok());
}

TEST(Damage, APayloadChangedBehindACorrectDigestNeverCrashes) {
  const std::string good = encode(test::tiny_plan());
  int accepted = 0, rejected = 0;
  for (size_t i = static_cast<size_t>(kHeaderBytes); i < good.size(); ++i) {
    for (unsigned mask : {0x01u, 0x04u, 0x80u, 0xffu}) {
      std::string payload = good.substr(kHeaderBytes);
      char& byte = payload[i - static_cast<size_t>(kHeaderBytes)];
      byte = static_cast<char>(static_cast<unsigned char>(byte) ^ mask);
      auto decoded = decode_string(seal(payload));
      if (decoded.ok()) {
        EXPECT_FALSE(report::to_text(*decoded).empty());
        EXPECT_FALSE(report::to_json(*decoded).empty());
      }
      if (decoded.ok() && verify::verify_meaning(*decoded).ok()) {
        EXPECT_FALSE(report::summary(*decoded).empty());
        EXPECT_FALSE(report::memory_report(*decoded).empty());
        ++accepted;
      } else {
        ++rejected;
      }
    }
  }
  EXPECT_GT(accepted, 0);             // names, numbers of the prediction, padding
  EXPECT_GT(rejected, accepted / 4);  // offsets, ids, sizes, enums
}

TEST(Damage, OtherFilesAreToldApart) {
  EXPECT_EQ(check("").code(), "DC3002");
  EXPECT_EQ(check(std::string(100, 'x')).code(), "DC3003");
  EXPECT_EQ(check(seal("")).code(), "DC3006");
  EXPECT_EQ(check(seal(std::string(64, 'x'))).code(), "DC3006");
  std::string cut = encode(test::tiny_plan());
  cut.pop_back();
  EXPECT_EQ(check(cut).code(), "DC3004");
  std::string flipped = encode(test::tiny_plan());
  flipped.back() ^= 1;
  EXPECT_EQ(check(flipped).code(), "DC3005");
}

// A long string that a million fields share would expand to gigabytes.
TEST(Damage, ExpansionIsBounded) {
  flatbuffers::FlatBufferBuilder builder;
  const auto text = builder.CreateString(std::string(1 << 20, 'x'));
  const auto notes =
      builder.CreateVector(std::vector<flatbuffers::Offset<flatbuffers::String>>(1 << 16, text));
  schema::PlanBuilder root(builder);
  root.add_schema_major(kSchemaMajor);
  root.add_notes(notes);
  builder.Finish(root.Finish(), schema::PlanIdentifier());
  EXPECT_EQ(
      check(seal({reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize()}))
          .code(),
      "DC3008");
}

// One instruction that a long list shares: more tables than the bytes can hold.
TEST(Damage, SharedTablesAreBounded) {
  flatbuffers::FlatBufferBuilder builder;
  const auto slice = schema::CreateSlice(builder, schema::Space::Device, 64, 64);
  const auto slices =
      builder.CreateVector(std::vector<flatbuffers::Offset<schema::Slice>>(1 << 16, slice));
  schema::PlanBuilder root(builder);
  root.add_schema_major(kSchemaMajor);
  root.add_slices(slices);
  builder.Finish(root.Finish(), schema::PlanIdentifier());
  EXPECT_EQ(
      check(seal({reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize()}))
          .code(),
      "DC3007");
}

// The first number that names no enumerator.
template <typename Enum>
Enum after_last() {
  return static_cast<Enum>(base::enum_count<Enum>());
}

struct BadEnum {
  const char* name;
  std::function<void(Plan&)> apply;
};
TEST(Damage, EnumsOutOfRangeAreRejected) {
  const std::vector<BadEnum> cases = {
      {"dtype", [](Plan& p) { p.tensors[0].dtype = static_cast<DType>(9); }},
      {"space", [](Plan& p) { p.slices[0].space = after_last<Space>(); }},
      {"provider",
       [](Plan& p) { p.programs[0].instructions[1].provider = after_last<Provider>(); }},
      {"phase", [](Plan& p) { p.programs[0].instructions[1].phase = after_last<Phase>(); }},
      {"collective",
       [](Plan& p) { p.programs[0].instructions[0].collective = after_last<CollectiveKind>(); }},
      {"source", [](Plan& p) { p.state[0].source = after_last<StateSource>(); }},
      {"role", [](Plan& p) { p.inputs[0].role = after_last<InputRole>(); }},
      {"initializer", [](Plan& p) { p.parameters[0].initializer.kind = after_last<InitKind>(); }},
      {"optimizer", [](Plan& p) { p.optimizer.kind = after_last<OptimizerKind>(); }},
      {"schedule", [](Plan& p) { p.optimizer.schedule = after_last<ScheduleKind>(); }},
  };
  for (const BadEnum& bad : cases) {
    Plan plan = test::tiny_plan();
    bad.apply(plan);
    auto decoded = decode_string(encode(plan));
    ASSERT_FALSE(decoded.ok()) << bad.name;
    EXPECT_EQ(decoded.status().code(), "DC3101") << bad.name;
  }
}

}  // namespace
}  // namespace dc::runtime::plan
