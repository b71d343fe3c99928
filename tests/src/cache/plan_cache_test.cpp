// The plan cache: what hits, what is set aside, what survives other processes and a full disk's
// owner.
#include "src/cache/plan_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>

#include "runtime/plan/file.h"
#include "src/base/file.h"
#include "src/base/sha256.h"
#include "tests/runtime/plan/plan_builder.h"
#include "tests/src/archive/temporary_folder.h"

namespace dc::cache {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

using Plan = runtime::plan::Plan;

Plan plan_of(const std::string& name) {
  Plan plan = runtime::plan::test::tiny_plan();
  plan.name = name;
  plan.model_digest = base::sha256_hex("model");
  plan.profile_digest = base::sha256_hex("profile");
  plan.options = "world=2";
  plan.options_digest = base::sha256_hex(plan.options);
  plan.compiler = "dcc 0.1.0";
  plan.step_digest = {base::sha256_hex("step")};
  plan.notes = {"a note of the model", "a note of the compiler"};
  return plan;
}

std::string plan_bytes(const std::string& name = "tiny") {
  return runtime::plan::encode(plan_of(name));
}

// What all plans here answer.
Request request() {
  const Plan plan = plan_of("tiny");
  return {plan.model_digest,       plan.profile_digest, plan.options,    plan.compiler,
          {"a note of the model"}, plan.optimizer,      plan.step_digest};
}

std::string key(int number) { return base::sha256_hex("key " + std::to_string(number)); }

class Cache : public testing::Test {
 protected:
  std::string entry(const std::string& plan_key) {
    return folder_ / ("plans/" + plan_key + ".entry");
  }
  std::string aside(const std::string& plan_key) {
    return folder_ / ("quarantine/" + plan_key + ".entry");
  }
  std::string content(const std::string& path) { return base::read_file(path).value(); }
  void used_at(const std::string& plan_key, int seconds) {
    const auto time = fs::file_time_type::clock::now() - std::chrono::seconds(10000 - seconds);
    fs::last_write_time(entry(plan_key), time);
  }
  // The plan under `plan_key` must be refused with a warning and moved.
  void expect_set_aside(const std::string& plan_key, const std::string& why) {
    std::string warning;
    EXPECT_FALSE(cache_.find(plan_key, request(), warning));
    EXPECT_THAT(warning, HasSubstr(why));
    EXPECT_FALSE(fs::exists(entry(plan_key)));
    EXPECT_TRUE(fs::exists(aside(plan_key)));
    warning.clear();
    EXPECT_FALSE(cache_.find(plan_key, request(), warning));
    EXPECT_EQ(warning, "");  // it is only a miss from now on
  }

  tests::TemporaryFolder folder_;
  PlanCache cache_{folder_ / ""};
  std::string warning_;
};

TEST_F(Cache, MissesThenHitsWithTheSameBytes) {
  EXPECT_FALSE(cache_.find(key(2), request(), warning_));
  const std::string bytes = plan_bytes();
  ASSERT_TRUE(cache_.store(key(2), bytes).ok());
  const auto found = cache_.find(key(2), request(), warning_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->bytes, bytes);
  EXPECT_EQ(found->plan.name, "tiny");
  EXPECT_EQ(warning_, "");
}

TEST_F(Cache, WithoutAFolderItIsSilent) {
  const PlanCache none("");
  EXPECT_FALSE(none.enabled());
  EXPECT_TRUE(none.store(key(2), plan_bytes()).ok());
  EXPECT_FALSE(none.find(key(2), request(), warning_));
  EXPECT_TRUE(none.list()->empty());
  EXPECT_EQ(none.collect({0})->plans, 0);
}

TEST_F(Cache, EveryDamagedByteIsNoticed) {
  const std::string bytes = plan_bytes();
  ASSERT_TRUE(cache_.store(key(2), bytes).ok());
  const std::string good = content(entry(key(2)));
  for (size_t at = 0; at < good.size(); at += 1 + good.size() / 300) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    folder_.write("plans/" + key(2) + ".entry", bad);
    std::string warning;
    EXPECT_FALSE(cache_.find(key(2), request(), warning)) << at;
    EXPECT_THAT(warning, HasSubstr("quarantine")) << at;
  }
}

TEST_F(Cache, TruncatedAndEmptyEntriesAreSetAside) {
  ASSERT_TRUE(cache_.store(key(2), plan_bytes()).ok());
  const std::string good = content(entry(key(2)));
  for (size_t size :
       {size_t{0}, size_t{1}, size_t{129}, size_t{130}, size_t{150}, good.size() - 1}) {
    folder_.write("plans/" + key(2) + ".entry", good.substr(0, size));
    expect_set_aside(key(2), "is not used");
    fs::remove(aside(key(2)));
  }
}

