#include "cli/frontier_report.h"

#include <algorithm>
#include <array>
#include <set>

#include "cli/table_text.h"
#include "runtime/report/decisions.h"
#include "src/base/json_writer.h"
#include "src/base/text.h"

namespace dc::cli {
namespace {

using base::format_bytes;
using base::format_duration;
using base::Nanos;

using runtime::report::Decided;
using runtime::report::DecidedOn;
using runtime::report::Decision;

constexpr auto kInWords =
    base::enum_names<DecidedOn>({"parameters", "activations", "optimizer state"});

std::string count(size_t things, const char* one, const char* several) {
  return std::to_string(things) + " " + (things == 1 ? one : several);
}

// "414 activations made again (23.05 ms), 368 of 724 parameters whole (8.4 GiB)"
std::string decided(const runtime::plan::Plan& plan) {
  std::set<std::string> whole;
  std::array<int64_t, kInWords.size()> away_bytes{};
  int64_t whole_bytes = 0, again_ns = 0;
  size_t again = 0;
  for (const Decision& one : runtime::report::decisions(plan)) {
    if (one.decided == Decided::MadeAgain) {
      ++again;
      again_ns += std::max<int64_t>(0, one.time_ns);
    } else if (one.decided == Decided::Away || one.decided == Decided::UpdatedThere) {
      away_bytes[static_cast<size_t>(one.on)] += one.bytes;
    } else if (one.on == DecidedOn::Parameter && one.decided != Decided::PerUse) {
      // Of several programs that keep it each has its own.
      if (whole.insert(one.name).second) whole_bytes += one.bytes;
    }
  }
  std::string text;
  if (again > 0)
    text += ", " + count(again, "activation", "activations") + " made again (" +
            format_duration(again_ns) + ")";
  if (!whole.empty())
    text += ", " + std::to_string(whole.size()) + " of " +
            count(plan.parameters.size(), "parameter", "parameters") + " whole (" +
            format_bytes(whole_bytes) + ")";
  for (size_t on = 0; on < away_bytes.size(); ++on) {
    if (away_bytes[on] > 0)
      text +=
          ", " + format_bytes(away_bytes[on]) + " of " + std::string(kInWords[on]) + " offloaded";
  }
  return text.empty() ? "nothing made again, kept whole or offloaded" : text.substr(2);
}

}  // namespace

std::string saving(const FrontierRow& before, const FrontierRow& row) {
  const int64_t more = (row.budget - before.budget).v;
  if (more <= 0 || row.saved.v <= 0) return "-";
  int64_t unit = 1;
  const char* name = "byte";
  for (const auto& [bytes, larger] :
       {std::pair(int64_t{1} << 10, "KiB"), std::pair(int64_t{1} << 20, "MiB"),
        std::pair(int64_t{1} << 30, "GiB")}) {
    if (more < bytes) break;
    unit = bytes;
    name = larger;
  }
  const double each =
      static_cast<double>(row.saved.v) * static_cast<double>(unit) / static_cast<double>(more);
  return format_duration(static_cast<int64_t>(each)) + " per " + name;
}

std::vector<FrontierRow> frontier_rows(const driver::Frontier& frontier) {
  std::vector<FrontierRow> rows;
  const driver::FrontierPoint* before = nullptr;
  for (const driver::FrontierPoint& point : frontier.points) {
    const runtime::plan::Plan& plan = frontier.plans[point.plan].plan;
    FrontierRow row{point.budget,
                    driver::device_memory(plan),
                    driver::step_time(plan),
                    point.bound,
                    {},
                    decided(plan),
                    plan.passes};
    if (before) {
      row.saved = rows.back().time - row.time;
      row.is_new = point.plan != before->plan;
    }
    rows.push_back(std::move(row));
    before = &point;
  }
  return rows;
}

std::string frontier_table(const std::vector<FrontierRow>& rows) {
  std::string text = cell("budget", 9) + cell("taken", 9) + cell("step", 9) + cell("bound", 9) +
                     cell("step/bound", 10) + cell("time saved", 18) + "decided\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    const FrontierRow& row = rows[i];
    std::string bound = "-", over = "-";
    if (row.bound.v > 0) {
      bound = format_duration(row.bound.v);
      over = fixed(static_cast<double>(row.time.v) / static_cast<double>(row.bound.v), 3);
    }
    text += cell(format_bytes(row.budget.v), 9) + cell(format_bytes(row.memory.v), 9) +
            cell(format_duration(row.time.v), 9) + cell(bound, 9) + cell(over, 10) +
            cell(i > 0 ? saving(rows[i - 1], row) : "-", 18) +
            (row.is_new ? row.decided : "the plan above") + "\n";
  }
  return text;
}

std::string begins_later(base::Bytes too_small, const FrontierRow& first) {
  return "no schedule was found that keeps " + std::to_string(too_small.v) + " bytes (" +
         format_bytes(too_small.v) + "); the frontier begins at " + std::to_string(first.budget.v) +
         " bytes (" + format_bytes(first.budget.v) +
         "), the memory of the smallest plan that was found";
}

std::string frontier_json(const std::vector<FrontierRow>& rows,
                          const std::optional<base::Bytes>& too_small) {
  base::JsonWriter json(1);
  json.begin_object().field("schema", "dcc.frontier/1");
  if (too_small) json.field("too_small_bytes", too_small->v);
  json.key("points").begin_array();
  for (const FrontierRow& row : rows) {
    json.begin_object();
    json.field("budget_bytes", row.budget.v).field("memory_bytes", row.memory.v);
    json.field("step_ns", row.time.v);
    json.key("bound_ns");
    row.bound.v > 0 ? json.integer(row.bound.v) : json.null();
    json.field("saved_ns", row.saved.v);
    json.field("decided", row.decided).field("passes", row.passes).field("is_new", row.is_new);
    json.end_object();
  }
  return json.end_array().end_object().take() + "\n";
}

}  // namespace dc::cli
