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

std::string plan_bytes(const std::string& name = "tiny") {
  runtime::plan::Plan plan = runtime::plan::test::tiny_plan();
  plan.name = name;
  return runtime::plan::encode(plan);
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
    EXPECT_FALSE(cache_.find_plan(plan_key, warning));
    EXPECT_THAT(warning, HasSubstr(why));
    EXPECT_FALSE(fs::exists(entry(plan_key)));
    EXPECT_TRUE(fs::exists(aside(plan_key)));
    warning.clear();
    EXPECT_FALSE(cache_.find_plan(plan_key, warning));
    EXPECT_EQ(warning, "");  // it is only a miss from now on
  }

  tests::TemporaryFolder folder_;
  PlanCache cache_{folder_ / ""};
  std::string warning_;
};

TEST_F(Cache, MissesThenHitsWithTheSameBytes) {
  EXPECT_FALSE(cache_.find_direct(key(1)));
  EXPECT_FALSE(cache_.find_plan(key(2), warning_));
  const std::string bytes = plan_bytes();
  ASSERT_TRUE(cache_.store(key(1), key(2), bytes).ok());
  EXPECT_EQ(cache_.find_direct(key(1)), key(2));
  const auto found = cache_.find_plan(key(2), warning_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->bytes, bytes);
  EXPECT_EQ(found->plan.name, "tiny");
  EXPECT_EQ(warning_, "");
}

TEST_F(Cache, WithoutAFolderItIsSilent) {
  const PlanCache none("");
  EXPECT_FALSE(none.enabled());
  EXPECT_TRUE(none.store(key(1), key(2), plan_bytes()).ok());
  EXPECT_FALSE(none.find_direct(key(1)));
  EXPECT_FALSE(none.find_plan(key(2), warning_));
  EXPECT_TRUE(none.list()->empty());
  EXPECT_EQ(*none.collect({0}), 0);
}

TEST_F(Cache, EveryDamagedByteIsNoticed) {
  const std::string bytes = plan_bytes();
  ASSERT_TRUE(cache_.store(key(1), key(2), bytes).ok());
  const std::string good = content(entry(key(2)));
  for (size_t at = 0; at < good.size(); at += 1 + good.size() / 300) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    folder_.write("plans/" + key(2) + ".entry", bad);
    std::string warning;
    EXPECT_FALSE(cache_.find_plan(key(2), warning)) << at;
    EXPECT_THAT(warning, HasSubstr("quarantine")) << at;
  }
}

TEST_F(Cache, TruncatedAndEmptyEntriesAreSetAside) {
  ASSERT_TRUE(cache_.store(key(1), key(2), plan_bytes()).ok());
  const std::string good = content(entry(key(2)));
  for (size_t size :
       {size_t{0}, size_t{1}, size_t{129}, size_t{130}, size_t{150}, good.size() - 1}) {
    folder_.write("plans/" + key(2) + ".entry", good.substr(0, size));
    expect_set_aside(key(2), "is damaged");
    fs::remove(aside(key(2)));
  }
}

TEST_F(Cache, ASoundPlanOfAnotherKeyIsSetAside) {
  ASSERT_TRUE(cache_.store(key(1), key(2), plan_bytes("one")).ok());
  ASSERT_TRUE(cache_.store(key(3), key(4), plan_bytes("other")).ok());
  fs::copy_file(entry(key(4)), entry(key(2)), fs::copy_options::overwrite_existing);
  expect_set_aside(key(2), "another key");
  folder_.write("plans/" + key(2) + ".entry", plan_bytes("other"));  // a bare plan file
  expect_set_aside(key(2), "no cache entry");
}

