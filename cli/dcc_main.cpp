// dcc: command-line parsing. What the commands do is in cli/commands.
#include <malloc.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/empty_value.h"
#include "cli/numbers.h"
#include "runtime/comm/rendezvous.h"
#include "runtime/kernel/cuda/compiler_process.h"
#include "src/base/build_id.h"
#include "src/base/mapped_inputs.h"
#include "src/base/refused.h"
#include "src/base/standard_streams.h"
#include "src/base/text.h"

namespace {

using dc::base::ErrorKind;
using dc::base::Status;

constexpr const char* kFooter =
    "Examples:\n"
    "  dcc profile model.pt2 -n 2 -o prof.json\n"
    "  dcc compile model.pt2 --profile prof.json --world 2 -o plan.dcp\n"
    "\n"
    "Exit codes: 0 ok, 64 usage, 65 bad input, 66 missing input, 69 no backend or peer, 70 bug in "
    "dcc,\n"
    "73 cannot write, 74 I/O, 76 mismatch, 77 not permitted, 78 bad configuration, 80 over the "
    "memory budget,\n"
    "81 unsupported operator; of profile also 82 collective timeout, 83 a peer died, 128 + N ended "
    "by signal N.";

int finish(const Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return dc::base::exit_code(status.kind());
}

// The end of a command's help: each of `lines` as a whole command.
template <typename... Lines>
void example(CLI::App* command, Lines... lines) {
  std::string text = sizeof...(lines) == 1 ? "Example:" : "Examples:";
  for (const char* line : {lines...}) text += std::string("\n  dcc ") + line;
  command->footer(text);
}

void add_dims(CLI::App* sub, std::vector<std::string>& dims) {
  sub->add_option("--dim", dims,
                  "Size of a dim of an archive with dynamic shapes, for example batch=4; once per "
                  "dim, by its name, symbol, or input and position (input_ids.0)")
      ->allow_extra_args(false);
}

// Adds the options of the table (src/driver/compile_options.def), and --zero N for --chain zeroN.
void add_compile_option(CLI::App* sub, dc::driver::CompileOptions& options,
                        const dc::driver::CompileOption& option) {
  const auto read = [&options, &option](const std::string& text) {
    const Status status = option.read(text, options);
    if (!status.ok()) throw CLI::ValidationError(status.sentence());
  };
  CLI::Option* flag = sub->add_option_function<std::string>(std::string(option.flag), read,
                                                            std::string(option.help));
  std::string value(option.value);
  for (const std::string& choice : option.choices) {
    if (&choice == &option.choices.front()) {
      value.clear();
    } else {
      value += '|';
    }
    value += choice;
  }
  flag->type_name(value);
  const std::string preset = option.print(dc::driver::CompileOptions());
  const auto& choices = option.choices;
  if (choices.empty() || std::find(choices.begin(), choices.end(), preset) != choices.end())
    flag->default_str(preset);
}

void add_compile_options(CLI::App* sub, dc::driver::CompileOptions& options) {
  for (const dc::driver::CompileOption& option : dc::driver::compile_options())
    add_compile_option(sub, options, option);
  sub->get_option("--world")->required()->default_str("");
  CLI::Option* chain = sub->get_option("--chain");
  CLI::Option* zero =
      sub->add_option_function<int>(
             "--zero", [&options](int stage) { options.chain = "zero" + std::to_string(stage); },
             "ZeRO stage, 0 to 3: short for --chain zeroN")
          ->check(CLI::Range(0, 3))
          ->excludes(chain);
  dc::cli::take_decimal(zero);
  sub->get_option("--passes")->excludes(chain)->excludes(zero);
}

void add_compile(CLI::App& app, dc::cli::CompileArguments& a) {
  CLI::App* sub = app.add_subcommand("compile", "Compile one training step for a number of ranks");
  example(sub, "compile model.pt2 --profile prof.json --world 2 -o plan.dcp",
          "compile model.pt2 --world 8 --zero 3 --memory 512MiB -o plan.dcp");
  sub->add_option("model", a.model, "Archive written by scripts/export.py")->required();
  sub->add_option("-o,--output", a.output, "Plan to write")->required();
  sub->add_option("--profile", a.profile,
                  "Measurements written by dcc profile; without it a generic CPU is assumed");
  add_compile_options(sub, a.options);
  sub->add_option("--search-time", a.search_time,
                  "Seconds after which --chain auto takes the best so far; not cached")
      ->check(dc::cli::check_amount);
  sub->add_option("--config", a.config, "train.json; overrides what the archive says");
  add_dims(sub, a.dims);
  sub->add_flag("--no-cache", a.no_cache, "Neither read nor write the plan cache");
  sub->add_flag("--json", a.json, "Print the report as JSON");
  sub->add_flag("--verbose", a.verbose, "Also print digests, options and the compiler's version");
}

void add_frontier(CLI::App& app, dc::cli::FrontierArguments& a) {
  CLI::App* sub = app.add_subcommand("frontier", "Step time over memory: what each GiB more buys");
  example(sub, "frontier model.pt2 --profile prof.json --world 32 --memory 40GiB:80GiB",
          "frontier model.pt2 --world 8 --points 12 -o frontier.html --plans plans");
  sub->add_option("model", a.model, "Archive written by scripts/export.py")->required();
  sub->add_option("-o,--output", a.output, "HTML page to write");
  sub->add_option("--plans", a.plans, "Folder for the plans: N.dcp is that of row N");
  sub->add_option("--profile", a.profile,
                  "Measurements written by dcc profile; without it a generic CPU is assumed");
  add_compile_options(sub, a.options);
  sub->remove_option(sub->get_option("--memory"));
  sub->add_option(
         "--memory", a.range,
         "First and last budget of a rank; without FROM the smallest plan that is found, without "
         "TO what the plan without a budget takes")
      ->type_name("FROM:TO");
  dc::cli::take_decimal(sub->add_option("--points", a.points, "Budgets, in equal ratios")
                            ->check(CLI::Range(2, 1000))
                            ->capture_default_str());
  sub->add_option("--config", a.config, "train.json; overrides what the archive says");
  add_dims(sub, a.dims);
  sub->add_flag("--no-cache", a.no_cache, "Neither read nor write the plan cache");
  sub->add_flag("--json", a.json, "Print the table as JSON");
}

void add_profile(CLI::App& app, dc::cli::ProfileArguments& a) {
  CLI::App* sub =
      app.add_subcommand("profile", "Measure a model's kernels and this machine's collectives");
  example(sub, "profile model.pt2 -n 2 -o prof.json",
          "profile model.pt2 -n 2 --offload-dir /scratch -o prof.json",
          "profile model.pt2 -n 8 --device cuda -o prof.json");
  sub->add_option("model", a.model, "Archive written by scripts/export.py")->required();
  sub->add_option("-o,--output", a.output, "prof.json to write")->required();
  CLI::Option* ranks =
      sub->add_option("-n,--ranks", a.ranks, "Start this many ranks on this machine")
          ->check(CLI::Range(1, 4096));
  add_dims(sub, a.dims);
  sub->add_option("--device", a.device, "What is measured: cpu, or cuda: a GPU for each rank")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  sub->add_option("--comm", a.comm, "What carries collectives; auto chooses by host and launcher")
      ->check(CLI::IsMember(dc::runtime::comm::backend_names()))
      ->capture_default_str();
  sub->add_option("--job-key", a.job_key,
                  "File with a secret by which ranks of several hosts recognise each other; or set "
                  "DCRUN_JOB_KEY");
  sub->add_option("--offload-dir", a.offload_dir,
                  "Also measure copies to and from a file in this folder, as plans that offload to "
                  "disk make them");
  CLI::Option* per_host =
      sub->add_option("--ranks-per-host", a.ranks_per_host,
                      "Also measure collectives inside groups of this many ranks and across them "
                      "(default: the ranks of a host, where the launcher names several hosts)")
          ->check(CLI::PositiveNumber);
  CLI::Option* threads = sub->add_option("--threads", a.threads, "Threads per rank")
                             ->check(CLI::Range(1, 1024))
                             ->capture_default_str();
  CLI::Option* fusions =
      sub->add_option(
             "--fusions", a.fusions,
             "Also measure this many fused kernels drawn at random from the model's graph; from "
             "some hundreds on dcc compile learns the time of others from them")
          ->check(CLI::NonNegativeNumber);
  for (CLI::Option* number : {ranks, per_host, threads, fusions}) dc::cli::take_decimal(number);
}

void add_reading(CLI::App& app, dc::cli::InspectArguments& inspect,
                 dc::cli::VerifyArguments& verify) {
  CLI::App* show = app.add_subcommand("inspect", "Show what a plan holds");
  example(show, "inspect plan.dcp", "inspect plan.dcp trace.json --as=timeline -o step.html");
  show->add_option("plan", inspect.plan, "Plan file")->required();
  show->add_option("trace", inspect.trace,
                   "Trace of dcrun, shown next to the prediction; for timeline only");
  show->add_option("--as", inspect.as,
                   "summary, text, json, memory, decisions (a table; decisions-json has all), or "
                   "timeline: an HTML page of the step over time")
      ->check(CLI::IsMember(
          {"summary", "text", "json", "memory", "decisions", "decisions-json", "timeline"}))
      ->capture_default_str();
  show->add_option("-o,--output", inspect.output, "File to write instead of standard output");
  show->add_flag("--verbose", inspect.verbose,
                 "Summary with digests, options and the compiler's version");
  CLI::App* check = app.add_subcommand("verify",
                                       "Check a plan: levels 0 (digest), 1 (structure), 2 (memory, "
                                       "shapes, effects), 3 (order between streams)");
  example(check, "verify plan.dcp");
  check->add_option("plan", verify.plan, "Plan file")->required();
}

void add_explain(CLI::App& app, dc::cli::ExplainArguments& a) {
  CLI::App* sub = app.add_subcommand(
      "explain", "Say what fused kernels and merged collectives consist of, save and delay");
  example(sub, "explain plan.dcp", "explain plan.dcp model.layers.0", "explain plan.dcp 51 --json");
  sub->add_option("plan", a.plan, "Plan file")->required();
  sub->add_option("what", a.what,
                  "Only these: an index of the step's last program, a tensor (%12 or its name), a "
                  "parameter, or a module with all inside it");
  sub->add_flag("--json", a.json, "Print as JSON");
}

void add_simulate(CLI::App& app, dc::cli::SimulateArguments& a) {
  CLI::App* sub = app.add_subcommand(
      "simulate", "Predict a plan's step on another machine or for other numbers of ranks");
  example(sub, "simulate plan.dcp --link 12.5", "simulate plan.dcp --profile other.json --json",
          "simulate plan.dcp --model model.pt2 --world 4,8,16 --profile prof.json",
          "simulate model.pt2 --world 4,8 --grad-accum 1,4 --chain fsdp");
  sub->add_option("plan", a.input, "Plan file; or an archive, compiled for each --world")
      ->required();
  sub->add_option("--profile", a.profile,
                  "Measurements written by dcc profile; without it a generic CPU is assumed");
  add_compile_options(sub, a.options);
  for (const char* replaced : {"--world", "--grad-accum", "--memory"})
    sub->remove_option(sub->get_option(replaced));
  for (CLI::Option* option : sub->get_options()) {
    const std::string name = option->get_name();
    if (name != "--help" && name != "--profile" && name != "--fusion-estimator" &&
        !option->get_positional())
      option->group("For an archive; a plan refuses them");
  }
  sub->add_option("--world", a.worlds, "Numbers of ranks; others than a plan's need --model")
      ->type_name("N,...");
  sub->add_option("--grad-accum", a.accumulations,
                  "Micro-batches per step; others than a plan's need --model")
      ->type_name("N,...");
  sub->add_option("--memory", a.memory, "Device memory per rank, for example 80GiB");
  sub->add_option("--link", a.link, "GB/s that one rank sends in a collective")
      ->check(dc::cli::check_positive);
  sub->add_option("--model", a.model,
                  "Archive that the plan was compiled from: its decisions are applied again for "
                  "each --world and --grad-accum");
  sub->add_option("--config", a.config, "train.json that the plan was compiled with");
  add_dims(sub, a.dims);
  sub->add_flag("--no-cache", a.no_cache, "Neither read nor write the plan cache");
  sub->add_flag("--json", a.json, "Print the report as JSON");
}

void add_calibrate(CLI::App& app, dc::cli::CalibrateArguments& a) {
  CLI::App* sub =
      app.add_subcommand("calibrate", "Correct a profile by one recorded run of a plan");
  example(sub, "calibrate plan.dcp --profile prof.json --recorded run.json -o better.json");
  sub->add_option("plan", a.plan, "Plan that ran")->required();
  sub->add_option("--profile", a.profile, "Measurements written by dcc profile")->required();
  sub->add_option("--recorded", a.recorded, "What dcrun --record-profile wrote in that run")
      ->required();
  sub->add_option("-o,--output", a.output, "Profile to write")->required();
  for (const dc::driver::CompileOption& option : dc::driver::compile_options()) {
    if (option.flag == "--fusion-estimator") add_compile_option(sub, a.options, option);
  }
}

void add_passes(CLI::App& app, dc::cli::OptArguments& a) {
  CLI::App* sub = app.add_subcommand("opt", "Run passes over a .dcir file and print the result");
  example(sub, "opt step.dcir --passes normalize-graph,shard-parameters=2");
  sub->add_option("file", a.file, "Step in text form, - for standard input")->required();
  sub->add_option("--passes", a.passes, "Comma-separated passes")->required();
  example(
      app.add_subcommand(
          "passes", "List the passes, in the order in which they may run, and the named chains"),
      "passes");
}

void add_cache(CLI::App& app, dc::cli::CacheArguments& a) {
  CLI::App* sub = app.add_subcommand(
      "cache", "The plan cache ($DCC_CACHE_DIR, else $XDG_CACHE_HOME/dcc, else ~/.cache/dcc)");
  example(sub, "cache ls", "cache gc --keep 1GiB");
  sub->require_subcommand(1);
  example(sub->add_subcommand("ls", "List cached plans: model, options, last use, size, key"),
          "cache ls");
  CLI::App* collect = sub->add_subcommand("gc", "Remove the least recently used plans and kernels");
  example(collect, "cache gc --keep 1GiB");
  collect->add_option("--keep", a.keep, "Bytes to keep")->capture_default_str();
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

// The error text if the command line names no command or an unknown one, as "unknown command
// 'diff'; ..."; empty if it names a known one.
std::string missing_command(const CLI::App& app, int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word.starts_with("-") || !app.get_subcommands().empty()) return "";
  const std::vector<std::string> names = command_names(app);
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string text = word.empty() ? "no command given" : "unknown command '" + word + "'";
  const std::string close = word.empty() ? "" : dc::base::did_you_mean(word, known);
  if (!close.empty()) return text + close;
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return text + "; the commands are " + list;
}

// CLI11's message, with the nearest known word when an option or a command is misspelt. A value
// that is refused says itself what is wrong.
std::string what_is_wrong(const CLI::App& app, const CLI::App& sub, const CLI::ParseError& error,
                          int argc, char** argv) {
  if (std::string text = missing_command(app, argc, argv); !text.empty()) return text;
  const bool is_of_value = dynamic_cast<const CLI::ValidationError*>(&error) != nullptr ||
                           dynamic_cast<const CLI::ConversionError*>(&error) != nullptr;
  if (is_of_value) return error.what();
  const std::vector<std::string> commands = command_names(sub);
  std::vector<std::string> options;
  for (const CLI::Option* option : sub.get_options()) {
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  }
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::string word(argument.substr(0, argument.find('=')));
    const bool is_option = word.starts_with("-");
    const std::vector<std::string>& names = is_option ? options : commands;
    if (std::find(names.begin(), names.end(), word) != names.end()) continue;
    const std::string hint =
        dc::base::did_you_mean(word, std::vector<std::string_view>(names.begin(), names.end()));
    if (hint.empty()) continue;
    std::string text = is_option ? "unknown option '" : "unknown command '";
    text += word;
    text += "'";
    return text += hint;
  }
  return error.what();
}

