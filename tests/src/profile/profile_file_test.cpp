// prof.json: what is written is read back; what is not a profile is refused with its cause.
#include "src/profile/profile_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "src/base/file.h"
#include "src/base/sha256.h"
#include "tests/src/archive/temporary_folder.h"

namespace dc::profile {
namespace {

using base::ErrorKind;
using base::Measurements;
using testing::HasSubstr;

base::KernelSignature kernel(const char* text, base::Provider provider,
                             base::Space space = base::Space::Device) {
  return base::KernelSignature::parse(text, provider, space).value();
}

constexpr const char* kProduct = "aten.mm.default f32[2,3](3,1) f32[3,4](4,1) -> f32[2,4](4,1)";
constexpr const char* kGate =
    "dc.fused f32[8](1) body=\"t0:f32=silu.default(self=a0);t1:f32=neg.default(self=t0);->t1\" -> "
    "f32[8](1)";
constexpr const char* kCast = "dc.cast f32[8](1) -> bf16[8](1)";

Measurements sample() {
  Measurements all;
  all.machine = {"A \"CPU\" \\ @ 2 GHz\n\xC3\xA4",
                 "dcc 0.1.0",
                 "local",
                 "dcrun -n",
                 8,
                 2,
                 3,
                 base::DeviceKind::Checked,
                 2,
                 base::GpuIdentity{"A \"GPU\"", "9.0", "13.0", 132, int64_t{80} << 30, 1'980'000, 0,
                                   550 << 20}};
  all.model_digest = std::string(64, 'a');
  all.kernels = {{kernel(kProduct, base::Provider::Aten), {1500, 1400, 20, 9}, 4096},
                 {kernel(kProduct, base::Provider::Native), {1200, 1100, 20, 9}, 8192},
                 {kernel(kCast, base::Provider::Native), {10, 9, 1, 18}, 0},
                 {kernel(kCast, base::Provider::Native, base::Space::Host), {30, 29, 1, 18}, 0}};
  all.alone = {{kernel(kGate, base::Provider::Fused), {40, 39, 1, 70}, {90, 80, 6, 3}}};
  all.collectives = {{"all_gather", 2, 4096, {100, 90, 3, 50}},
                     {"reduce_scatter", 2, int64_t{1} << 40, {int64_t{1} << 49, 1, 2, 5}},
                     {"all_reduce", 4, 64, {9, 8, 7, 6}, base::CollectiveLevel::Across}};
  all.during_compute = {
      {{"all_gather", 2, 4096, {130, 120, 4, 50}, base::CollectiveLevel::Inside}, 1250}};
  all.together = {{{"all_gather", 2, 65536, {250, 240, 6, 40}, base::CollectiveLevel::Across},
                   "reduce_scatter"}};
  all.copies = {{"host", "device", 16777216, {7, 6, 5, 4}}};
  all.origin = base::ProfileOrigin::Synthetic;
  all.complete = {true, true, false, true};
  all.rates = base::MachineRates{1, 2, int64_t{1} << 59, 4, 5, 6, 7, 8, 9, 10, 11};
  all.step = {std::string(64, 'b'), {900, 800, 7, 5}, {600, 500, 6, 5}};
  return all;
}

void expect_equal(const base::Timing& a, const base::Timing& b) {
  EXPECT_EQ(a.median_ns, b.median_ns);
  EXPECT_EQ(a.fastest_ns, b.fastest_ns);
  EXPECT_EQ(a.deviation_ns, b.deviation_ns);
  EXPECT_EQ(a.samples, b.samples);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

base::Status refusal(const std::string& text) {
  auto parsed = parse_profile(text, "prof.json");
  return parsed.ok() ? base::Status() : parsed.status();
}

TEST(Profile, RoundTrip) {
  const Measurements before = sample();
  const std::string text = to_json(before);
  const auto parsed = parse_profile(text, "prof.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  const Measurements& after = parsed->measurements;
  EXPECT_EQ(parsed->digest, base::sha256_hex(text));
  EXPECT_EQ(after.model_digest, before.model_digest);
  EXPECT_EQ(after.machine.cpu, before.machine.cpu);
  EXPECT_EQ(after.machine.software, before.machine.software);
  EXPECT_EQ(after.machine.communicator, before.machine.communicator);
  EXPECT_EQ(after.machine.launcher, before.machine.launcher);
  EXPECT_EQ(after.machine.cores, before.machine.cores);
  EXPECT_EQ(after.machine.ranks, before.machine.ranks);
  EXPECT_EQ(after.machine.threads, before.machine.threads);
  EXPECT_EQ(after.machine.device, before.machine.device);
  EXPECT_EQ(after.machine.ranks_per_host, 2);
  EXPECT_EQ(after.machine.gpu, before.machine.gpu);
  ASSERT_EQ(after.kernels.size(), before.kernels.size());
  for (size_t i = 0; i < after.kernels.size(); ++i) {
    EXPECT_EQ(after.kernels[i].signature, before.kernels[i].signature);
    EXPECT_EQ(after.kernels[i].scratch_bytes, before.kernels[i].scratch_bytes);
    expect_equal(after.kernels[i].timing, before.kernels[i].timing);
  }
  ASSERT_EQ(after.alone.size(), 1u);
  EXPECT_EQ(after.alone[0].signature, before.alone[0].signature);
  expect_equal(after.alone[0].warm, before.alone[0].warm);
  expect_equal(after.alone[0].cold, before.alone[0].cold);
  ASSERT_EQ(after.collectives.size(), before.collectives.size());
  for (size_t i = 0; i < after.collectives.size(); ++i) {
    EXPECT_EQ(after.collectives[i].kind, before.collectives[i].kind);
    EXPECT_EQ(after.collectives[i].ranks, before.collectives[i].ranks);
    EXPECT_EQ(after.collectives[i].bytes, before.collectives[i].bytes);
    EXPECT_EQ(after.collectives[i].level, before.collectives[i].level);
    expect_equal(after.collectives[i].timing, before.collectives[i].timing);
  }
  ASSERT_EQ(after.copies.size(), 1u);
  EXPECT_EQ(after.copies[0].from, "host");
  EXPECT_EQ(after.copies[0].to, "device");
  EXPECT_EQ(after.copies[0].bytes, 16777216);
  expect_equal(after.copies[0].timing, before.copies[0].timing);
  ASSERT_EQ(after.during_compute.size(), 1u);
  EXPECT_EQ(after.during_compute[0].bytes, 4096);
  EXPECT_EQ(after.during_compute[0].compute_permille, 1250);
  EXPECT_EQ(after.during_compute[0].level, base::CollectiveLevel::Inside);
  expect_equal(after.during_compute[0].timing, before.during_compute[0].timing);
  ASSERT_EQ(after.together.size(), 1u);
  EXPECT_EQ(after.together[0].kind, "all_gather");
  EXPECT_EQ(after.together[0].other, "reduce_scatter");
  EXPECT_EQ(after.together[0].bytes, 65536);
  EXPECT_EQ(after.together[0].level, base::CollectiveLevel::Across);
  expect_equal(after.together[0].timing, before.together[0].timing);
  EXPECT_EQ(after.origin, base::ProfileOrigin::Synthetic);
  EXPECT_TRUE(after.complete.kernels);
  EXPECT_FALSE(after.complete.during_compute);
  ASSERT_TRUE(after.rates.has_value());
  EXPECT_EQ(after.rates->half_flops, int64_t{1} << 59);
  EXPECT_EQ(after.rates->disk_bytes, 10);
  EXPECT_EQ(after.rates->host_memory_bytes, 11);
  ASSERT_TRUE(after.step.has_value());
  EXPECT_EQ(after.step->plan_digest, before.step->plan_digest);
  expect_equal(after.step->whole, before.step->whole);
  expect_equal(after.step->compute, before.step->compute);
  EXPECT_EQ(to_json(after), text);  // the same records are the same text
}

// Whatever the order of the records; two providers, or spaces, of one kernel are two rows.
TEST(Profile, KernelsAreByKeyAndProvider) {
  Measurements all = sample();
  const std::string text = to_json(all);
  std::reverse(all.kernels.begin(), all.kernels.end());
  EXPECT_EQ(to_json(all), text);
  const size_t aten = text.find(kProduct), native = text.find(kProduct, aten + 1);
  ASSERT_NE(native, std::string::npos);
  EXPECT_LT(aten, text.find("\"provider\": \"aten\""));
  EXPECT_GT(text.find("dc.cast"), native);
  EXPECT_LT(text.find("\"median_ns\": 10,"), text.find("\"space\": \"host\""));
}

TEST(Profile, KernelsAreKnownWords) {
  const std::string good = to_json(sample());
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"provider\": \"aten\"", "\"provider\": \"cuda\""},
           {"\"space\": \"host\"", "\"space\": \"disk\""},
           {kProduct, "aten.mm.default"},
           {kProduct, "aten.mm.default(f32[2,3])"},
           {"dc.cast f32[8](1) ->", "dc.cast f33[8](1) ->"}}) {
    const base::Status status = refusal(replaced(good, from, to));
    ASSERT_FALSE(status.ok()) << to;
    EXPECT_EQ(status.code(), "DC2502");
    EXPECT_THAT(status.sentence(), HasSubstr("measure again"));
  }
}

TEST(Profile, AnUnknownRateIsLeftOut) {
  Measurements all = sample();
  all.rates->host_memory_bytes = 0;
  const std::string text = to_json(all);
  EXPECT_EQ(text.find("host_memory"), std::string::npos);
  EXPECT_EQ(parse_profile(text, "prof.json")->measurements.rates->host_memory_bytes, 0);
}

TEST(Profile, OlderOnesSayLess) {
  Measurements all = sample();
  all.during_compute.clear();
  std::string text = to_json(all);
  text = replaced(text, "\"origin\":", "\"x_origin\":");
  text = replaced(text, "\"during_compute\":", "\"x_beside_compute\":");
  text = replaced(text, "\"alone\":", "\"x_alone\":");
  text = replaced(text, "\"together\":", "\"x_together\":");
  text = replaced(text, "\"complete\":", "\"x_complete\":");
  text = replaced(text, "\"rates\":", "\"x_rates\":");
  text = replaced(text, "\"step\":", "\"x_step\":");
  text = replaced(text, "\"device\":", "\"x_device\":");
  text = replaced(text, "\"ranks_per_host\":", "\"x_ranks_per_host\":");
  text = replaced(text, "\"level\":", "\"x_level\":");
  const auto parsed = parse_profile(text, "prof.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->measurements.origin, base::ProfileOrigin::Measured);
  EXPECT_TRUE(parsed->measurements.complete.collectives);
  EXPECT_FALSE(parsed->measurements.complete.during_compute);
  EXPECT_TRUE(parsed->measurements.alone.empty());
  EXPECT_TRUE(parsed->measurements.together.empty());
  EXPECT_FALSE(parsed->measurements.rates.has_value());
  EXPECT_FALSE(parsed->measurements.step.has_value());
  EXPECT_EQ(parsed->measurements.machine.device, base::DeviceKind::Cpu);
  EXPECT_EQ(parsed->measurements.machine.ranks_per_host, 0);
  EXPECT_EQ(parsed->measurements.collectives[2].level, base::CollectiveLevel::World);
}

TEST(Profile, UnknownLevelsAreRefused) {
  const base::Status status =
      refusal(replaced(to_json(sample()), "\"across\"", "\"between racks\""));
  EXPECT_EQ(status.code(), "DC2502");
  EXPECT_THAT(status.sentence(), HasSubstr("'between racks'"));
}

TEST(Profile, OfAnUnknownDeviceIsRefused) {
  const base::Status status = refusal(replaced(to_json(sample()), "\"checked\"", "\"tpu\""));
  EXPECT_EQ(status.code(), "DC2504");
  EXPECT_THAT(status.sentence(), HasSubstr("device 'tpu'"));
}

TEST(Profile, OriginsRatesAndPartsAreKnownWords) {
  const std::string good = to_json(sample());
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"synthetic\"", "\"invented\""},
           {"\"synthetic\"", "1"},
           {"\"half_flops_per_s\":", "\"bf16\":"},
           {"\"half_flops_per_s\": 576460752303423488", "\"half_flops_per_s\": -1"},
           {"\"kernel_launch_ns\":", "\"kernel_launch_ns\": 1152921504606846976, \"x\":"},
           {"\"collective_latency_ns\":", "\"collective_latency_ns\": 1152921504606846976, \"x\":"},
           {"\"collectives\": true", "\"collectives\": 1"},
           {"\"compute_permille\":", "\"compute_part\":"},
           {"\"warm\":", "\"hot\":"},
           {"\"cold\":", "\"x_cold\":"},
           {"\"cold\": {", "\"cold\": 3, \"x_cold\": {"},
           {"\"median_ns\": 90", "\"median_ns\": -90"},
           {"\"plan_digest\":", "\"plan\":"},
           {"\"whole\":", "\"all\":"},
           {"\"median_ns\": 600", "\"median_ns\": -600"}}) {
    const base::Status status = refusal(replaced(good, from, to));
    ASSERT_FALSE(status.ok()) << from << to;
    EXPECT_EQ(status.kind(), ErrorKind::BadInput) << from << to;
  }
}

