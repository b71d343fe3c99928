// dcrun as a user sees it: real processes, exit codes, last words, files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "runtime/checkpoint/checkpoint_folder.h"
#include "src/base/archive/safetensors.h"
#include "src/base/json.h"
#include "tests/runtime/train/scratch_folder.h"

namespace dc::runtime::test {
namespace {

struct Finished {
  int code = -1;
  std::string out, err;
  std::string last_line() const {
    const size_t end = err.find_last_not_of('\n');
    if (end == std::string::npos) return "";
    return err.substr(err.rfind('\n', end) + 1, end - err.rfind('\n', end));
  }
};

class Dcrun : public testing::Test {
 protected:
  std::string plan(int world, int accumulation = 1) {
    std::string path = folder_ / ("plan" + std::to_string(world) + ".dcp");
    const std::string command = std::string(DC_MAKE_PLAN) + " " + path + " " +
                                std::to_string(world) + " " + std::to_string(accumulation);
    EXPECT_EQ(std::system(command.c_str()), 0);
    return path;
  }

  // Starts a shell command; dcrun stands for the program. `out`: its standard output, a file of the
  // folder if empty.
  pid_t start(const std::string& arguments, const std::string& out = "") {
    const std::string command = "exec " + std::string(DC_DCRUN) + " " + arguments + " >" +
                                (out.empty() ? folder_ / "out" : out) + " 2>" + (folder_ / "err");
    std::filesystem::remove(folder_ / "out");  // of an earlier run
    const pid_t child = fork();
    if (child == 0) {
      for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
        unsetenv(name);
      }
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    return child;
  }
  Finished finish(pid_t child) {
    int state = 0;
    waitpid(child, &state, 0);
    Finished result;
    result.code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    result.out = read_text(folder_ / "out");
    result.err = read_text(folder_ / "err");
    return result;
  }
  Finished run(const std::string& arguments) { return finish(start(arguments)); }
  Finished train(int world, const std::string& more) {
    return run("-n " + std::to_string(world) + " " + plan(world) +
               " --weights init:1 --data synthetic:2 " + more);
  }
  // Waits until rank 0 has printed that many steps.
  void await_steps(int steps) { await("out", "step " + std::to_string(steps) + " "); }
  void await(const std::string& file, const std::string& text) {
    for (int tries = 0; tries < 20000; ++tries) {
      if (read_text(folder_ / file).find(text) != std::string::npos) return;
      usleep(1000);
    }
    FAIL() << "no '" << text << "' in " << file << ": " << read_text(folder_ / "err");
  }

  ScratchFolder folder_;
};

TEST_F(Dcrun, PrintsThePlanAndEachStep) {
  const Finished r = train(2, "--steps 3");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(r.out.starts_with("plan hand-made (")) << r.out;
  EXPECT_NE(r.out.find("world 2 launcher dcrun -n communicator local threads 1\nstep 1 loss "),
            std::string::npos)
      << r.out;
  EXPECT_NE(r.out.find("\nstep 3 loss "), std::string::npos);
  EXPECT_EQ(r.err, "");
}

TEST_F(Dcrun, TwoRunsWriteTheSameBits) {
  EXPECT_EQ(train(3, "--steps 4 --save " + (folder_ / "a/model.safetensors")).code, 0);
  EXPECT_EQ(train(3, "--steps 4 --poison --save " + (folder_ / "b/model.safetensors")).code, 0);
  const std::string a = read_text(folder_ / "a/model.safetensors");
  EXPECT_FALSE(a.empty());
  EXPECT_EQ(a, read_text(folder_ / "b/model.safetensors"));
}

TEST_F(Dcrun, RecordsAProfile) {
  const std::string path = folder_ / "prof.json";
  const Finished r = train(2, "--steps 6 --record-profile " + path);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find(path + ": 7 kernels, 2 collective sizes, medians of 4 steps on the slowest "
                              "of 2 ranks\n"),
            std::string::npos)
      << r.out;
  auto profile = base::parse_json_value(read_text(path), "profile");
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  EXPECT_EQ(*profile->find("format")->to_string(), "dcc-profile");
  EXPECT_EQ(profile->find("kernels")->items().size(), 7u);
  EXPECT_EQ(*profile->find("machine")->find("ranks")->to_integer(), 2);
}

TEST_F(Dcrun, WrongWorldIs76) {
  const Finished r = run("-n 2 " + plan(3) + " --weights init:1 --data synthetic");
  EXPECT_EQ(r.code, 76);
  EXPECT_NE(r.err.find("the plan is for 3 ranks but 2 were started"), std::string::npos) << r.err;
}

TEST_F(Dcrun, BadInputsHaveTheirCodes) {
  const std::string p = plan(2);
  const auto code = [&](const std::string& arguments) {
    const Finished r = run("-n 2 " + arguments);
    EXPECT_NE(r.err.find("error[DC"), std::string::npos) << arguments << "\n" << r.err;
    return r.code;
  };
  EXPECT_EQ(code("/nowhere.dcp --weights init:1 --data synthetic"), 66);
  EXPECT_EQ(code(folder_.write("empty.dcp", "") + " --weights init:1 --data synthetic"), 65);
  EXPECT_EQ(code(p + " --weights /nowhere.pt2 --data synthetic"), 66);
  EXPECT_EQ(code(p + " --weights " + folder_.write("w.pt2", "PK") + " --data synthetic"), 65);
  EXPECT_EQ(code(p + " --weights init:1 --data /nowhere.bin"), 66);
  EXPECT_EQ(code(p + " --weights init:1 --data synthetic --metrics /nowhere/m.jsonl"), 73);
  EXPECT_EQ(code(p + " --weights init:1 --data synthetic --trace /nowhere/t.json"), 73);
  EXPECT_EQ(code(p + " --weights init:1 --data synthetic --save /proc/nowhere"), 73);
  EXPECT_EQ(code(p + " --weights init:1 --data synthetic --steps 9 --record-profile /nowhere/p"),
            73);
  EXPECT_EQ(code(p + " --weights init:1 --data synthetic --steps 4 --record-profile p"), 64);
  const std::string unknown = folder_.write("u.json", R"({"optimiser": {}})");
  EXPECT_EQ(code(p + " --weights init:1 --data synthetic --config " + unknown), 78);
  const std::string kind = folder_.write("k.json", R"({"optimizer": {"kind": "sgd"}})");
  EXPECT_EQ(code(p + " --weights init:1 --data synthetic --config " + kind), 78);
}

TEST_F(Dcrun, ANormalStopSavesAndSays75) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const std::string save = folder_ / ("stopped" + std::to_string(signal));
    const pid_t child = start(
        "-n 2 " + plan(2) + " --weights init:1 --data synthetic --steps 100000000 --save " + save);
    await_steps(5);
    kill(child, signal);
    const Finished r = finish(child);
    EXPECT_EQ(r.code, 75) << r.err;
    EXPECT_NE(r.last_line().find("75"), std::string::npos) << r.err;
    // All ranks name the same step, and the file holds it.
    const size_t first = r.err.find("stopped on request after step ");
    ASSERT_NE(first, std::string::npos) << r.err;
    const std::string words = r.err.substr(first, r.err.find(" (exit", first) - first);
    EXPECT_NE(r.err.find(words, first + 1), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("start again with --resume latest"), std::string::npos) << r.err;
    const std::string saved = *runtime::checkpoint::find_checkpoint(save);
    auto file = base::archive::SafetensorsFile::open(saved + "/model.safetensors");
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    EXPECT_EQ("stopped on request after step " + file->metadata().at("step"), words);
  }
}

