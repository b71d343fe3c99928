#include "cli/dcrun_options.h"

#include <gtest/gtest.h>

namespace dc::cli {
namespace {

base::Result<DcrunOptions> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "dcrun");
  return parse_dcrun_options(static_cast<int>(words.size()), words.data());
}

TEST(DcrunOptions, ReadsEverything) {
  const auto o = parse({"-n",
                        "4",
                        "p.dcp",
                        "--weights",
                        "init:0",
                        "--data",
                        "t.bin:uint32",
                        "--steps",
                        "7",
                        "--config",
                        "train.json",
                        "--lr",
                        "0",
                        "--shuffle",
                        "9",
                        "--comm",
                        "mpi",
                        "--job-key",
                        "k",
                        "--timeout",
                        "5",
                        "--metrics",
                        "m",
                        "--save",
                        "s",
                        "--save-every",
                        "50",
                        "--keep",
                        "3",
                        "--resume",
                        "latest",
                        "--trace",
                        "t",
                        "--record-profile",
                        "r",
                        "--dump-gradients",
                        "g",
                        "--offload-dir",
                        "o",
                        "--device",
                        "checked",
                        "--no-graph",
                        "--poison"});
  ASSERT_TRUE(o.ok()) << o.status().to_string();
  EXPECT_EQ(o->device, "checked");
  EXPECT_TRUE(o->no_graph);
  EXPECT_EQ(o->ranks, 4);
  EXPECT_EQ(o->plan, "p.dcp");
  EXPECT_EQ(o->data, std::vector<std::string>{"t.bin:uint32"});
  EXPECT_EQ(o->steps, 7);
  EXPECT_EQ(o->lr, 0.0);
  EXPECT_EQ(o->shuffle, 9u);
  EXPECT_EQ(o->comm, "mpi");
  EXPECT_EQ(o->job_key, "k");
  EXPECT_EQ(o->timeout_seconds, 5);
  EXPECT_EQ(o->dump_gradients, "g");
  EXPECT_EQ(o->record_profile, "r");
  EXPECT_EQ(o->offload_dir, "o");
  EXPECT_EQ(o->save_every, 50);
  EXPECT_EQ(o->keep, 3);
  EXPECT_EQ(o->resume, "latest");
  EXPECT_TRUE(o->poison);
}

TEST(DcrunOptions, DefaultsAreOneStepAndLocal) {
  const auto o = parse({"p.dcp", "--weights", "init:0", "--data", "synthetic"});
  ASSERT_TRUE(o.ok());
  EXPECT_EQ(o->steps, 1);
  EXPECT_EQ(o->comm, "auto");
  EXPECT_FALSE(o->lr.has_value());
  EXPECT_FALSE(o->shuffle.has_value());
}

TEST(DcrunOptions, HelpHasEveryExitCode) {
  const auto o = parse({"--help"});
  ASSERT_TRUE(o.ok());
  for (const char* code : {"64", "65", "66", "69", "70", "73", "74", "75", "76", "77", "78", "80",
                           "81", "82", "83", "84", "128 + N"})
    EXPECT_NE(o->text.find(std::string(code) + " "), std::string::npos) << code;
}

TEST(DcrunOptions, MistakesAreUsageWithASuggestion) {
  const auto sentence = [](std::vector<const char*> words) {
    const auto o = parse(std::move(words));
    EXPECT_FALSE(o.ok());
    if (o.ok()) return std::string();
    EXPECT_EQ(base::exit_code(o.status().kind()), 64);
    return o.status().sentence();
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(sentence({"p", "--stesp", "3"}), "did you mean '--steps'?"));
  EXPECT_TRUE(has(sentence({"p", "--wieghts=x"}), "did you mean '--weights'?"));
  EXPECT_TRUE(has(sentence({"p", "q"}), "unexpected argument 'q'"));
  EXPECT_TRUE(has(sentence({"p", "--data", "synthetic"}), "no --weights"));
  EXPECT_TRUE(has(sentence({"p", "--weights", "init:0"}), "no --data"));
  EXPECT_TRUE(has(sentence({}), "no plan"));
  EXPECT_TRUE(has(sentence({"p", "--weights", "init:0", "--data", "synthetic", "--record-profile",
                            "f", "--steps", "4"}),
                  "at least 5 steps"));
  EXPECT_FALSE(sentence({"p", "--steps", "0"}).empty());
  EXPECT_FALSE(sentence({"p", "--comm", "carrier-pigeon"}).empty());
  EXPECT_FALSE(sentence({"-n", "0", "p"}).empty());
}

TEST(DcrunOptions, NumbersAreFiniteAndInRange) {
  for (const char* bad : {"nan", "inf", "-inf", "-1", "1e39", "0x10", "1.0.0", ""}) {
    const auto o = parse({"p", "--weights", "init:0", "--data", "synthetic", "--lr", bad});
    ASSERT_FALSE(o.ok()) << bad;
    EXPECT_EQ(base::exit_code(o.status().kind()), 64);
  }
  for (const char* option : {"--shuffle", "--steps", "--timeout", "-n"}) {
    for (const char* bad : {"-1", "nan", "1.5", "0x10", "+-1", "-", "18446744073709551616"}) {
      const auto o = parse({"p", "--weights", "init:0", "--data", "synthetic", option, bad});
      ASSERT_FALSE(o.ok()) << option << " " << bad;
      EXPECT_EQ(base::exit_code(o.status().kind()), 64);
    }
  }
  const auto good = parse({"p", "--weights", "init:0", "--data", "a.bin", "--lr", "1e-3",
                           "--shuffle", "18446744073709551615", "--data", "b.bin"});
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(good->shuffle, UINT64_MAX);
  EXPECT_EQ(good->data, (std::vector<std::string>{"a.bin", "b.bin"}));
}