TEST(Profile, FilesComeAndGo) {
  const tests::TemporaryFolder folder;
  const std::string path = folder / "prof.json";
  EXPECT_EQ(read_profile(path).status().kind(), ErrorKind::MissingInput);
  ASSERT_TRUE(write_profile(path, sample()).ok());
  EXPECT_TRUE(read_profile(path).ok());
  EXPECT_EQ(write_profile(folder / "none/prof.json", sample()).kind(), ErrorKind::CannotWrite);
}

TEST(Profile, AnotherVersionIsAMismatch) {
  for (const char* version : {"0", "1", "1000000"}) {
    const base::Status status = refusal(
        replaced(to_json(sample()), "\"version\": 2", std::string("\"version\": ") + version));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.kind(), ErrorKind::Mismatch);
    EXPECT_THAT(status.sentence(), HasSubstr("measure again"));
  }
}

TEST(Profile, OtherDocumentsAreNoProfile) {
  for (const char* text : {"{}", "[]", "3", "null", R"({"format": 1})", R"({"format": "dcrun"})"}) {
    const base::Status status = refusal(text);
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_EQ(status.kind(), ErrorKind::BadInput);
    EXPECT_THAT(status.sentence(), HasSubstr("prof.json"));
  }
}

TEST(Profile, EveryTruncationIsRefused) {
  const std::string good = to_json(sample());
  for (size_t size = 0; size + 2 < good.size(); ++size) {
    const base::Status status = refusal(good.substr(0, size));
    ASSERT_FALSE(status.ok()) << size;
    ASSERT_EQ(status.kind(), ErrorKind::BadInput) << size;
    ASSERT_THAT(status.to_string(), HasSubstr("prof.json")) << size;
  }
}