// As of what a script starts with `&`: a Ctrl-C is for the foreground.
TEST_F(Dcrun, AnIgnoredInterruptStaysIgnored) {
  signal(SIGINT, SIG_IGN);
  const pid_t child = start(plan(1) + " --weights init:1 --data synthetic --steps 100000000");
  signal(SIGINT, SIG_DFL);
  await_steps(3);
  kill(child, SIGINT);
  kill(child, SIGTERM);  // would be the second request, which ends at once
  const Finished r = finish(child);
  EXPECT_EQ(r.code, 75) << r.err;
}

// As in a shell that salloc or srun started.
TEST_F(Dcrun, StartsRanksInsideAStepOfOneTask) {
  const std::pair<const char*, const char*> kStep[] = {
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}};
  for (const auto& [name, value] : kStep) setenv(name, value, 1);
  const Finished r =
      finish(start("-n 2 " + plan(2) + " --weights init:1 --data synthetic --steps 2"));
  for (const auto& [name, value] : kStep) unsetenv(name);
  EXPECT_EQ(r.code, 0) << r.err;
}

// The other ranks wait for rank 0, which waits for the reader, but not for as long as they do.
TEST_F(Dcrun, AnUnreadOutputEndsNoRun) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  fcntl(ends[1], F_SETPIPE_SZ, 4096);  // some dozen lines
  const pid_t child = start("-n 2 " + plan(2) +
                                " --weights init:1 --data synthetic --steps 100000000 --timeout 8 "
                                "--metrics " +
                                (folder_ / "m.jsonl"),
                            "/proc/self/fd/" + std::to_string(ends[1]));
  close(ends[1]);
  await("m.jsonl", "\"step\":500,");
  std::jthread reader([&] {
    char text[4096];
    while (read(ends[0], text, sizeof(text)) > 0) {
    }
  });
  await("err", "lines were left out");
  kill(child, SIGTERM);
  const Finished r = finish(child);
  EXPECT_EQ(r.code, 75) << r.err;
  reader.join();
  close(ends[0]);
}

TEST_F(Dcrun, ADeadRankIsNamed) {
  const pid_t child =
      start("-n 2 " + plan(2) + " --weights init:1 --data synthetic --steps 100000000");
  await_steps(3);
  const std::string find = "pgrep -P " + std::to_string(child) + " > " + (folder_ / "pids");
  ASSERT_EQ(std::system(find.c_str()), 0);
  const std::string pids = read_text(folder_ / "pids");
  const pid_t victim = std::stoi(pids.substr(pids.find('\n') + 1));
  kill(victim, SIGKILL);
  const Finished r = finish(child);
  EXPECT_NE(r.code, 0);
  EXPECT_NE(r.err.find("(exit 83)"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace dc::runtime::test