TEST_F(Cache, ASoundPlanOfAnotherKeyIsSetAside) {
  ASSERT_TRUE(cache_.store(key(2), plan_bytes("one")).ok());
  ASSERT_TRUE(cache_.store(key(4), plan_bytes("other")).ok());
  fs::copy_file(entry(key(4)), entry(key(2)), fs::copy_options::overwrite_existing);
  expect_set_aside(key(2), "another key");
  folder_.write("plans/" + key(2) + ".entry", plan_bytes("other"));  // a bare plan file
  expect_set_aside(key(2), "no cache entry");
}

// An entry whose first line fits, with a sound plan that is not the answer: it was planted.
TEST_F(Cache, APlantedPlanIsSetAsideAndKept) {
  const std::vector<std::pair<std::string, std::function<void(Plan&)>>> planted = {
      {"another model", [](Plan& p) { p.model_digest = base::sha256_hex("other"); }},
      {"another profile", [](Plan& p) { p.profile_digest.clear(); }},
      {"another set of options",
       [](Plan& p) { p.options_digest = base::sha256_hex(p.options = "world=4"); }},
      {"another options digest", [](Plan& p) { p.options_digest = base::sha256_hex("x"); }},
      {"another model", [](Plan& p) { p.step_digest.clear(); }},
      {"another compiler", [](Plan& p) { p.compiler += "+"; }},
      {"another training configuration", [](Plan& p) { p.optimizer.groups.at(0).lr *= 2; }},
      {"another training configuration", [](Plan& p) { p.optimizer.clip_norm += 1; }},
      {"another set of notes", [](Plan& p) { p.notes.erase(p.notes.begin()); }},
  };
  int number = 0;
  for (const auto& [why, change] : planted) {
    Plan plan = plan_of("planted");
    change(plan);
    ASSERT_TRUE(cache_.store(key(++number), runtime::plan::encode(plan)).ok());
    expect_set_aside(key(number), why);
  }
  // A second one of the same name does not replace the first.
  fs::rename(aside(key(1)), entry(key(2)));
  std::string warning;
  EXPECT_FALSE(cache_.find(key(2), request(), warning));
  EXPECT_THAT(warning, HasSubstr("quarantine/" + key(2) + ".1.entry"));
  EXPECT_TRUE(fs::exists(aside(key(2))));
  EXPECT_TRUE(fs::exists(folder_ / ("quarantine/" + key(2) + ".1.entry")));
}

TEST(CacheKey, DependsOnEveryPartAndOnItsBorders) {
  const KeyParts parts{"profile", "options", "compiler", "schema"};
  std::vector<std::string> keys = {key_of("subject", parts), key_of("subjec", parts)};
  for (std::string KeyParts::*part : {&KeyParts::profile_digest, &KeyParts::options,
                                      &KeyParts::compiler, &KeyParts::schema_version}) {
    KeyParts changed = parts;
    (changed.*part) += "x";
    keys.push_back(key_of("subject", changed));
  }
  keys.push_back(key_of("subject", {"profileo", "ptions", "compiler", "schema"}));
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::unique(keys.begin(), keys.end()), keys.end());
}

TEST(CacheKey, IsTheSameTextForTheSameParts) {
  // Fixed: independent of path, time, host, locale and environment.
  setenv("LC_ALL", "de_DE.UTF-8", 1);
  setenv("TZ", "Pacific/Kiritimati", 1);
  const std::string here = key_of("subject", {"", "world=2", "dcc 0.1.0", "DCPLAN1"});
  EXPECT_EQ(here, base::sha256_hex("7:subject0:7:world=29:dcc 0.1.07:DCPLAN1"));
  unsetenv("LC_ALL");
  unsetenv("TZ");
}