TEST(Profile, EveryMemberIsNeeded) {
  const std::string good = to_json(sample());
  for (const char* key : {"format",        "version",   "machine",    "model_digest", "kernels",
                          "collectives",   "copies",    "cpu",        "cores",        "software",
                          "communicator",  "launcher",  "ranks",      "threads",      "key",
                          "provider",      "median_ns", "fastest_ns", "deviation_ns", "samples",
                          "scratch_bytes", "kind",      "bytes",      "from",         "to"}) {
    const std::string quoted = std::string("\"") + key + "\":";
    const base::Status status = refusal(replaced(good, quoted, "\"x_" + std::string(key) + "\":"));
    ASSERT_FALSE(status.ok()) << key;
    EXPECT_EQ(status.kind(), ErrorKind::BadInput) << key;
  }
}

TEST(Profile, NumbersMustBeSane) {
  const std::string good = to_json(sample());
  for (const char* number : {"-1", "1.5", "\"7\"", "null", "true", "[]", "1e3",
                             "99999999999999999999", "9223372036854775807"}) {
    const base::Status status =
        refusal(replaced(good, "\"median_ns\": 1500", std::string("\"median_ns\": ") + number));
    ASSERT_FALSE(status.ok()) << number;
    EXPECT_EQ(status.kind(), ErrorKind::BadInput) << number;
  }
}

