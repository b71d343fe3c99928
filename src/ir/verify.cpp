// verify: tables first, then every program; structure before types before the rules of the stage.
#include <algorithm>
#include <set>

#include "src/ir/enum_words.h"
#include "src/ir/verifier.h"

namespace dc::ir {

using base::ErrorKind;
using base::Status;

static int64_t trainable_count(const Step& step) {
  int64_t count = 0;
  for (const Parameter& parameter : step.parameters) count += parameter.trainable;
  return count;
}

int64_t reserved_elements(const StateEntry& entry) {
  return std::max(entry.storage_elements, entry.type.storage_elements());
}

bool is_partial(const TensorType& type, const Mesh& mesh) {
  return (axes_with(type, AxisPlacement::Partial) & mesh.wide()) != 0;
}

std::string describe(const Graph& graph, const Node& node) {
  std::string out;
  for (ValueId result : node.results) {
    const bool known = result.valid() && result.index() < graph.value_capacity();
    out += (out.empty() ? "" : ", ") + (known ? "%" + *graph.value(result).name : std::string("-"));
  }
  if (!out.empty()) out += " = ";
  out += node.kind == OpKind::Aten ? node.overload.text() : std::string(info(node.kind).text);
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const ValueId operand = node.operands[i];
    const bool known = operand.valid() && operand.index() < graph.value_capacity();
    out += (i > 0 ? ", %" : " %") + (known ? *graph.value(operand).name : std::string("?"));
  }
  return out;
}

// What was read from a file is the user's; everything after that is ours.
static ErrorKind blame(Stage stage) {
  return stage == Stage::Imported ? ErrorKind::BadInput : ErrorKind::Internal;
}

Status offence(const Scope& scope, const Node& node, std::string_view code,
               const std::string& sentence) {
  std::string text = "program @" + scope.graph.name() + ", '" + describe(scope.graph, node) + "'";
  if (!node.origin.module.empty()) text += " of module '" + *node.origin.module + "'";
  return Status(blame(scope.stage), std::string(code), text + ": " + sentence);
}

Status table_offence(const Step& step, Stage stage, std::string_view code,
                     const std::string& sentence) {
  return Status(blame(stage), std::string(code), "step @" + step.name + ": " + sentence);
}

namespace {

template <typename Table, typename Name>
const std::string* repeated_name(const Table& table, Name name) {
  std::set<std::string_view> seen;
  for (const auto& row : table) {
    if (!seen.insert(name(row)).second) return &name(row);
  }
  return nullptr;
}

Status verify_names(const Step& step, Stage stage) {
  const auto fqn = [](const auto& row) -> const std::string& { return row.fqn; };
  const auto name = [](const auto& row) -> const std::string& { return row.name; };
  const std::string* twice = repeated_name(step.parameters, fqn);
  if (!twice) twice = repeated_name(step.buffers, fqn);
  if (!twice) twice = repeated_name(step.inputs, name);
  if (!twice) twice = repeated_name(step.state, name);
  if (!twice) twice = repeated_name(step.mesh.axes, name);
  if (twice)
    return table_offence(step, stage, "DC2110",
                         "the name '" + *twice + "' stands twice in one table");
  return {};
}

// The row of an initializer that stays zero is one of the tensor's.
template <typename Table, typename ShapeOf>
const std::string* bad_zero_row(const Table& table, ShapeOf shape_of) {
  for (const auto& row : table) {
    const Shape& shape = shape_of(row);
    const int64_t zero = row.initializer.zero_row, rows = shape.empty() ? 0 : shape[0];
    if (zero < -1 || (zero >= 0 && zero >= rows)) return &row.fqn;
  }
  return nullptr;
}

Status verify_initializers(const Step& step, Stage stage) {
  const std::string* bad =
      bad_zero_row(step.parameters, [](const Parameter& p) -> const Shape& { return p.shape; });
  if (!bad)
    bad = bad_zero_row(step.buffers, [](const Buffer& b) -> const Shape& { return b.type.shape; });
  if (!bad) return {};
  return table_offence(step, stage, "DC2110",
                       "the initializer of '" + *bad + "' leaves a row zero that it does not have");
}

bool index_in(int index, size_t size) { return index >= -1 && index < static_cast<int>(size); }

Status verify_entry(const Step& step, Stage stage, int index) {
  const StateEntry& entry = step.state[static_cast<size_t>(index)];
  const auto bad = [&](std::string_view code, const std::string& what) {
    return table_offence(step, stage, code, "state entry '" + entry.name + "' " + what);
  };
  if (!index_in(entry.parameter, step.parameters.size()))
    return bad("DC2110", "names no parameter");
  if (!index_in(entry.buffer, step.buffers.size())) return bad("DC2110", "names no buffer");
  if (entry.role == StateRole::Unknown) return bad("DC2110", "does not say what it is for");
  if (base::is_of_parameter(entry.role) && entry.parameter < 0)
    return bad("DC2110", "names no parameter");
  if (base::is_of_buffer(entry.role) && entry.buffer < 0) return bad("DC2110", "names no buffer");
  if (!index_in(entry.range_of, step.state.size()) || entry.range_of == index) {
    return bad("DC2110", "is a range of no other entry");
  }
  if (entry.type.strides.size() != entry.type.shape.size())
    return bad("DC2201", "has a malformed type");
  for (int64_t size : entry.type.shape) {
    if (size < 0) return bad("DC2201", "has a negative dim");
  }
  if (entry.range_of < 0) {
    if (stage < Stage::Sharded || entry.role != StateRole::Shard) return {};
    if (!is_flat_shard(entry.type)) return bad("DC2201", "is a shard, but its type is not");
    return entry.storage_elements > entry.type.numel()
               ? bad("DC2201", "reserves more than one shard")
               : Status();
  }
  const StateEntry& whole = step.state[static_cast<size_t>(entry.range_of)];
  if (whole.range_of >= 0) return bad("DC2110", "is a range of an entry without storage");
  if (whole.location.space != entry.location.space)
    return bad("DC2201", "is a range of '" + whole.name + "', which lies in another space");
  if (whole.type.dtype != entry.type.dtype || !entry.type.is_contiguous() ||
      entry.type.numel() * step.mesh.size(range_axes(entry)) > reserved_elements(whole)) {
    return bad("DC2201", "is a range that '" + whole.name + "' does not hold for every rank");
  }
  return {};
}

Status verify_locations(const Step& step) {
  const Stage stage = Stage::Allocated;
  for (const StateEntry& entry : step.state) {
    if (entry.range_of >= 0) continue;
    const int64_t bytes = reserved_elements(entry) * base::byte_size(entry.type.dtype);
    if (bytes == 0) continue;
    if (!entry.location.placed() || entry.location.bytes < bytes) {
      return table_offence(step, stage, "DC2312",
                           "state entry '" + entry.name + "' has no place for its " +
                               std::to_string(bytes) + " bytes");
    }
    if (entry.location.offset + entry.location.bytes > step.arena_bytes[entry.location.space]) {
      return table_offence(step, stage, "DC2313",
                           "state entry '" + entry.name + "' ends outside its arena");
    }
  }
  return {};
}

Status verify_parameters_have_state(const Step& step, Stage stage) {
  std::vector<bool> found(step.parameters.size());
  for (const StateEntry& entry : step.state) {
    const bool holds = entry.role == StateRole::Parameter || entry.role == StateRole::Shard;
    if (holds && entry.parameter >= 0) found[static_cast<size_t>(entry.parameter)] = true;
  }
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i]) continue;
    return table_offence(
        step, stage, "DC2305",
        "parameter '" + step.parameters[i].fqn + "' has no state entry of role parameter or shard");
  }
  return {};
}

}  // namespace