TEST_F(Cache, ADirectFileOfAnotherKeyIsAMiss) {
  ASSERT_TRUE(cache_.store(key(1), key(2), plan_bytes()).ok());
  fs::copy_file(folder_ / ("direct/" + key(1)), folder_ / ("direct/" + key(3)));
  EXPECT_FALSE(cache_.find_direct(key(3)));
  folder_.write("direct/" + key(1), "nonsense");
  EXPECT_FALSE(cache_.find_direct(key(1)));
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
  std::atomic<int> failures{0}, reads{0};
  for (int w = 0; w < 8; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < 20; ++i) {
        const std::string direct = key(100 + w % 2), plan = key(200 + i % 3);
        if (!cache_.store(direct, plan, bytes).ok()) ++failures;
        std::string warning;
        const auto found = cache_.find_plan(plan, warning);
        if (!found || found->bytes != bytes || !warning.empty()) ++failures;
        if (cache_.find_direct(direct)) ++reads;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(reads, 160);
  EXPECT_EQ(cache_.list()->size(), 3u);
  int files = 0;  // no temporary is left
  for (const auto& file : fs::recursive_directory_iterator(folder_ / "")) {
    files += file.is_regular_file();
  }
  EXPECT_EQ(files, 3 + 2);
}

TEST_F(Cache, AWriterThatDiesLeavesNoEntry) {
  const std::string bytes = plan_bytes();
  for (int round = 0; round < 5; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (int i = 0;; ++i) (void)cache_.store(key(i), key(1000 + i), bytes);
    }
    usleep(5000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  ASSERT_TRUE(cache_.list().ok());
  const std::vector<Entry> entries = cache_.list().value();
  for (const Entry& entry : entries) {
    std::string warning;
    EXPECT_TRUE(cache_.find_plan(entry.key, warning)) << warning;
  }
}

TEST_F(Cache, CollectsByLastUse) {
  const std::string bytes = plan_bytes();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(cache_.store(key(i), key(10 + i), bytes).ok());
  for (int i = 0; i < 4; ++i) used_at(key(10 + i), i);
  ASSERT_TRUE(cache_.find_plan(key(10), warning_));  // the oldest becomes the newest
  const int64_t size = cache_.list().value().front().bytes.v;
  EXPECT_EQ(*cache_.collect({2 * size}), 2);
  EXPECT_TRUE(fs::exists(entry(key(10))));
  EXPECT_FALSE(fs::exists(entry(key(11))));
  EXPECT_FALSE(fs::exists(entry(key(12))));
  EXPECT_TRUE(fs::exists(entry(key(13))));
  EXPECT_TRUE(cache_.find_direct(key(0)));
  EXPECT_FALSE(fs::exists(folder_ / ("direct/" + key(1))));  // nothing points at what is gone
  EXPECT_EQ(*cache_.collect({0}), 2);
  EXPECT_TRUE(cache_.list()->empty());
}

TEST_F(Cache, CollectEmptiesTheQuarantine) {
  ASSERT_TRUE(cache_.store(key(1), key(2), plan_bytes()).ok());
  folder_.write("plans/" + key(2) + ".entry", "x");
  expect_set_aside(key(2), "no cache entry");
  EXPECT_EQ(*cache_.collect({int64_t{1} << 40}), 0);
  EXPECT_FALSE(fs::exists(aside(key(2))));
}

TEST_F(Cache, AReadOnlyFolderStillAnswers) {
  const std::string bytes = plan_bytes();
  ASSERT_TRUE(cache_.store(key(1), key(2), bytes).ok());
  fs::permissions(folder_ / "plans", fs::perms(0555));
  fs::permissions(folder_ / "direct", fs::perms(0555));
  const uid_t before = geteuid();
  ASSERT_EQ(before == 0 ? seteuid(65534) : 0, 0);  // root may write everywhere
  std::string warning;
  const auto found = cache_.find_plan(key(2), warning);
  const base::Status stored = cache_.store(key(3), key(4), bytes);
  ASSERT_EQ(seteuid(before), 0);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->bytes, bytes);
  EXPECT_EQ(warning, "");
  ASSERT_FALSE(stored.ok());
  EXPECT_EQ(stored.kind(), base::ErrorKind::CannotWrite);
  fs::permissions(folder_ / "plans", fs::perms(0755));
  fs::permissions(folder_ / "direct", fs::perms(0755));
}

TEST(CacheFolder, CannotBeAFile) {
  const tests::TemporaryFolder folder;
  const PlanCache cache(folder.write("file", "x"));
  const base::Status stored = cache.store(key(1), key(2), plan_bytes());
  ASSERT_FALSE(stored.ok());
  EXPECT_EQ(stored.code(), "DC2901");
  EXPECT_THAT(stored.sentence(), HasSubstr("--no-cache"));
}

TEST(CacheFolder, FollowsTheEnvironment) {
  setenv("DCC_CACHE_DIR", "/a", 1);
  setenv("XDG_CACHE_HOME", "/b", 1);
  const std::string home = getenv("HOME") ? getenv("HOME") : "";
  setenv("HOME", "/c", 1);
  EXPECT_EQ(PlanCache::default_directory(), "/a");
  unsetenv("DCC_CACHE_DIR");
  EXPECT_EQ(PlanCache::default_directory(), "/b/dcc");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(PlanCache::default_directory(), "/c/.cache/dcc");
  unsetenv("HOME");
  EXPECT_EQ(PlanCache::default_directory(), "");
  setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace dc::cache