// CLI11 alone reads 0100 as octal: 64 steps.
TEST(DcrunOptions, LeadingZerosMeanNothing) {
  const auto o = parse({"p", "--weights", "init:0", "--data", "synthetic", "--steps", "0100",
                        "--shuffle", "010", "-n", "08", "--timeout", "0009"});
  ASSERT_TRUE(o.ok()) << o.status().to_string();
  EXPECT_EQ(o->steps, 100);
  EXPECT_EQ(o->shuffle, 10u);
  EXPECT_EQ(o->ranks, 8);
  EXPECT_EQ(o->timeout_seconds, 9);
}

TEST(DcrunOptions, HelpBeginsWithExamples) {
  const auto o = parse({"--help"});
  ASSERT_TRUE(o.ok());
  EXPECT_TRUE(o->text.starts_with("Examples:\n  dcrun -n 2 ")) << o->text;
  EXPECT_NE(o->text.find("mpirun"), std::string::npos);
}

// Flags are promises to scripts: this list only grows.
TEST(DcrunOptions, FlagsAreFrozen) {
  const std::vector<std::string> expected = {
      "--comm",           "--config",         "--data",        "--device",
      "--dump-gradients", "--eval-batches",   "--eval-data",   "--eval-every",
      "--help",           "--job-key",        "--keep",        "--lr",
      "--metrics",        "--no-graph",       "--offload-dir", "--overwrite",
      "--poison",         "--record-profile", "--resume",      "--save",
      "--save-every",     "--shuffle",        "--steps",       "--timeout",
      "--trace",          "--version",        "--weights",     "--weights-only-by-name"};
  EXPECT_EQ(dcrun_flags(), expected);
}

TEST(DcrunOptions, EvaluationsNeedData) {
  const std::vector<const char*> run = {"p.dcp", "--data", "synthetic", "--weights", "init:0"};
  const auto parsed = [&](std::vector<const char*> more) {
    more.insert(more.begin(), run.begin(), run.end());
    return parse(std::move(more));
  };
  const auto good = parsed(
      {"--eval-every", "5", "--eval-data", "a.bin", "--eval-data", "b.bin", "--eval-batches", "7"});
  ASSERT_TRUE(good.ok()) << good.status().to_string();
  EXPECT_EQ(good->eval_every, 5);
  EXPECT_EQ(good->eval_batches, 7);
  EXPECT_EQ(good->eval_data, (std::vector<std::string>{"a.bin", "b.bin"}));
  EXPECT_FALSE(parsed({"--eval-every", "5"}).ok());
  EXPECT_FALSE(parsed({"--eval-every", "0", "--eval-data", "a.bin"}).ok());
  EXPECT_FALSE(parsed({"--eval-data", "a.bin"}).ok());
  EXPECT_FALSE(parsed({"--eval-batches", "7"}).ok());
}

// As --save "$OUT" of a variable that is not set: nothing would be saved.
TEST(DcrunOptions, EmptyValuesAreRefused) {
  for (const char* option :
       {"--save", "--metrics", "--config", "--resume", "--trace", "--job-key"}) {
    const auto o = parse({"p.dcp", "--weights", "init:0", "--data", "synthetic", option, ""});
    ASSERT_FALSE(o.ok()) << option;
    EXPECT_EQ(o.status().code(), "DC6001");
    EXPECT_NE(o.status().to_string().find(std::string(option) + ": the value is empty"),
              std::string::npos);
  }
}

TEST(DcrunOptions, CheckpointsNeedAFolder) {
  const auto refused = [](std::vector<const char*> more) {
    more.insert(more.begin(), {"p.dcp", "--data", "synthetic"});
    const auto o = parse(std::move(more));
    return !o.ok() && o.status().kind() == base::ErrorKind::Usage;
  };
  EXPECT_TRUE(refused({}));  // neither weights nor a checkpoint
  EXPECT_FALSE(refused({"--resume", "folder"}));
  EXPECT_TRUE(refused({"--resume", "latest"}));
  EXPECT_TRUE(refused({"--resume", "latest", "--save", "w.safetensors"}));
  EXPECT_FALSE(refused({"--resume", "latest", "--save", "folder"}));
  for (const char* flag : {"--keep", "--save-every"}) {
    EXPECT_TRUE(refused({"--weights", "init:0", flag, "5"}));
    EXPECT_TRUE(refused({"--weights", "init:0", flag, "5", "--save", "w.safetensors"}));
    EXPECT_TRUE(refused({"--weights", "init:0", flag, "0", "--save", "folder"}));
    EXPECT_FALSE(refused({"--weights", "init:0", flag, "5", "--save", "folder"}));
  }
}

}  // namespace
}  // namespace dc::cli