TEST(Profile, RowsSayWhatIsWrongWithThem) {
  const std::string good = to_json(sample());
  struct Case {
    const char *from, *to, *says;
  };
  for (const Case& one : std::vector<Case>{
           {"\"kind\": \"reduce_scatter\"", "\"kind\": \"broadcast\"",
            "row 2 of collectives: the collective 'broadcast' is unknown"},
           {"\"other\": \"reduce_scatter\"", "\"other\": \"gather\"", "row 1 of together: "},
           {"\"ranks\": 4", "\"ranks\": 0", "row 3 of collectives: ranks is 0; it is 1 to "},
           {"\"ranks\": 2", "\"ranks\": 0", "ranks is 0; it is 1 to "},
           {"\"threads\": 3", "\"threads\": 0", "threads is 0; it is 1 to "},
           {"\"median_ns\": 1500", "\"median_ns\": -1", "row 1 of kernels: median_ns is -1; "}}) {
    EXPECT_THAT(refusal(replaced(good, one.from, one.to)).sentence(), HasSubstr(one.says));
  }
}

TEST(Profile, NothingIsMeasuredTwice) {
  const auto twice = [](auto Measurements::*rows) {
    Measurements all = sample();
    (all.*rows).push_back((all.*rows).back());
    return refusal(to_json(all)).sentence();
  };
  EXPECT_THAT(twice(&Measurements::kernels), HasSubstr("row 5 of kernels: native host "));
  EXPECT_THAT(twice(&Measurements::alone), HasSubstr("row 2 of alone: "));
  EXPECT_THAT(twice(&Measurements::collectives),
              HasSubstr("row 4 of collectives: all_reduce of 64 bytes between 4 ranks (across) has "
                        "been measured by a row before"));
  EXPECT_THAT(twice(&Measurements::during_compute), HasSubstr("row 2 of during_compute: "));
  EXPECT_THAT(twice(&Measurements::together), HasSubstr("row 2 of together: "));
  EXPECT_THAT(twice(&Measurements::copies),
              HasSubstr("a copy of 16777216 bytes from host to device"));
}

// Whatever a byte turns into, the answer is a profile or a sentence with the file's name.
TEST(Profile, MutationsAreReadOrRefused) {
  const std::string good = to_json(sample());
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = good;
    for (uint32_t i = 0; i <= random() % 3; ++i) {
      text[random() % text.size()] = static_cast<char>(random() % 256);
    }
    const base::Status status = refusal(text);
    if (status.ok()) continue;
    ++refused;
    ASSERT_THAT(status.to_string(), HasSubstr("prof.json"));
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace dc::profile
