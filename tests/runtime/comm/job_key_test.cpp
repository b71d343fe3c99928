#include "runtime/comm/job_key.h"

#include <gtest/gtest.h>

#include <fstream>

namespace dc::runtime {
namespace {

const char* kKey = "0123456789abcdef0123456789abcdef";

comm::Environment with(const char* value) {
  return
      [value](const char* name) { return std::string(name) == "DCRUN_JOB_KEY" ? value : nullptr; };
}

TEST(JobKey, FileWinsOverTheEnvironmentAndLosesItsLineEnd) {
  const std::string path = testing::TempDir() + "job_key";
  std::ofstream(path) << kKey << "\r\n";
  EXPECT_EQ(comm::read_job_key(path, with("another key of the environment")).value(), kKey);
  EXPECT_EQ(comm::read_job_key("", with(kKey)).value(), kKey);
  EXPECT_EQ(comm::read_job_key("", with(nullptr)).value(), "");
}

TEST(JobKey, ShortOrMissingKeysAreErrors) {
  const std::string path = testing::TempDir() + "short_job_key";
  std::ofstream(path) << "secret\n";
  EXPECT_EQ(comm::read_job_key(path, with(kKey)).status().kind(), base::ErrorKind::BadConfig);
  EXPECT_EQ(comm::read_job_key("", with("")).status().kind(), base::ErrorKind::BadConfig);
  EXPECT_EQ(comm::read_job_key(path + ".gone", with(kKey)).status().kind(),
            base::ErrorKind::MissingInput);
}

}  // namespace
}  // namespace dc::runtime
