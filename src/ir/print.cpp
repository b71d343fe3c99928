// Text of a step: tables first, programs after them. Defaults are omitted.
#include "src/ir/enum_words.h"
#include "src/ir/print_graph.h"
#include "src/ir/step.h"
#include "src/ir/text_format.h"

namespace dc::ir {
namespace {

template <typename Enum>
void add_word(std::string& out, std::string_view key, Enum value, Enum fallback) {
  if (value != fallback) out.append(" ").append(key).append("=").append(word(value));
}

void add_int(std::string& out, std::string_view key, int64_t value, int64_t fallback) {
  if (value != fallback) out.append(" ").append(key).append("=").append(std::to_string(value));
}

void add_double(std::string& out, std::string_view key, double value, double fallback) {
  if (value != fallback) out.append(" ").append(key).append("=").append(format_double(value));
}

void add_flag(std::string& out, std::string_view key, bool value) {
  if (value) out.append(" ").append(key);
}

std::string format_initializer(const Initializer& init) {
  std::string out;
  const bool has_numbers = init.a != 0 || init.b != 0;
  if (init.kind != InitKind::Unknown || has_numbers) out += " init=" + std::string(word(init.kind));
  if (has_numbers) out += "(" + format_double(init.a) + "," + format_double(init.b) + ")";
  if (init.zero_row >= 0) out += " zero_row=" + std::to_string(init.zero_row);
  return out;
}

// The archive's tensor usually has the type of the table row; only a difference is printed.
std::string format_record(const ArchiveRecord& record, DType dtype, const Shape& shape) {
  std::string out;
  if (!record.entry.empty()) out += " archive=" + quoted(record.entry);
  TensorType type;
  type.dtype = record.dtype;
  type.shape = record.shape;
  type.strides = record.strides;
  type.offset = record.offset;
  const TensorType expected = record.entry.empty() ? TensorType{} : contiguous(dtype, shape);
  if (!(type == expected)) out += " archive_type(" + format_type(type, Mesh{}) + ")";
  return out;
}

std::string format_bytes_hex(const std::vector<uint8_t>& bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (uint8_t byte : bytes) {
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
  return out;
}

void print_input(const InputSpec& input, const Mesh& mesh, std::string& out) {
  out += "  input " + quoted(input.name) + " : " + format_type(input.type, mesh);
  add_word(out, "role", input.role, InputRole::Float);
  if (input.low != 0 || input.high != 1) {
    out += " range=(" + format_double(input.low) + "," + format_double(input.high) + ")";
  }
  add_flag(out, "next", input.next);
  add_flag(out, "guessed", input.guessed);
  if (input.ignored != base::kIgnoredLabel) out += " ignored=" + std::to_string(input.ignored);
  out += "\n";
}

void print_parameter(const Parameter& parameter, std::string& out) {
  const Parameter fallback;
  TensorType type = contiguous(parameter.dtype, parameter.shape);
  out += "  parameter " + quoted(parameter.fqn) + " : " + format_type(type, Mesh{});
  add_flag(out, "frozen", !parameter.trainable);
  add_word(out, "placement", parameter.placement, fallback.placement);
  add_word(out, "gradient", parameter.gradient, fallback.gradient);
  add_word(out, "state", parameter.state, fallback.state);
  add_int(out, "group", parameter.group, 0);
  add_int(out, "shard", parameter.shard, 0);
  out += format_initializer(parameter.initializer);
  out += format_record(parameter.record, parameter.dtype, parameter.shape);
  for (const std::string& alias : parameter.aliases) out += " alias=" + quoted(alias);
  out += "\n";
}

void print_buffer(const Buffer& buffer, const Mesh& mesh, std::string& out) {
  out += "  buffer " + quoted(buffer.fqn) + " : " + format_type(buffer.type, mesh);
  add_flag(out, "transient", !buffer.persistent);
  add_flag(out, "constant", buffer.is_constant);
  out += format_initializer(buffer.initializer);
  out += format_record(buffer.record, buffer.type.dtype, buffer.type.shape);
  if (!buffer.data.empty()) out += " data=\"" + format_bytes_hex(buffer.data) + "\"";
  out += "\n";
}

void print_group(const OptimizerGroup& group, std::string& out) {
  const OptimizerGroup fallback;
  out += "    group " + quoted(group.match);
  add_double(out, "lr", group.lr, fallback.lr);
  add_double(out, "weight_decay", group.weight_decay, fallback.weight_decay);
  add_double(out, "beta1", group.beta1, fallback.beta1);
  add_double(out, "beta2", group.beta2, fallback.beta2);
  add_double(out, "eps", group.eps, fallback.eps);
  add_double(out, "momentum", group.momentum, fallback.momentum);
  add_double(out, "dampening", group.dampening, fallback.dampening);
  add_flag(out, "nesterov", group.nesterov);
  out += "\n";
}

void print_optimizer(const Optimizer& optimizer, std::string& out) {
  const Optimizer fallback;
  std::string head;
  add_flag(head, "clip", optimizer.clip);
  add_double(head, "clip_norm", optimizer.clip_norm, fallback.clip_norm);
  if (optimizer.seed != 0) head += " seed=" + std::to_string(optimizer.seed);
  add_word(head, "schedule", optimizer.schedule, fallback.schedule);
  add_int(head, "warmup", optimizer.warmup_steps, 0);
  add_int(head, "total", optimizer.total_steps, 0);
  add_double(head, "final_lr", optimizer.final_lr_fraction, 0);
  std::string groups, default_group;
  for (const OptimizerGroup& group : optimizer.groups) print_group(group, groups);
  print_group(OptimizerGroup{}, default_group);
  const bool default_groups = groups == default_group;
  if (optimizer.kind == fallback.kind && head.empty() && default_groups) return;
  out += "  optimizer " + std::string(word(optimizer.kind)) + head;
  out += default_groups ? "\n" : " {\n" + groups + "  }\n";
}

std::string parameter_reference(const Step& step, int index) {
  const auto i = static_cast<size_t>(index);
  if (index < 0 || i >= step.parameters.size()) return "#" + std::to_string(index);
  return quoted(step.parameters[i].fqn);
}

std::string buffer_reference(const Step& step, int index) {
  const auto i = static_cast<size_t>(index);
  if (index < 0 || i >= step.buffers.size()) return "#" + std::to_string(index);
  return quoted(step.buffers[i].fqn);
}

// Entries above the one that refers to them are named.
std::string state_reference(const Step& step, int index, const StateEntry& from) {
  const auto i = static_cast<size_t>(index);
  if (index < 0 || i >= step.state.size() || &step.state[i] >= &from)
    return "#" + std::to_string(index);
  return quoted(step.state[i].name);
}

void print_state(const StateEntry& entry, const Step& step, std::string& out) {
  out += "  state " + quoted(entry.name) + " : " + format_type(entry.type, step.mesh);
  add_word(out, "role", entry.role, StateRole::Parameter);
  if (entry.parameter != -1) out += " parameter=" + parameter_reference(step, entry.parameter);
  if (entry.buffer != -1) out += " buffer=" + buffer_reference(step, entry.buffer);
  if (entry.range_of != -1) out += " range_of=" + state_reference(step, entry.range_of, entry);
  add_int(out, "storage", entry.storage_elements, entry.type.numel());
  if (!is_default(entry.location)) out += " at " + format_location(entry.location);
  out += "\n";
}

void print_head(const Step& step, std::string& out) {
  out += "step " + named('@', step.name) + " stage=" + std::string(word(step.stage));
  if (!step.mesh.axes.empty()) {
    out += " mesh=<";
    for (size_t i = 0; i < step.mesh.axes.size(); ++i) {
      const MeshAxis& axis = step.mesh.axes[i];
      if (i > 0) out += ", ";
      out += identifier(axis.name) + "=" + std::to_string(axis.size);
    }
    out += ">";
  }
  add_int(out, "accumulation", step.accumulation, 1);
  if (step.reduce_dtype) out += " reduce_dtype=" + std::string(base::name(*step.reduce_dtype));
  for (const Space space : kSpaces) {
    const std::string prefix = space == Space::Device ? "" : std::string(base::name(space)) + "_";
    add_int(out, prefix + "arena", step.arena_bytes[space], 0);
  }
  if (!step.model_digest.empty()) out += " model=" + quoted(step.model_digest);
  out += " {\n";
}

}  // namespace

std::string print(const Step& step) {
  std::string out;
  print_head(step, out);
  for (const InputSpec& input : step.inputs) print_input(input, step.mesh, out);
  for (const Parameter& parameter : step.parameters) print_parameter(parameter, out);
  for (const Buffer& buffer : step.buffers) print_buffer(buffer, step.mesh, out);
  print_optimizer(step.optimizer, out);
  for (const StateEntry& entry : step.state) print_state(entry, step, out);
  if (step.streams != std::vector<std::string>{"compute"}) {
    out += "  streams";
    for (const std::string& stream : step.streams) out += " " + quoted(stream);
    out += "\n";
  }
  for (const Program& program : step.programs) print_program(program, step, out);
  return out + "}\n";
}

}  // namespace dc::ir
