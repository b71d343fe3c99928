#include "src/driver/compile_options.h"

#include <array>
#include <charconv>

#include "src/base/enum_names.h"
#include "src/base/text.h"

namespace dc::driver {

using base::ErrorKind;
using base::Status;

namespace {

// Names of an enum's values, in the order of its enumerators; an optional one may also be empty.
template <typename Enum>
struct Words;
template <>
struct Words<passes::ReductionOrder> {
  static constexpr auto names =
      base::enum_names<passes::ReductionOrder>({"by-stage", "per-step", "per-micro-batch", "auto"});
  static constexpr size_t first_choice = 1;  // by-stage is what holds without the flag
};
template <>
struct Words<passes::Recompute> {
  static constexpr auto names = base::enum_names<passes::Recompute>({"auto", "off", "full"});
  static constexpr size_t first_choice = 0;
};
template <>
struct Words<passes::Providers> {
  static constexpr auto names = base::enum_names<passes::Providers>({"aten", "native", "any"});
  static constexpr size_t first_choice = 0;
};

struct DTypeChoice {
  ir::DType value;
  const char* name;
};
constexpr DTypeChoice kReduceDTypes[] = {{ir::DType::F32, "float32"},
                                         {ir::DType::BF16, "bfloat16"}};

// What each type of member reads and prints. False: no such value.
bool read(std::string_view text, int& to) {
  const auto end = text.data() + text.size();
  return std::from_chars(text.data(), end, to) == std::from_chars_result{end, {}};
}
std::string print(int value) { return std::to_string(value); }

bool read(std::string_view text, std::optional<int>& to) {
  int number = 0;
  if (!read(text, number)) return false;
  to = number;
  return true;
}
std::string print(const std::optional<int>& value) { return value ? print(*value) : ""; }

bool read(std::string_view text, std::string& to) {
  to = text;
  return true;
}
std::string print(const std::string& value) { return value; }

bool read(std::string_view text, EarlierPlan& to) {
  to = {std::string(text), {}, {}, {}};
  return !text.empty();
}
std::string print(const EarlierPlan& value) {
  return value.digest.empty() ? value.file : value.digest;
}

bool read(std::string_view text, FusedEstimate& to) {
  to = {std::string(text), {}, {}};
  return !text.empty();
}
std::string print(const FusedEstimate& value) {
  return value.digest.empty() ? value.choice : value.digest;
}

bool read(std::string_view text, std::optional<base::Bytes>& to) {
  const std::optional<int64_t> bytes = base::parse_bytes(text);
  if (bytes) to = base::Bytes{*bytes};
  return bytes.has_value();
}
std::string print(const std::optional<base::Bytes>& value) {
  return value ? std::to_string(value->v) : "";
}

template <typename Choice, size_t count, typename Value>
bool read_choice(const Choice (&choices)[count], std::string_view text, std::optional<Value>& to) {
  for (const Choice& choice : choices) {
    if (choice.name != text) continue;
    to = choice.value;
    return true;
  }
  return false;
}
template <typename Choice, size_t count, typename Value>
std::string print_choice(const Choice (&choices)[count], const std::optional<Value>& value) {
  for (const Choice& choice : choices) {
    if (value == choice.value) return choice.name;
  }
  return "";
}
bool read(std::string_view text, std::optional<ir::DType>& to) {
  return read_choice(kReduceDTypes, text, to);
}
std::string print(const std::optional<ir::DType>& value) {
  const std::string choice = print_choice(kReduceDTypes, value);
  return choice.empty() && value ? std::string(base::name(*value)) : choice;
}
// Where something can be offloaded to: not the device.
bool read(std::string_view text, std::optional<ir::Space>& to) {
  const auto space = base::enum_value<ir::Space>(base::kSpaceNames, text);
  if (!space || *space == ir::Space::Device) return false;
  to = space;
  return true;
}
std::string print(const std::optional<ir::Space>& value) {
  return value ? std::string(base::name(*value)) : "";
}

// All kinds; the choices leave out what is for developers.
bool read(std::string_view text, std::optional<base::DeviceKind>& to) {
  const auto kind = base::device_kind(text);
  if (kind) to = kind;
  return kind.has_value();
}
std::string print(const std::optional<base::DeviceKind>& value) {
  return value ? std::string(base::name(*value)) : "";
}

template <typename Enum>
bool read(std::string_view text, Enum& to) {
  using W = Words<Enum>;
  for (size_t i = W::first_choice; i < W::names.size(); ++i) {
    if (W::names[i] != text) continue;
    to = static_cast<Enum>(i);
    return true;
  }
  return false;
}
template <typename Enum>
requires std::is_enum_v<Enum> std::string print(Enum value) {
  return std::string(Words<Enum>::names[static_cast<size_t>(value)]);
}

// What --help offers.
std::vector<std::string> choices_of(const std::optional<ir::DType>&) {
  return {kReduceDTypes[0].name, kReduceDTypes[1].name};
}
std::vector<std::string> choices_of(const std::optional<ir::Space>&) {
  return {base::kSpaceNames.begin() + 1, base::kSpaceNames.end()};
}
std::vector<std::string> choices_of(const std::optional<base::DeviceKind>&) {
  return {std::string(base::name(base::DeviceKind::Cpu)),
          std::string(base::name(base::DeviceKind::Cuda))};
}
template <typename T>
std::vector<std::string> choices_of(const T&) {
  std::vector<std::string> choices;
  if constexpr (std::is_enum_v<T>) {
    for (size_t i = Words<T>::first_choice; i < Words<T>::names.size(); ++i)
      choices.emplace_back(Words<T>::names[i]);
  }
  return choices;
}

Status unreadable(std::string_view flag, std::string_view text, std::string_view value,
                  const std::vector<std::string>& choices) {
  std::string wanted = value == "BYTES" ? "a number of bytes; write 100000000, 512MiB or 2G"
                       : value == "PLAN" || value == "FILE" ? "a file"
                                                            : "a whole number";
  for (const std::string& choice : choices) {
    if (&choice == &choices.front()) {
      wanted = "one of ";
    } else {
      wanted += ", ";
    }
    wanted += choice;
  }
  return Status(ErrorKind::Usage, "DC2812",
                std::string(flag) + ": '" + std::string(text) + "' is not " + wanted);
}

std::vector<CompileOption> make_table() {
  const CompileOptions defaults;
  return {
#define DC_OPTION(member, flag, value, help)                                 \
  {flag,                                                                     \
   value,                                                                    \
   help,                                                                     \
   choices_of(defaults.member),                                              \
   [](std::string_view text, CompileOptions& options) {                      \
     return read(text, options.member)                                       \
                ? Status()                                                   \
                : unreadable(flag, text, value, choices_of(options.member)); \
   },                                                                        \
   [](const CompileOptions& options) { return print(options.member); }},
#include "src/driver/compile_options.def"
#undef DC_OPTION
  };
}

}  // namespace

std::span<const CompileOption> compile_options() {
  static const std::vector<CompileOption> table = make_table();
  return table;
}

std::string CompileOptions::canonical() const {
  std::string text;
  for (const CompileOption& option : compile_options()) {
    const std::string value = option.print(*this);
    if (!value.empty()) text += std::string(option.name()) + "=" + value + " ";
  }
  if (!device) return text + "device=" + std::string(base::name(device_kind()));
  text.pop_back();
  return text;
}

Status check(const CompileOptions& options) {
  const auto bad = [](const std::string& what) { return Status(ErrorKind::Usage, "DC2801", what); };
  if (options.world < 1 || options.world > kMaxWorld)
    return bad("--world must be between 1 and 65536");
  if (options.accumulation < 1 || options.accumulation > base::kMaxMicroBatches)
    return bad("--grad-accum must be between 1 and 65536");
  if (options.threads < 1 || options.threads > 1024)
    return bad("--threads must be between 1 and 1024");
  if (options.passes.reduction_order == passes::ReductionOrder::Any &&
      (options.chain != "auto" || !options.own_passes.empty()))
    return bad("--reduction-order auto needs --chain auto: a chain by name does not choose");
  const bool starts = !options.start_from.file.empty() || !options.start_from.digest.empty();
  if (starts && (options.chain != "auto" || !options.own_passes.empty()))
    return bad("--start-from needs --chain auto: a chain by name does not search");
  if (options.passes.ranks_per_host.value_or(1) < 1)
    return bad("--ranks-per-host must be at least 1");
  if (options.search_effort.value_or(1) < 1)
    return bad(
        "--search-effort must be at least 1; give how many schedules it may take the work of");
  for (const ir::Space space : {ir::Space::Device, ir::Space::Host, ir::Space::Disk}) {
    const std::optional<base::Bytes>& budget = options.passes.budgets[space];
    if (budget && budget->v < 1)
      return bad("a budget of 0 bytes for the " + std::string(base::name(space)) +
                 " keeps nothing; give more, or leave it out");
  }
  if (options.reduce_dtype && *options.reduce_dtype != ir::DType::F32 &&
      *options.reduce_dtype != ir::DType::BF16) {
    return bad("--reduce-dtype must be float32 or bfloat16");
  }
  return {};
}

}  // namespace dc::driver
