#include "cli/dcrun_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <type_traits>

#include "cli/empty_value.h"
#include "cli/numbers.h"
#include "runtime/comm/rendezvous.h"
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
    "Exit codes: 0 done, 64 usage, 65 bad input, 66 missing input, 69 no backend, 70 our bug,\n"
    "73 cannot write, 74 I/O, 75 stopped on request, state saved, 76 plan or world mismatch,\n"
    "77 not permitted, 78 configuration, 80 memory, 81 unsupported, 82 collective timeout,\n"
    "83 a peer died, 84 non-finite number, 128 + N ended by signal N.\n";

// What the text of an option may be, besides what its member's type reads.
namespace limits {
CLI::Validator none() { return CLI::Validator(); }
CLI::Validator ranks() { return CLI::Range(1, 4096); }
CLI::Validator count() { return CLI::Range(int64_t{1}, int64_t{1} << 40); }
CLI::Validator seconds() { return CLI::Range(int64_t{1}, int64_t{1} << 30); }
CLI::Validator amount() { return CLI::Validator(check_amount, ""); }
CLI::Validator seed() { return CLI::Validator(check_seed, ""); }
CLI::Validator communicator() { return CLI::IsMember(runtime::comm::backend_names()); }
CLI::Validator device() {
  return CLI::IsMember(
      std::vector<std::string>(base::kDeviceKinds.begin(), base::kDeviceKinds.end()));
}
}  // namespace limits

CLI::Option* declare(CLI::App& app, bool& member, const char* flag, const char* help) {
  return app.add_flag(flag, member, help);
}
CLI::Option* declare(CLI::App& app, std::vector<std::string>& member, const char* flag,
                     const char* help) {
  return app.add_option(flag, member, help)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}
template <typename T>
CLI::Option* declare(CLI::App& app, std::optional<T>& member, const char* flag, const char* help) {
  return app.add_option_function<T>(
      flag, [&member](const T& value) { member = value; }, help);
}
template <typename T>
CLI::Option* declare(CLI::App& app, T& member, const char* flag, const char* help) {
  CLI::Option* option = app.add_option(flag, member, help);
  return member == T() ? option : option->capture_default_str();  // 0 and "": not given
}

template <typename T>
constexpr bool is_whole_number(const T&) {
  return std::is_integral_v<T> && !std::is_same_v<T, bool>;
}
template <typename T>
constexpr bool is_whole_number(const std::optional<T>&) {
  return std::is_integral_v<T>;
}

std::unique_ptr<CLI::App> make_app(DcrunOptions& options) {
  auto app = std::make_unique<CLI::App>(
      std::string(kExamples) + "\nTrains one compiled plan on all ranks of a job.", "dcrun");
  const auto add = [](CLI::Option* option, const char* value, const CLI::Validator& limits,
                      bool is_whole) {
    if (*value != '\0') option->type_name(value)->check(limits);
    if (is_whole) take_decimal(option);
  };
#define DC_OPTION(member, flag, value, limit, help)                      \
  add(declare(*app, options.member, flag, help), value, limits::limit(), \
      is_whole_number(options.member));
#include "cli/dcrun_options.def"
#undef DC_OPTION
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
  const bool folder = !options.save.empty() && !runtime::train::is_weights_path(options.save);
  if (!folder && (options.save_every > 0 || options.keep > 0)) {
    return usage(std::string(options.keep > 0 ? "--keep" : "--save-every") +
                 " is for checkpoints; give --save a folder");
  }
  if (!folder && options.resume == runtime::train::kLatest) {
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
  constexpr int kFewest = runtime::measure::kFewestSteps;
  if (!options.record_profile.empty() && options.steps < kFewest) {
    return usage("--record-profile needs at least " + std::to_string(kFewest) + " steps, " +
                 std::to_string(runtime::measure::kRecordedWarmup) +
                 " to warm up and the others to measure; give --steps 20");
  }
  return base::ok_status();
}

}  // namespace

Result<DcrunOptions> parse_dcrun_options(int argc, const char* const* argv) {
  DcrunOptions options;
  const auto app = make_app(options);
  try {
    app->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    options.text = app->help();
    return options;
  } catch (const CLI::ExtrasError&) {
    return unknown_arguments(*app);
  } catch (const CLI::ParseError& error) {
    return usage(error.what());
  }
  if (const std::string text = empty_value(*app); !text.empty()) return usage(text);
  if (options.version) {
    options.text = "dcrun of " + std::string(base::build_id()) + "\n";
    return options;
  }
  DC_RETURN_IF_ERROR(check_complete(options));
  return options;
}

std::vector<std::string> dcrun_flags() {
  DcrunOptions options;
  return long_flags(*make_app(options));
}

}  // namespace dc::cli