Status verify_tables(const Step& step, Stage stage) {
  if (step.accumulation < 1)
    return table_offence(step, stage, "DC2110", "accumulation is less than 1");
  if (step.programs.empty()) return table_offence(step, stage, "DC2110", "there is no program");
  if (step.mesh.axes.size() > kMaxAxes)
    return table_offence(step, stage, "DC2110", "the mesh has too many axes");
  DC_RETURN_IF_ERROR(verify_names(step, stage));
  DC_RETURN_IF_ERROR(verify_initializers(step, stage));
  const size_t groups = step.optimizer.groups.size();
  for (const Parameter& parameter : step.parameters) {
    if (parameter.group >= 0 && static_cast<size_t>(parameter.group) < groups) continue;
    return table_offence(step, stage, "DC2110",
                         "parameter '" + parameter.fqn + "' names no optimizer group");
  }
  for (size_t i = 0; i < step.state.size(); ++i) {
    DC_RETURN_IF_ERROR(verify_entry(step, stage, static_cast<int>(i)));
  }
  DC_RETURN_IF_ERROR(verify_parameters_have_state(step, stage));
  if (stage == Stage::Allocated) DC_RETURN_IF_ERROR(verify_locations(step));
  return {};
}

Status verify(const Step& step, Stage stage) {
  if (step.stage != stage) {
    return table_offence(
        step, stage, "DC2300",
        "the step is " + std::string(word(step.stage)) + ", not " + std::string(word(stage)));
  }
  DC_RETURN_IF_ERROR(verify_tables(step, stage));
  const int64_t trainable = trainable_count(step);
  std::vector<Scope> scopes;
  for (size_t i = 0; i < step.programs.size(); ++i) {
    const bool is_last = i + 1 == step.programs.size();
    scopes.push_back(
        {step, step.programs[i].graph, stage, i == 0, is_last, trainable, {}, {}, {}, {}});
    DC_RETURN_IF_ERROR(verify_structure(scopes.back()));
    DC_RETURN_IF_ERROR(verify_types(scopes.back()));
    DC_RETURN_IF_ERROR(verify_stage(scopes.back()));
  }
  if (stage < Stage::Sharded) return {};
  // Schedules look at what other programs leave running: at programs that are sound.
  for (Scope& scope : scopes) DC_RETURN_IF_ERROR(verify_schedule(scope));
  return {};
}

}  // namespace dc::ir