TEST_F(Cache, ConcurrentWritersLeaveWholeEntries) {
  const std::string bytes = plan_bytes();
  std::vector<std::thread> writers;
  std::atomic<int> failures{0};
  for (int w = 0; w < 8; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < 20; ++i) {
        const std::string plan = key(200 + (i + w) % 3);
        if (!cache_.store(plan, bytes).ok()) ++failures;
        std::string warning;
        const auto found = cache_.find(plan, request(), warning);
        if (!found || found->bytes != bytes || !warning.empty()) ++failures;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(cache_.list()->size(), 3u);
  int files = 0;  // no temporary is left
  for (const auto& file : fs::recursive_directory_iterator(folder_ / "")) {
    files += file.is_regular_file();
  }
  EXPECT_EQ(files, 3);
}

TEST_F(Cache, AWriterThatDiesLeavesNoEntry) {
  const std::string bytes = plan_bytes();
  for (int round = 0; round < 5; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (int i = 0;; ++i) (void)cache_.store(key(1000 + i), bytes);
    }
    usleep(5000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  ASSERT_TRUE(cache_.list().ok());
  const std::vector<Entry> entries = cache_.list().value();
  for (const Entry& entry : entries) {
    std::string warning;
    EXPECT_TRUE(cache_.find(entry.key, request(), warning)) << warning;
  }
}

TEST_F(Cache, CollectsByLastUse) {
  const std::string bytes = plan_bytes();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(cache_.store(key(10 + i), bytes).ok());
  for (int i = 0; i < 4; ++i) used_at(key(10 + i), i);
  ASSERT_TRUE(cache_.find(key(10), request(), warning_));  // the oldest becomes the newest
  const int64_t size = cache_.list().value().front().bytes.v;
  EXPECT_EQ(cache_.collect({2 * size})->plans, 2);
  EXPECT_TRUE(fs::exists(entry(key(10))));
  EXPECT_FALSE(fs::exists(entry(key(11))));
  EXPECT_FALSE(fs::exists(entry(key(12))));
  EXPECT_TRUE(fs::exists(entry(key(13))));
  EXPECT_EQ(cache_.collect({0})->plans, 2);
  EXPECT_TRUE(cache_.list()->empty());
}

// Kernels that dcrun keeps count as plans do.
TEST_F(Cache, CollectRemovesTheLeastRecentlyUsedKernelsToo) {
  const auto kernel = [&](int number) { return "kernels/" + key(number) + ".cubin"; };
  const auto set_age = [](const fs::path& path, int hours) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  ASSERT_TRUE(cache_.store(key(2), plan_bytes()).ok());
  set_age(entry(key(2)), 2);
  fs::create_directories(folder_ / "kernels");
  for (const int number : {3, 4}) set_age(folder_.write(kernel(number), "code"), number - 2);
  folder_.write("kernels/other.txt", "x");
  EXPECT_EQ(cache_.list_kernels()->size(), 2);
  cache::Collected removed = *cache_.collect({4});
  EXPECT_EQ(removed.plans, 1);
  EXPECT_EQ(removed.kernels, 1);
  EXPECT_TRUE(fs::exists(folder_ / kernel(3)));
  removed = *cache_.collect({0});
  EXPECT_EQ(removed.plans, 0);
  EXPECT_EQ(removed.kernels, 1);
  EXPECT_TRUE(fs::exists(folder_ / "kernels/other.txt"));
}

TEST_F(Cache, CollectEmptiesTheQuarantine) {
  ASSERT_TRUE(cache_.store(key(2), plan_bytes()).ok());
  folder_.write("plans/" + key(2) + ".entry", "x");
  expect_set_aside(key(2), "no cache entry");
  EXPECT_EQ(cache_.collect({int64_t{1} << 40})->plans, 0);
  EXPECT_FALSE(fs::exists(aside(key(2))));
}

TEST_F(Cache, CollectRemovesWhatKilledWritersLeft) {
  ASSERT_TRUE(cache_.store(key(2), plan_bytes()).ok());
  fs::create_directories(folder_ / "kernels");
  const std::string dead =
      folder_.write("plans/." + key(3) + ".entry.0123456789abcdef.partial", "x");
  const std::string kernel = folder_.write("kernels/." + key(3) + ".cubin.01.partial", "x");
  const auto live = base::OutputFile::create(folder_ / ("plans/" + key(4) + ".entry"));
  ASSERT_TRUE(live.ok());
  EXPECT_EQ(cache_.collect({int64_t{1} << 40})->plans, 0);
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_FALSE(fs::exists(kernel));
  EXPECT_TRUE(fs::exists(live->temporary_path()));
}

TEST_F(Cache, AReadOnlyFolderStillAnswers) {
  const std::string bytes = plan_bytes();
  ASSERT_TRUE(cache_.store(key(2), bytes).ok());
  fs::permissions(folder_ / "plans", fs::perms(0555));
  const uid_t before = geteuid();
  ASSERT_EQ(before == 0 ? seteuid(65534) : 0, 0);  // root may write everywhere
  std::string warning;
  const auto found = cache_.find(key(2), request(), warning);
  const base::Status stored = cache_.store(key(4), bytes);
  ASSERT_EQ(seteuid(before), 0);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->bytes, bytes);
  EXPECT_EQ(warning, "");
  ASSERT_FALSE(stored.ok());
  EXPECT_EQ(stored.kind(), base::ErrorKind::CannotWrite);
  fs::permissions(folder_ / "plans", fs::perms(0755));
}

TEST(CacheFolder, CannotBeAFile) {
  const tests::TemporaryFolder folder;
  const PlanCache cache(folder.write("file", "x"));
  const base::Status stored = cache.store(key(2), plan_bytes());
  ASSERT_FALSE(stored.ok());
  EXPECT_EQ(stored.code(), "DC2901");
  EXPECT_THAT(stored.sentence(), HasSubstr("--no-cache"));
}

}  // namespace
}  // namespace dc::cache
