#include "cli/scaling_report.h"

#include "cli/table_text.h"
#include "src/base/json_writer.h"
#include "src/base/text.h"

namespace dc::cli {
namespace {

using base::format_bytes;
using base::format_duration;
using driver::Scaling;
using driver::ScalingRow;

std::string of_ranks(const ScalingRow& row) {
  return base::count_of(row.world, "rank") + ", " +
         base::count_of(row.accumulation, "micro-batch") + " per step";
}

std::string budget(const ScalingRow& row, const std::optional<base::Bytes>& bytes) {
  if (!bytes) return "none";
  return row.why.ok() ? "kept" : format_bytes(row.memory.v - bytes->v) + " above";
}

std::string line(const ScalingRow& row, const std::optional<base::Bytes>& bytes) {
  const std::string begin =
      cell(std::to_string(row.world), 5) + cell(std::to_string(row.accumulation), 13);
  if (!row.has_step()) return begin + row.why.code() + ": " + row.why.sentence() + "\n";
  return begin + cell(format_duration(row.step.v), 10) +
         cell(fixed(row.micro_batches_per_second(), 2), 15) +
         cell(fixed(100 * row.efficiency, 1) + " %", 10) +
         cell(format_duration(row.exposed.v), 10) + cell(format_bytes(row.memory.v), 9) +
         budget(row, bytes) + "\n";
}

void write_row(base::JsonWriter& json, const ScalingRow& row) {
  json.begin_object();
  json.field("world", row.world).field("accumulation", row.accumulation);
  if (row.has_step()) {
    json.field("step_ns", row.step.v).field("exposed_ns", row.exposed.v);
    json.field("micro_batches_per_s", row.micro_batches_per_second());
    json.field("efficiency", row.efficiency).field("memory_bytes", row.memory.v);
    json.field("keeps_budget", row.why.ok());
  }
  if (!row.why.ok()) {
    json.key("error").begin_object();
    json.field("code", row.why.code()).field("text", row.why.sentence());
    json.field("exit_code", base::exit_code(row.why.kind()));
    json.end_object();
  }
  json.end_object();
}

}  // namespace

std::string scaling_table(const Scaling& scaling, const std::string& decided) {
  std::string text = "decisions          " + decided + "\n";
  if (scaling.base) {
    text += "efficiency         100 % are " + fixed(scaling.base->micro_batches_per_second(), 2) +
            " micro-batches a second on " + of_ranks(*scaling.base) + ", in " +
            format_duration(scaling.base->step.v) + "\n";
  }
  if (scaling.budget)
    text += "budget             " + format_bytes(scaling.budget->v) + " per rank\n";
  text += cell("world", 5) + cell("micro-batches", 13) + cell("step", 10) +
          cell("micro-batches/s", 15) + cell("efficiency", 10) + cell("exposed", 10) +
          cell("memory", 9) + "budget\n";
  for (const ScalingRow& row : scaling.rows) text += line(row, scaling.budget);
  return text;
}

std::string scaling_json(const Scaling& scaling, const std::string& decided) {
  base::JsonWriter json(1);
  json.begin_object().field("schema", "dcc.scaling/1").field("decisions", decided);
  json.key("budget_bytes");
  scaling.budget ? json.integer(scaling.budget->v) : json.null();
  json.key("base");
  if (scaling.base) {
    write_row(json, *scaling.base);
  } else {
    json.null();
  }
  json.key("rows").begin_array();
  for (const ScalingRow& row : scaling.rows) write_row(json, row);
  return json.end_array().end_object().take() + "\n";
}

}  // namespace dc::cli