int usage_error(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const CLI::App* sub = app.get_subcommands().empty() ? &app : app.get_subcommands().front();
  std::fprintf(stderr, "error[DC2800]: %s\nRun `dcc %s--help` for the options.\n",
               what_is_wrong(app, *sub, error, argc, argv).c_str(),
               sub == &app ? "" : (sub->get_name() + " ").c_str());
  return dc::base::exit_code(ErrorKind::Usage);
}

int run(int argc, char** argv) {
  dc::base::report_lost_inputs("dcc");
  CLI::App app{"dcc: an ahead-of-time compiler for distributed training"};
  app.footer(kFooter);
  app.set_version_flag("--version", std::string(dc::base::build_id()));
  app.require_subcommand(1);
  dc::cli::CompileArguments compile;
  dc::cli::FrontierArguments frontier;
  dc::cli::ProfileArguments profile;
  dc::cli::InspectArguments inspect;
  dc::cli::ExplainArguments explain;
  dc::cli::VerifyArguments verify;
  dc::cli::SimulateArguments simulate;
  dc::cli::CalibrateArguments calibrate;
  dc::cli::OptArguments opt;
  dc::cli::CacheArguments cache;
  add_compile(app, compile);
  add_frontier(app, frontier);
  add_profile(app, profile);
  add_reading(app, inspect, verify);
  add_explain(app, explain);
  add_simulate(app, simulate);
  add_calibrate(app, calibrate);
  add_passes(app, opt);
  add_cache(app, cache);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return usage_error(app, error, argc, argv);
  }
  if (const std::string text = dc::cli::empty_value(app); !text.empty()) {
    std::fprintf(stderr, "error[DC2800]: %s\n", text.c_str());
    return dc::base::exit_code(ErrorKind::Usage);
  }
  const CLI::App* chosen = app.get_subcommands().front();
  const std::string& name = chosen->get_name();
  if (name == "compile") return finish(dc::cli::run_compile(compile));
  if (name == "frontier") return finish(dc::cli::run_frontier(frontier));
  if (name == "profile") return dc::cli::run_profile(profile, argc, argv);
  if (name == "inspect") return finish(dc::cli::run_inspect(inspect));
  if (name == "explain") return finish(dc::cli::run_explain(explain));
  if (name == "verify") return finish(dc::cli::run_verify(verify));
  if (name == "simulate") return finish(dc::cli::run_simulate(simulate));
  if (name == "calibrate") return finish(dc::cli::run_calibrate(calibrate));
  if (name == "opt") return finish(dc::cli::run_opt(opt));
  if (name == "passes") return finish(dc::cli::run_passes_list());
  if (chosen->get_subcommands().front()->get_name() == "ls")
    return finish(dc::cli::run_cache_list());
  return finish(dc::cli::run_cache_collect(cache));
}

}  // namespace

int main(int argc, char** argv) {
  if (dc::runtime::kernel::cuda::serve_compiler(argc, argv)) return 0;
  // Blocks of 1 MiB and more go back to the system when they are freed. By default glibc raises
  // this limit with each one freed, and a compilation's peak is then a tenth above what it uses.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  dc::base::open_standard_streams();
  signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error like a full disk
  try {
    const int code = run(argc, argv);
    return code != 0 ? code : finish(dc::base::check_standard_output());
  } catch (const std::exception& error) {
    return finish(dc::base::refused(error));
  }
}
