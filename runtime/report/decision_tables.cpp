// Decisions as a table for people and as JSON for programs.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "runtime/plan/names.h"
#include "runtime/report/decisions.h"
#include "src/base/json_writer.h"
#include "src/base/remark_codes.h"
#include "src/base/text.h"

namespace dc::runtime::report {
namespace {

using base::count_of;

constexpr size_t kDecisionRows = 24;  // of the table for people

// Equal decisions about equal things of repeated blocks.
struct DecisionGroup {
  const Decision* like = nullptr;  // the first
  std::string what;                // with * in the place of numbers of blocks
  int64_t count = 0, bytes = 0, time_ns = 0;
  bool time_known = true;
  double price_ns = 0;

  void add(const Decision& d) {
    if (like == nullptr) like = &d;
    ++count;
    bytes += d.bytes;
    price_ns += d.price_ns;
    time_known = time_known && d.time_ns != kUnknownTime;
    time_ns += d.time_ns == kUnknownTime ? 0 : d.time_ns;
  }
};

// "model.layers.11.mlp" as "model.layers.*.mlp".
std::string without_numbers(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins = i == 0 || text[i - 1] == '.';
    size_t end = i;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
    if (begins && end > i && (end == text.size() || text[end] == '.')) {
      out += '*';
      i = end - 1;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string described(const Decision& d) {
  return d.on == DecidedOn::Activation ? without_numbers(d.module) + ": " + d.op
                                       : without_numbers(d.name);
}

std::vector<DecisionGroup> grouped(const std::vector<Decision>& all, bool by_name) {
  std::map<std::tuple<DecidedOn, Decided, plan::Space, std::string, int32_t>, DecisionGroup> groups;
  for (const Decision& d : all) {
    std::string what = by_name ? described(d) : "";
    DecisionGroup& group =
        groups[{d.on, d.decided, d.space, what, by_name ? d.program : int32_t{-1}}];
    group.what = std::move(what);
    group.add(d);
  }
  std::vector<DecisionGroup> result;
  result.reserve(groups.size());
  for (auto& [key, group] : groups) result.push_back(std::move(group));
  std::stable_sort(result.begin(), result.end(),
                   [by_name](const DecisionGroup& a, const DecisionGroup& b) {
                     return by_name ? a.bytes > b.bytes : a.like->on < b.like->on;
                   });
  return result;
}

std::string right_in(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string left_in(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string time_text(double ns) { return base::format_duration(std::llround(ns)); }

std::string decision_place(const Decision& d) {
  const std::string space =
      d.space == plan::Space::Device ? "" : " on " + std::string(plan::name(d.space));
  return std::string(name(d.decided)) + space;
}

std::string decision_row(const DecisionGroup& group, bool has_prices) {
  const Decision& d = *group.like;
  std::string out = left_in(std::string(name(d.on)), 12) + left_in(decision_place(d), 24) +
                    right_in(std::to_string(group.count), 7) +
                    right_in(base::format_bytes(group.bytes), 12) +
                    left_in(holds_bytes(d.decided) ? "  held" : "  free", 8);
  const bool shows_time = group.time_known || group.time_ns > 0;
  out += right_in(shows_time ? time_text(static_cast<double>(group.time_ns)) : "-", 12) +
         left_in(shows_time ? (holds_bytes(d.decided) ? "  saved" : "  spent") : "", 9);
  if (has_prices) out += right_in(time_text(group.price_ns), 12);
  if (!group.what.empty()) out += "  " + group.what;
  return out + "\n";
}

std::string decision_heading(bool has_prices, const char* last) {
  std::string out = left_in("of", 12) + left_in("decided", 24) + right_in("count", 7) +
                    right_in("bytes", 12) + left_in("", 8) + right_in("time", 12) + left_in("", 9);
  if (has_prices) out += right_in("price", 12);
  return out + (*last == '\0' ? "" : std::string("  ") + last) + "\n";
}

const base::Remark* time_weights(const plan::Plan& plan) {
  const auto found =
      std::find_if(plan.remarks.begin(), plan.remarks.end(),
                   [](const base::Remark& remark) { return remark.code == base::kTimeWeights; });
  return found == plan.remarks.end() ? nullptr : &*found;
}

bool is_price(const base::Remark& remark) { return remark.code == base::kBytePrice; }

}  // namespace

std::string decisions_report(const plan::Plan& plan) {
  const std::vector<Decision> all = decisions(plan);
  const base::Remark* weights = time_weights(plan);
  const bool has_prices = weights != nullptr;
  std::string out =
      "bytes: of a rank's device memory, held or left free by the decision; time: of a step, what "
      "doing without would cost,\nor what it costs";
  out += has_prices ? "; price: of these bytes at these instants, in time of the step\n"
                    : "; no prices: none were worked out for this plan\n";
  if (has_prices && !weights->text.empty()) out += weights->text + "\n";
  if (has_prices && weights->text.empty())
    out += "no byte has a price: a byte more would not shorten the bound\n";
  out += "\n" + decision_heading(has_prices, "");
  for (const DecisionGroup& group : grouped(all, false)) out += decision_row(group, has_prices);
  const std::vector<DecisionGroup> groups = grouped(all, true);
  out += "\n" + decision_heading(has_prices, "which");
  for (size_t i = 0; i < std::min(kDecisionRows, groups.size()); ++i)
    out += decision_row(groups[i], has_prices);
  if (groups.size() > kDecisionRows)
    out += count_of(static_cast<int64_t>(groups.size() - kDecisionRows), "smaller group") +
           " left out; --as=decisions-json has all\n";
  return out;
}

std::string decisions_json(const plan::Plan& plan) {
  base::JsonWriter w(1);
  w.begin_object().field("schema", "dcc.decisions/1").field("step_ns", plan.prediction.step_ns);
  w.key("weights");
  if (const base::Remark* weights = time_weights(plan)) {
    w.begin_object();
    for (const base::RemarkNumber& number : weights->numbers) w.field(number.name, number.value);
    w.end_object();
  } else {
    w.null();
  }
  w.key("prices").begin_array();
  for (const base::Remark& remark : plan.remarks) {
    if (!is_price(remark)) continue;
    w.begin_object();
    for (const base::RemarkNumber& number : remark.numbers) w.field(number.name, number.value);
    w.end_object();
  }
  w.end_array();
  w.key("decisions").begin_array();
  for (const Decision& d : decisions(plan)) {
    w.begin_object()
        .field("of", name(d.on))
        .field("decided", name(d.decided))
        .field("name", d.name);
    if (d.on == DecidedOn::Activation) w.field("module", d.module).field("op", d.op);
    if (d.program >= 0)
      w.field("program", d.program).field("runs", d.runs).field("from", d.from).field("to", d.to);
    w.field("space", plan::name(d.space));
    w.field(holds_bytes(d.decided) ? "holds_bytes" : "frees_bytes", d.bytes);
    w.field("times", d.times);
    w.key(holds_bytes(d.decided) ? "saves_ns" : "costs_ns");
    if (d.time_ns == kUnknownTime) {
      w.null();
    } else {
      w.integer(d.time_ns);
    }
    w.key("price_ns");
    if (time_weights(plan) != nullptr) {
      w.integer(std::llround(d.price_ns));
    } else {
      w.null();
    }
    w.end_object();
  }
  w.end_array();
  w.end_object();
  return w.take() + "\n";
}

}  // namespace dc::runtime::report
