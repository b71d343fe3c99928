#include "cli/dcrun_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cli/numbers.h"
#include "runtime/measure/recorded.h"
#include "runtime/train/train.h"
#include "src/base/build_id.h"
#include "src/base/device_kind.h"
#include "src/base/text.h"

namespace dc::cli {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

constexpr const char* kExamples =
    "Examples:\n"
    "  dcrun -n 2 llama.dcp --weights llama.pt2 --data tokens.bin:uint16 --steps 100 --save out\n"
    "  mpirun -np 4 dcrun llama.dcp --weights init:0 --data synthetic:1 --steps 20 "
    "--metrics run.jsonl\n";

constexpr const char* kExitCodes =
    "Exit codes: 0 done, 64 usage, 65 bad input, 66 missing input, 69 no backend, 73 cannot "
    "write,\n"
    "74 I/O, 75 stopped on request, state saved, 76 plan or world mismatch, 78 configuration, "
    "80 "
    "memory,\n"
    "81 unsupported, 82 collective timeout, 83 a peer died, 84 non-finite number.\n";

// CLI11 wants storage that outlives parsing; optionals are filled from it afterwards.
struct Raw {
  DcrunOptions options;
  double lr = 0;
  uint64_t shuffle = 0;
  bool version = false;
  CLI::Option *lr_given = nullptr, *shuffle_given = nullptr;
};

void declare_run(CLI::App& app, Raw& raw) {
  DcrunOptions& o = raw.options;
  app.add_option("plan", o.plan, "The plan that dcc compile wrote")->type_name("PLAN");
  app.add_option("-n", o.ranks, "Start this many ranks on this machine")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
  app.add_option(
         "--weights", o.weights,
         "FILE.pt2, FILE.safetensors, the folder of a checkpoint in several files, or init:SEED")
      ->type_name("FROM");
  app.add_flag("--weights-only-by-name", o.weights_only_by_name,
               "Take tensors by name and shape: from another model's archive, leaving tensors out");
  app.add_option(
         "--data", o.data,
         "TOKENS[:uint16|uint32|int64], several times for several files; FILE.safetensors; or "
         "synthetic[:SEED]")
      ->type_name("FROM")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--steps", o.steps, "Steps to run, those before a resumed checkpoint included")
      ->type_name("K")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--config", o.config,
                 "train.json: learning rate, schedule, clip value, weight decay, seed")
      ->type_name("FILE");
  raw.lr_given = app.add_option("--lr", raw.lr, "Learning rate; wins over --config")
                     ->type_name("X")
                     ->check(check_amount);
  raw.shuffle_given = app.add_option("--shuffle", raw.shuffle, "Permute samples in every epoch")
                          ->type_name("SEED")
                          ->check(check_seed);
}

void declare_rest(CLI::App& app, Raw& raw) {
  DcrunOptions& o = raw.options;
  app.add_option("--comm", o.comm,
                 "What carries collectives: local, mpi, tcp, or auto by host and launcher")
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "local", "mpi", "tcp"}))
      ->capture_default_str();
  app.add_option(
         "--device", o.device,
         "Where kernels run: cpu, or checked, the CPU with memory that only kernels, copies "
         "and collectives can reach (for developers); the plan's if not given")
      ->type_name("NAME")
      ->check(CLI::IsMember(
          std::vector<std::string>(base::kDeviceKinds.begin(), base::kDeviceKinds.end())));
  app.add_option("--job-key", o.job_key,
                 "File with a secret by which ranks of several hosts recognise each other; or set "
                 "DCRUN_JOB_KEY")
      ->type_name("FILE");
  app.add_option("--timeout", o.timeout_seconds, "Longest wait in a collective")
      ->type_name("SECONDS")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--metrics", o.metrics, "One JSON object per step, after a header")
      ->type_name("FILE.jsonl");
  app.add_option("--save", o.save,
                 "At the end or when stopped: write a checkpoint into folder DIR, or the weights "
                 "alone into FILE.safetensors")
      ->type_name("DIR|FILE.safetensors");
  app.add_option("--save-every", o.save_every, "Also write a checkpoint every K steps")
      ->type_name("K")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app.add_option("--keep", o.keep, "Keep the newest N checkpoints of --save; all if not given")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app.add_option("--resume", o.resume,
                 "Go on from a checkpoint, from the newest of a folder, or from the latest of "
                 "--save if there is one")
      ->type_name("DIR|latest");
  app.add_option("--eval-every", o.eval_every,
                 "Print the loss on --eval-data every K steps and at the end; needs a plan of a "
                 "model exported with eval=True")
      ->type_name("K")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app.add_option("--eval-data", o.eval_data, "Validation data, given as --data is")
      ->type_name("FROM")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--eval-batches", o.eval_batches,
                 "Evaluate the first M micro-batches of --eval-data, over all ranks; all if not "
                 "given")
      ->type_name("M")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app.add_flag("--overwrite", o.overwrite, "Replace what --save and --metrics find in their place");
  app.add_option("--trace", o.trace, "Chrome/Perfetto trace of all ranks")->type_name("FILE.json");
  app.add_option("--record-profile", o.record_profile,
                 "Measure every instruction in the running step; dcc compile --profile reads it")
      ->type_name("FILE.json");
  app.add_option("--dump-gradients", o.dump_gradients,
                 "Write gradients.safetensors of step 1 here, before clipping")
      ->type_name("DIR");
  app.add_option("--offload-dir", o.offload_dir,
                 "Folder for what the plan offloads to disk; needed by such plans only")
      ->type_name("DIR");
  app.add_flag("--poison", o.poison, "Fill memory with NaN after its last use (slow; for tests)");
  app.add_flag("--version", raw.version, "Print the version");
}

