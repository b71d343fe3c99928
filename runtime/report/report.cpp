#include "runtime/report/report.h"

#include "runtime/plan/extent.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/names.h"
#include "runtime/plan/saved_state.h"
#include "runtime/plan/state_entries.h"
#include "runtime/report/kernel_shares.h"
#include "runtime/report/memory_report.h"

namespace dc::runtime::report {
namespace {

using base::JsonWriter;

void write_parameters(JsonWriter& json, const plan::Plan& plan) {
  const ParameterFacts facts = parameter_facts(plan);
  json.key("parameters").begin_object();
  json.field("count", facts.count).field("elements", facts.elements).field("bytes", facts.bytes);
  json.field("trainable_elements", facts.trainable_elements);
  json.field("resident", facts.resident).field("gathered", facts.gathered);
  json.field("sharded_state", facts.sharded_state);
  json.field("optimizer", plan::name(plan.optimizer.kind));
  json.field("clipped", plan.optimizer.clip);
  json.end_object();
}

void write_kinds(JsonWriter& json, const char* key, const BytesPerKind& bytes) {
  json.key(key).begin_object();
  for (size_t k = 0; k < plan::kSliceKinds; ++k)
    json.field(plan::name(static_cast<plan::SliceKind>(k)), bytes[k]);
  json.end_object();
}

void write_memory(JsonWriter& json, const plan::Plan& plan) {
  const Peak peak = find_peak(plan, plan::Space::Device);
  json.key("memory").begin_object();
  json.key("arena_bytes").begin_object();
  for (size_t i = 0; i < plan.arena_bytes.size(); ++i) {
    json.field(plan::name(static_cast<plan::Space>(i)), plan.arena_bytes[i]);
  }
  json.end_object();
  json.field("library_bytes", plan.prediction.library_bytes);
  json.field("save_copy_bytes", plan::copy_bytes(plan, 0));
  json.field("scratch_is_estimated", scratch_is_estimated(plan));
  write_kinds(json, "kept", kept_bytes(plan));
  json.key("peak").begin_object();
  const plan::Program& program = plan.programs[static_cast<size_t>(peak.program)];
  json.field("bytes", peak.bytes).field("program", program.name).field("index", peak.index);
  const auto index = static_cast<size_t>(peak.index);
  if (index < program.instructions.size()) {
    json.field("op", program.instructions[index].op);
    json.field("module", program.instructions[index].module);
  }
  write_kinds(json, "by_kind", peak.by_kind);
  json.end_object();
  json.end_object();
}

// Of one micro-batch on each rank.
void write_evaluation(JsonWriter& json, const plan::Plan& plan) {
  const plan::Variant* evaluation = plan.variant(plan::Purpose::Evaluate);
  if (evaluation == nullptr) return;
  json.key("evaluation").begin_object();
  json.key("prediction").begin_object();
  write_timing(json, evaluation->prediction);
  json.end_object();
  json.field("peak_bytes", evaluation->prediction.peak_bytes).end_object();
}

void write_prediction(JsonWriter& json, const plan::Plan& plan) {
  const plan::Prediction& p = plan.prediction;
  json.key("prediction").begin_object();
  write_timing(json, p);
  json.end_object();
  json.key("copied_bytes").begin_object();
  json.field("out", p.copied_out_bytes).field("in", p.copied_in_bytes).end_object();
  json.key("wire_bytes").begin_object();
  for (size_t i = 0; i < p.wire_bytes.size(); ++i) {
    json.field(plan::name(static_cast<plan::CollectiveKind>(i)), p.wire_bytes[i]);
  }
  json.end_object();
}

}  // namespace

ParameterFacts parameter_facts(const plan::Plan& plan) {
  ParameterFacts facts;
  for (const plan::Parameter& parameter : plan.parameters) {
    const int64_t elements = plan::element_count(parameter.sizes).value_or(0);
    ++facts.count;
    facts.elements += elements;
    facts.bytes += elements * base::byte_size(parameter.dtype);
    if (parameter.trainable) facts.trainable_elements += elements;
  }
  const plan::ParameterStates states(plan);
  for (size_t i = 0; i < plan.parameters.size(); ++i) {
    ++(states.resident(i) ? facts.resident : facts.gathered);
    const plan::StateEntry& value = plan.state[static_cast<size_t>(states.authoritative(i))];
    if (plan.parameters[i].trainable && plan::flat_shard(value) > 0) ++facts.sharded_state;
  }
  return facts;
}

void write_remark(JsonWriter& json, const base::Remark& remark) {
  json.field("pass", remark.pass).field("code", remark.code);
  json.key("subjects").begin_array();
  for (const base::RemarkSubject& subject : remark.subjects) {
    json.begin_object().field("kind", name(subject.kind)).field("id", subject.id).end_object();
  }
  json.end_array();
  json.key("numbers").begin_object();
  for (const base::RemarkNumber& number : remark.numbers) json.field(number.name, number.value);
  json.end_object();
  json.field("text", remark.text);
}

void write_timing(JsonWriter& json, const plan::Prediction& p) {
  json.field("step_ns", p.step_ns).field("compute_ns", p.compute_ns);
  json.field("communication_ns", p.communication_ns).field("origin", p.origin);
  json.field("copy_ns", p.copy_ns).field("contention_ns", p.contention_ns);
  if (!p.bounds_ns.empty()) {
    json.key("bounds_ns").begin_object();
    for (size_t i = 0; i < plan::kBounds; ++i) json.field(plan::kBoundNames[i], p.bounds_ns[i]);
    json.field("without_norm", p.without_norm_ns).end_object();
  }
  if (!p.figures_ns.empty()) {
    json.key("figures_ns").begin_object();
    for (const FigureShare& share : figure_shares(p)) json.field(share.key, share.time_ns);
    json.end_object();
  }
}

void write_sums(JsonWriter& json, const plan::Plan& plan) {
  json.key("sums").begin_object();
  json.field("reductions", plan::name(plan.sums.reductions)).key("levels").begin_array();
  for (const uint32_t axes : plan.sums.levels) json.string(plan::axes_text(plan, axes));
  json.end_array().field("shards", plan::axes_text(plan, plan.sums.shards)).end_object();
}

bool scratch_is_estimated(const plan::Plan& plan) { return plan.profile_digest.empty(); }

void write_report(JsonWriter& json, const plan::Plan& plan) {
  json.field("plan", plan.name).field("chain", plan.chain).field("world", plan.world());
  json.field("threads", plan.threads).field("accumulation", plan.accumulation);
  write_sums(json, plan);
  json.field("options", plan.options).field("compiler", plan.compiler);
  json.field("model_digest", plan.model_digest).field("profile_digest", plan.profile_digest);
  json.field("options_digest", plan.options_digest);
  write_parameters(json, plan);
  write_kernels(json, plan);
  write_memory(json, plan);
  write_prediction(json, plan);
  write_evaluation(json, plan);
  json.key("remarks").begin_array();
  for (const base::Remark& remark : plan.remarks) {
    json.begin_object();
    write_remark(json, remark);
    json.end_object();
  }
  json.end_array();
  json.key("notes").begin_array();
  for (const std::string& note : plan.notes) json.string(note);
  json.end_array();
}

}  // namespace dc::runtime::report
