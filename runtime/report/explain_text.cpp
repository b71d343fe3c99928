// The two forms of an explanation: for people and for programs.
#include "runtime/plan/names.h"
#include "runtime/report/explain.h"
#include "src/base/json_writer.h"
#include "src/base/text.h"

namespace dc::runtime::report {
namespace {

using base::count_of;

std::string place(const plan::Plan& plan, int32_t program, int32_t index) {
  return "program '" + plan.programs[static_cast<size_t>(program)].name + "' [" +
         std::to_string(index) + "]";
}

std::string shown_tensor(const plan::Plan& plan, int32_t tensor) {
  const std::string& name = plan.tensors[static_cast<size_t>(tensor)].name;
  return "%" + std::to_string(tensor) + (name.empty() ? "" : " " + name);
}

std::string in_module(const std::string& module) { return module.empty() ? "" : " in " + module; }

std::string text_of(const plan::Plan& plan, const ExplainedFusion& fusion) {
  std::string text = place(plan, fusion.program, fusion.index) + ": " +
                     std::to_string(fusion.operations.size()) + " operators are one kernel" +
                     in_module(fusion.module) + ", " + std::string(plan::name(fusion.phase)) +
                     "; saves " + count_of(fusion.launches_saved, "kernel") + " and " +
                     base::format_bytes(fusion.bytes_saved) + " moved";
  if (fusion.predicted_ns > 0) text += "; predicted " + base::format_duration(fusion.predicted_ns);
  if (fusion.predicted_ns > 0 && fusion.origin != plan::FigureOrigin::Unknown)
    text += " (" + std::string(plan::name(fusion.origin)) + ")";
  text += "\n";
  for (const FusedOperation& operation : fusion.operations)
    text += "  " + operation.text + (operation.is_stored ? "  stored" : "") + "\n";
  return text;
}

std::string text_of(const plan::Plan& plan, const ExplainedMerge& merge) {
  std::string text = place(plan, merge.program, merge.index) + ": " +
                     std::to_string(merge.members.size()) + " values travel in one " +
                     std::string(plan::name(merge.collective));
  if (merge.ends_ns > 0) {
    text += ", predicted from " + base::format_duration(merge.begins_ns) + " to " +
            base::format_duration(merge.ends_ns);
  }
  text += "\n";
  for (size_t i = 0; i < merge.members.size(); ++i) {
    const ExplainedMember& member = merge.members[i];
    text += "  " + shown_tensor(plan, member.tensor) + ", " + base::format_bytes(member.bytes);
    if (member.made_at >= 0)
      text += ", made by [" + std::to_string(member.made_at) + "]" + in_module(member.module);
    if (static_cast<int32_t>(i) == merge.last) {
      text += ": the last";
    } else if (merge.ends_ns > 0) {
      text += ": waits " + base::format_duration(member.waits_ns) + " for the last";
    }
    text += "\n";
  }
  return text;
}

void write_ids(base::JsonWriter& json, std::string_view key, const std::vector<int32_t>& ids) {
  json.key(key).begin_array();
  for (const int32_t id : ids) json.integer(id);
  json.end_array();
}

void write(base::JsonWriter& json, const ExplainedFusion& fusion) {
  json.begin_object();
  json.field("program", fusion.program).field("index", fusion.index);
  json.field("module", fusion.module).field("phase", plan::name(fusion.phase));
  write_ids(json, "operands", fusion.operands);
  write_ids(json, "results", fusion.results);
  json.key("operations").begin_array();
  for (const FusedOperation& operation : fusion.operations) {
    json.begin_object();
    json.field("text", operation.text).field("stored", operation.is_stored).end_object();
  }
  json.end_array();
  json.field("launches_saved", fusion.launches_saved).field("bytes_saved", fusion.bytes_saved);
  json.field("predicted_ns", fusion.predicted_ns);
  json.field("predicted_from", plan::name(fusion.origin)).end_object();
}

void write(base::JsonWriter& json, const ExplainedMerge& merge) {
  json.begin_object();
  json.field("program", merge.program).field("index", merge.index);
  json.field("collective", plan::name(merge.collective));
  json.field("begins_ns", merge.begins_ns).field("ends_ns", merge.ends_ns);
  json.field("last", merge.last);
  json.key("members").begin_array();
  for (const ExplainedMember& member : merge.members) {
    json.begin_object();
    json.field("tensor", member.tensor).field("module", member.module);
    json.field("made_at", member.made_at).field("made_ns", member.made_ns);
    json.field("waits_ns", member.waits_ns).field("bytes", member.bytes).end_object();
  }
  json.end_array().end_object();
}

}  // namespace

std::string to_text(const plan::Plan& plan, const Explanation& explanation) {
  if (explanation.fusions.empty() && explanation.merges.empty())
    return explanation.asked + ": no fused kernels and no collectives of several values\n";
  int64_t operators = 0, kernels = 0, bytes = 0, buffers = 0;
  for (const ExplainedFusion& fusion : explanation.fusions) {
    operators += static_cast<int64_t>(fusion.operations.size());
    kernels += fusion.launches_saved;
    bytes += fusion.bytes_saved;
  }
  for (const ExplainedMerge& merge : explanation.merges)
    buffers += static_cast<int64_t>(merge.members.size());
  std::string text = std::to_string(operators) + " operators are " +
                     count_of(static_cast<int64_t>(explanation.fusions.size()), "fused kernel") +
                     ": " + count_of(kernels, "kernel") + " and " + base::format_bytes(bytes) +
                     " moved are saved in one run of each program; " + std::to_string(buffers) +
                     " values travel in " +
                     count_of(static_cast<int64_t>(explanation.merges.size()), "collective") + "\n";
  for (const ExplainedFusion& fusion : explanation.fusions) text += text_of(plan, fusion);
  for (const ExplainedMerge& merge : explanation.merges) text += text_of(plan, merge);
  return text;
}

std::string to_json(const plan::Plan& plan, const Explanation& explanation) {
  base::JsonWriter json(1);
  json.begin_object().field("schema", "dcc.explain/1").field("plan", plan.name);
  json.key("fusions").begin_array();
  for (const ExplainedFusion& fusion : explanation.fusions) write(json, fusion);
  json.end_array();
  json.key("merges").begin_array();
  for (const ExplainedMerge& merge : explanation.merges) write(json, merge);
  json.end_array();
  return json.end_object().take() + "\n";
}

}  // namespace dc::runtime::report