std::unique_ptr<CLI::App> make_app(Raw& raw) {
  auto app = std::make_unique<CLI::App>(
      std::string(kExamples) + "\nTrains one compiled plan on all ranks of a job.", "dcrun");
  declare_run(*app, raw);
  declare_rest(*app, raw);
  app->footer(kExitCodes);
  return app;
}

std::vector<std::string> long_flags(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Status usage(const std::string& sentence) {
  return Status(ErrorKind::Usage, "DC6001", sentence + " (dcrun --help lists the options)");
}

Status unknown_arguments(const CLI::App& app) {
  for (const std::string& word : app.remaining()) {
    if (!word.starts_with("-")) return usage("unexpected argument '" + word + "'");
    const std::string flag = word.substr(0, word.find('='));
    const std::vector<std::string> flags = long_flags(app);
    const std::vector<std::string_view> known(flags.begin(), flags.end());
    return usage("unknown option '" + flag + "'" + base::did_you_mean(flag, known));
  }
  return usage("unexpected argument");
}

Status check_saving(const DcrunOptions& options) {
  const bool folder = !options.save.empty() && !runtime::is_weights_path(options.save);
  if (!folder && (options.save_every > 0 || options.keep > 0)) {
    return usage(std::string(options.keep > 0 ? "--keep" : "--save-every") +
                 " is for checkpoints; give --save a folder");
  }
  if (!folder && options.resume == runtime::kLatest) {
    return usage("--resume latest looks in the folder of --save; give --save DIR, or --resume DIR");
  }
  return base::ok_status();
}

Status check_evaluation(const DcrunOptions& options) {
  const bool evaluates = options.eval_every > 0;
  if (evaluates && options.eval_data.empty()) {
    return usage("--eval-every needs validation data; give --eval-data FILE");
  }
  if (!evaluates && (!options.eval_data.empty() || options.eval_batches > 0)) {
    return usage(std::string(options.eval_data.empty() ? "--eval-batches" : "--eval-data") +
                 " is for evaluations between steps; give --eval-every K");
  }
  return base::ok_status();
}

Status check_complete(const DcrunOptions& options) {
  if (options.plan.empty()) return usage("no plan given");
  if (options.weights.empty() && options.resume.empty()) {
    return usage(
        "no --weights; give the archive the plan was compiled from, or init:0 to start from "
        "freshly "
        "drawn parameters instead of its own");
  }
  if (options.data.empty()) return usage("no --data; give a token file, or synthetic");
  DC_RETURN_IF_ERROR(check_saving(options));
  DC_RETURN_IF_ERROR(check_evaluation(options));
  constexpr int kFewest = runtime::kRecordedWarmup + runtime::kRecordedSteps;
  if (!options.record_profile.empty() && options.steps < kFewest) {
    return usage("--record-profile needs at least " + std::to_string(kFewest) + " steps, " +
                 std::to_string(runtime::kRecordedWarmup) +
                 " to warm up and the others to measure; give --steps 20");
  }
  return base::ok_status();
}

}  // namespace

Result<DcrunOptions> parse_dcrun_options(int argc, const char* const* argv) {
  Raw raw;
  const auto app = make_app(raw);
  try {
    app->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    raw.options.text = app->help();
    return raw.options;
  } catch (const CLI::ExtrasError&) {
    return unknown_arguments(*app);
  } catch (const CLI::ParseError& error) {
    return usage(error.what());
  }
  if (raw.version) {
    raw.options.text = "dcrun of " + std::string(base::build_id()) + "\n";
    return raw.options;
  }
  if (raw.lr_given->count() > 0) raw.options.lr = raw.lr;
  if (raw.shuffle_given->count() > 0) raw.options.shuffle = raw.shuffle;
  DC_RETURN_IF_ERROR(check_complete(raw.options));
  return raw.options;
}

std::vector<std::string> dcrun_flags() {
  Raw raw;
  return long_flags(*make_app(raw));
}

}  // namespace dc::cli
