// dcrun where a machine gives less than usual: standard streams that are closed or full, few
// processes, few threads. It ends with its codes, never by a signal, and never hangs.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "tests/runtime/train/scratch_folder.h"

namespace dc::runtime::test {
namespace {

class Limits : public testing::Test {
 protected:
  void SetUp() override {
    const std::string command =
        std::string(DC_MAKE_PLAN) + " " + (folder_ / "plan.dcp") + " 2 1 >/dev/null";
    ASSERT_EQ(std::system(command.c_str()), 0);
  }

  // The exit code of two ranks; 124 if they hang, 128 + S after signal S.
  int train(const std::string& environment, const std::string& redirections,
            const std::string& more = "") {
    std::filesystem::remove_all(folder_ / "saved");
    std::filesystem::remove(folder_ / "metrics");
    const std::string command = "timeout 60 env " + environment + " " DC_DCRUN + " -n 2 " +
                                (folder_ / "plan.dcp") +
                                " --weights init:1 --data synthetic:2 --steps 3 --save " +
                                (folder_ / "saved/model.safetensors") + " --metrics " +
                                (folder_ / "metrics") + " " + more + " " + redirections;
    const int state = std::system(command.c_str());
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
  }
  std::string to_file() const { return ">" + (folder_ / "out") + " 2>" + (folder_ / "err"); }

  ScratchFolder folder_;
};

TEST_F(Limits, ClosedStandardStreams) {
  ASSERT_EQ(train("", to_file()), 0);
  const std::string saved = read_text(folder_ / "saved/model.safetensors");
  for (const char* closed : {">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"}) {
    EXPECT_EQ(train("", closed), 0) << closed;
    EXPECT_EQ(read_text(folder_ / "saved/model.safetensors"), saved) << closed;
    // What was to be printed is in none of the files that the program opened.
    EXPECT_EQ(read_text(folder_ / "metrics").find("step 1 loss"), std::string::npos) << closed;
  }
}

TEST_F(Limits, AFullDeviceAsStandardOutputIsSaidAndLosesNothing) {
  EXPECT_EQ(train("", ">/dev/full 2>" + (folder_ / "err")), 0);
  EXPECT_NE(read_text(folder_ / "err").find("cannot write to standard output"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "saved/model.safetensors"));
}

TEST_F(Limits, FewThreadsAreAMessage) {
  bool enough = false;
  for (int threads = 0; threads < 8 && !enough; ++threads) {
    const std::string environment =
        "LD_PRELOAD=" DC_PRELOADED " FEW_THREADS=" + std::to_string(threads);
    for (const char* comm : {"--comm local", "--comm tcp"}) {
      const int code = train(environment, to_file(), comm);
      enough = code == 0;
      if (enough) continue;
      const std::string err = read_text(folder_ / "err");
      EXPECT_EQ(code, 69) << threads << comm << ": " << err;
      EXPECT_NE(err.find("error[DC6013]: the system refuses another thread"), std::string::npos)
          << threads << comm << ": " << err;
    }
  }
  EXPECT_TRUE(enough);
}

TEST_F(Limits, FewProcessesAreAMessage) {
  for (const int processes : {0, 1}) {
    const std::string environment =
        "LD_PRELOAD=" DC_PRELOADED " FEW_PROCESSES=" + std::to_string(processes);
    EXPECT_EQ(train(environment, to_file()), 69);
    EXPECT_NE(read_text(folder_ / "err").find("limit on processes"), std::string::npos);
  }
  EXPECT_EQ(train("LD_PRELOAD=" DC_PRELOADED " FEW_PROCESSES=2", to_file()), 0);
}

}  // namespace
}  // namespace dc::runtime::test
