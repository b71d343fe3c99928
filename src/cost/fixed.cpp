#include "src/cost/fixed.h"

#include <charconv>
#include <limits>
#include <optional>
#include <span>

namespace dc::cost {
namespace {

using base::ErrorKind;
using base::Status;

struct Unit {
  std::string_view name;
  int64_t factor;
};
constexpr Unit kTimes[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
constexpr Unit kSizes[] = {{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<int64_t> parse_quantity(std::string_view text, std::span<const Unit> units) {
  text = trim(text);
  int64_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  for (const Unit& known : units) {
    if (known.name != unit) continue;
    if (number > std::numeric_limits<int64_t>::max() / known.factor) return std::nullopt;
    return number * known.factor;
  }
  return std::nullopt;
}

Status bad(std::string_view part) {
  return Status(ErrorKind::BadConfig, "DC7020",
                "'" + std::string(part) +
                    "' is not a cost; write fixed(mm=200us, all_gather=150us) or, with scratch, "
                    "mm=200us+64KiB");
}

// "mm" of "aten.mm.default", "adamw" of "dc.adamw"
std::string_view short_name(std::string_view op) {
  for (const std::string_view start : {"aten.", "dc."}) {
    if (!op.starts_with(start)) continue;
    op.remove_prefix(start.size());
    return op.substr(0, op.find('.'));
  }
  return op;
}

}  // namespace

const FixedCost::Entry* FixedCost::find(std::string_view op) const {
  for (const Entry& entry : entries_) {
    if (entry.op == op) return &entry;
  }
  for (const Entry& entry : entries_) {
    if (entry.op == short_name(op)) return &entry;
  }
  return nullptr;
}

Estimate FixedCost::kernel_time(const base::KernelSignature& kernel) const {
  const Entry* entry = find(kernel.op());
  return {entry ? entry->time : base::Nanos{}, Source::Measured};
}

Scratch FixedCost::kernel_scratch(const base::KernelSignature& kernel) const {
  const Entry* entry = find(kernel.op());
  return {entry ? entry->scratch : base::Bytes{}, Source::Measured};
}

Estimate FixedCost::collective(Collective kind, base::Bytes, Group group) const {
  const std::string name(base::name(kind));
  const Entry* entry = nullptr;
  if (group.level != Level::World) entry = find(name + "_" + std::string(base::name(group.level)));
  if (entry == nullptr) entry = find(name);
  return {entry ? entry->time : base::Nanos{}, Source::Measured};
}

base::Nanos FixedCost::latency(Collective, Group) const {
  const Entry* entry = find("latency");
  return entry ? entry->time : base::Nanos{};
}

Estimate FixedCost::copy(base::Bytes, ir::Space, ir::Space) const {
  const Entry* entry = find("copy");
  return {entry ? entry->time : base::Nanos{}, Source::Measured};
}

base::Result<FixedCost> parse_fixed_cost(std::string_view text) {
  std::string_view rest = trim(text);
  if (!rest.starts_with("fixed(") || !rest.ends_with(")")) return bad(text);
  rest = rest.substr(6, rest.size() - 7);
  std::vector<FixedCost::Entry> entries;
  while (!trim(rest).empty()) {
    size_t comma = rest.find(',');
    std::string_view part = trim(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    size_t equals = part.find('='), plus = part.find('+');
    if (equals == std::string_view::npos || trim(part.substr(0, equals)).empty()) return bad(part);
    auto time = parse_quantity(
        part.substr(equals + 1, plus == std::string_view::npos ? plus : plus - equals - 1), kTimes);
    std::optional<int64_t> scratch = 0;
    if (plus != std::string_view::npos) scratch = parse_quantity(part.substr(plus + 1), kSizes);
    if (!time || !scratch) return bad(part);
    entries.push_back({std::string(trim(part.substr(0, equals))), {*time}, {*scratch}});
  }
  return FixedCost(std::move(entries));
}

}  // namespace dc::cost
