#include "runtime/report/explain.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "runtime/plan/names.h"
#include "runtime/plan/timeline.h"
#include "src/base/expression_shape.h"
#include "src/base/shape.h"
#include "src/base/text.h"

namespace dc::runtime::report {
namespace {

using base::Expression;
using base::ExpressionArgumentKind;

// "fused" among the providers says so; its expression is an argument.
const std::string* body_of(const plan::Instruction& in) {
  if (in.kind != plan::InstructionKind::Kernel || in.provider != plan::Provider::Fused)
    return nullptr;
  for (const plan::Arg& arg : in.args) {
    if (arg.kind == plan::ArgKind::String) return &arg.s;
  }
  return nullptr;
}

int64_t bytes_of(const plan::Tensor& tensor, plan::DType dtype) {
  int64_t elements = 1;
  for (const int64_t size : tensor.sizes) elements *= size;
  return elements * base::byte_size(dtype);
}

class Explainer {
 public:
  explicit Explainer(const plan::Plan& plan) : plan_(plan) {}

  ExplainedFusion fusion(int32_t program, int32_t index, const std::string& body) const {
    const plan::Instruction& in = instruction(program, index);
    ExplainedFusion made;
    made.program = program;
    made.index = index;
    made.module = in.module;
    made.phase = in.phase;
    for (const plan::Arg& arg : in.args) {
      if (arg.kind == plan::ArgKind::Tensor) made.operands.push_back(static_cast<int32_t>(arg.i));
    }
    made.results = in.outputs;
    const base::Result<Expression> parsed = Expression::parse(body);
    if (!parsed.ok()) return made;  // a verified plan has none
    describe(*parsed, made);
    // Which elements lie in a range is no kernel apart.
    made.launches_saved =
        std::ranges::count_if(parsed->operations,
                              [](const auto& operation) { return !base::index_range(operation); }) -
        1;
    const plan::Program& of = plan_.programs[static_cast<size_t>(program)];
    if (!of.duration_ns.empty()) made.predicted_ns = of.duration_ns[static_cast<size_t>(index)];
    if (!of.duration_origins.empty())
      made.origin =
          static_cast<plan::FigureOrigin>(of.duration_origins[static_cast<size_t>(index)]);
    return made;
  }

  ExplainedMerge merge(int32_t program, int32_t index,
                       const std::optional<plan::ProgramTimeline>& timeline) const {
    const plan::Instruction& in = instruction(program, index);
    ExplainedMerge made;
    made.program = program;
    made.index = index;
    made.collective = in.collective;
    for (const plan::CollectiveBuffer& buffer : in.buffers)
      made.members.push_back(member(program, index, buffer, timeline));
    const auto last = std::ranges::max_element(made.members, [](const auto& a, const auto& b) {
      return std::pair(a.made_ns, a.made_at) < std::pair(b.made_ns, b.made_at);
    });
    made.last = static_cast<int32_t>(last - made.members.begin());
    for (ExplainedMember& one : made.members) one.waits_ns = last->made_ns - one.made_ns;
    if (timeline) {
      made.begins_ns = timeline->begin_ns[static_cast<size_t>(index)];
      made.ends_ns = timeline->end_ns[static_cast<size_t>(index)];
    }
    return made;
  }

 private:
  const plan::Instruction& instruction(int32_t program, int32_t index) const {
    return plan_.programs[static_cast<size_t>(program)].instructions[static_cast<size_t>(index)];
  }
  const plan::Tensor& tensor(int32_t id) const { return plan_.tensors[static_cast<size_t>(id)]; }

  void describe(const Expression& expression, ExplainedFusion& made) const {
    std::vector<int64_t> readers(expression.operations.size());
    std::vector<int64_t> reads(made.operands.size());
    for (size_t i = 0; i < expression.operations.size(); ++i) {
      const base::ExpressionOperation& operation = expression.operations[i];
      FusedOperation said;
      said.text = "t" + std::to_string(i) + ":" + std::string(base::name(operation.dtype)) + " = " +
                  operation.overload + "(";
      bool first = true;
      for (const base::ExpressionArgument& argument : operation.arguments) {
        if (!first) said.text += ", ";
        first = false;
        said.text += argument.name + "=" + shown(argument, made);
        const auto number = static_cast<size_t>(argument.integer);
        if (argument.kind == ExpressionArgumentKind::Value) ++readers[number];
        if (argument.kind != ExpressionArgumentKind::Operand) continue;
        ++reads[number];
        if (const auto window = expression.windows.find(number); window != expression.windows.end())
          said.text += " at " + std::to_string(window->second.begin) + " to " +
                       std::to_string(window->second.end - 1) + " of dim " +
                       std::to_string(window->second.dim);
      }
      said.text += ")";
      said.is_stored = std::ranges::count(expression.results, i) != 0;
      made.operations.push_back(std::move(said));
    }
    // Apart, a value is written once and read by each of its readers.
    const int64_t elements = this->elements(expression, made, false);
    const int64_t rows = expression.has_reductions() ? this->elements(expression, made, true) : 0;
    for (size_t i = 0; i < readers.size(); ++i) {
      if (base::index_range(expression.operations[i])) continue;
      const int64_t writes = made.operations[i].is_stored ? 0 : 1;
      const int64_t count = expression.is_row_value(i) ? rows : elements;
      made.bytes_saved +=
          (writes + readers[i]) * count * base::byte_size(expression.operations[i].dtype);
    }
    for (size_t i = 0; i < reads.size(); ++i) {
      const plan::Tensor& operand = tensor(made.operands[i]);
      made.bytes_saved += std::max<int64_t>(reads[i] - 1, 0) * bytes_of(operand, operand.dtype);
    }
  }

  // Of each value, or of each row value.
  int64_t elements(const Expression& expression, const ExplainedFusion& made, bool rows) const {
    std::vector<std::span<const int64_t>> operands, results;
    for (const int32_t id : made.operands) operands.emplace_back(tensor(id).sizes);
    for (const int32_t id : made.results) results.emplace_back(tensor(id).sizes);
    const auto shape = base::shape_of(expression, operands, results);
    if (!shape) return 0;
    std::vector<int64_t> sizes = shape->elements;
    for (size_t dim = 0; dim < sizes.size() && rows; ++dim)
      if (shape->folded[dim]) sizes[dim] = 1;
    return base::numel(sizes);
  }

  static std::string shown(const base::ExpressionArgument& argument, const ExplainedFusion& made) {
    switch (argument.kind) {
      case ExpressionArgumentKind::None:
        return "none";
      case ExpressionArgumentKind::Operand:
        return "%" + std::to_string(made.operands[static_cast<size_t>(argument.integer)]);
      case ExpressionArgumentKind::Value:
        return "t" + std::to_string(argument.integer);
      case ExpressionArgumentKind::Bool:
        return argument.integer != 0 ? "true" : "false";
      case ExpressionArgumentKind::Int:
        return std::to_string(argument.integer);
      case ExpressionArgumentKind::Float: {
        char buffer[40];
        return {buffer, std::to_chars(buffer, buffer + sizeof buffer, argument.number).ptr};
      }
      case ExpressionArgumentKind::Word:
        return argument.word;
      case ExpressionArgumentKind::Ints:
        return base::shape_text(argument.integers);
    }
    return "";
  }

  ExplainedMember member(int32_t program, int32_t index, const plan::CollectiveBuffer& buffer,
                         const std::optional<plan::ProgramTimeline>& timeline) const {
    const plan::Tensor& input = tensor(buffer.input);
    ExplainedMember made;
    made.tensor = buffer.input;
    made.bytes = buffer.elements * base::byte_size(input.dtype);
    for (int32_t i = index; i-- > 0 && made.made_at < 0;) {
      const plan::Instruction& before = instruction(program, i);
      const bool writes = std::ranges::any_of(
          before.writes, [&](int32_t id) { return id >= 0 && tensor(id).slice == input.slice; });
      if (!writes) continue;
      made.made_at = i;
      made.module = before.module;
      if (timeline) made.made_ns = timeline->end_ns[static_cast<size_t>(i)];
    }
    return made;
  }

  const plan::Plan& plan_;
};

// What a request names.
struct Named {
  std::optional<int32_t> index;
  std::vector<int32_t> tensors;
  std::string module;

  bool all() const { return !index && tensors.empty() && module.empty(); }
};

bool is_in_module(const std::string& module, const std::string& of) {
  return module == of || module.starts_with(of + ".");
}

bool is_called(const plan::Parameter& parameter, const std::string& name) {
  return parameter.fqn == name || std::ranges::count(parameter.aliases, name) != 0;
}

// Tensors that hold the parameter, its state, or its reduced gradient.
std::vector<int32_t> tensors_of(const plan::Plan& plan, int32_t parameter) {
  std::vector<int32_t> tensors;
  for (const plan::StateEntry& entry : plan.state) {
    if (entry.parameter == parameter) tensors.push_back(entry.tensor);
  }
  const int32_t gradient = plan.parameters[static_cast<size_t>(parameter)].gradient;
  if (gradient >= 0) tensors.push_back(gradient);
  return tensors;
}

// Of tensors, of parameters, and of modules with those that they are inside of.
std::vector<std::string_view> names_of(const plan::Plan& plan) {
  std::set<std::string_view> names;
  for (const plan::Tensor& tensor : plan.tensors) names.insert(tensor.name);
  for (const plan::Parameter& parameter : plan.parameters) names.insert(parameter.fqn);
  for (const plan::Program& program : plan.programs) {
    for (const plan::Instruction& in : program.instructions) {
      const std::string_view module = in.module;
      for (size_t dot = module.find('.'); dot != module.npos; dot = module.find('.', dot + 1))
        names.insert(module.substr(0, dot));
      names.insert(module);
    }
  }
  names.erase("");
  return {names.begin(), names.end()};
}

// The last program that a step runs; an evaluation comes behind it.
size_t last_program_of_step(const plan::Plan& plan) {
  return plan.step.empty() ? plan.programs.size() - 1
                           : static_cast<size_t>(plan.step.back().program);
}
const plan::Program& last_of_step(const plan::Plan& plan) {
  return plan.programs[last_program_of_step(plan)];
}

base::Result<Named> named_by(const plan::Plan& plan, const std::string& what) {
  Named named;
  if (what.empty()) return named;
  int32_t number = 0;
  const char* begin = what.data() + (what[0] == '%' ? 1 : 0);
  const char* end = what.data() + what.size();
  const auto read = std::from_chars(begin, end, number);
  const bool is_number = read.ec == std::errc() && read.ptr == end && number >= 0;
  if (is_number && what[0] != '%') {
    if (static_cast<size_t>(number) < last_of_step(plan).instructions.size()) {
      named.index = number;
      return named;
    }
  } else if (is_number && static_cast<size_t>(number) < plan.tensors.size()) {
    named.tensors.push_back(number);
    return named;
  }
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    if (plan.tensors[i].name == what) named.tensors.push_back(static_cast<int32_t>(i));
  }
  for (size_t i = 0; i < plan.parameters.size(); ++i) {
    if (!is_called(plan.parameters[i], what)) continue;
    const std::vector<int32_t> tensors = tensors_of(plan, static_cast<int32_t>(i));
    named.tensors.insert(named.tensors.end(), tensors.begin(), tensors.end());
  }
  for (const plan::Program& program : plan.programs) {
    for (const plan::Instruction& in : program.instructions) {
      if (is_in_module(in.module, what)) named.module = what;
    }
  }
  if (!named.all()) return named;
  const std::string near = base::did_you_mean(what, names_of(plan));
  return base::Status(base::ErrorKind::Usage, "DC2817",
                      "'" + base::printable(what) +
                          "' is no tensor, parameter or module of the plan, and no index of the "
                          "step's last program" +
                          (near.empty() ? "; `dcc inspect --as=text` shows them" : near));
}

std::string in_words(const plan::Plan& plan, const Named& named, const std::string& what) {
  if (named.index) {
    const plan::Instruction& in =
        last_of_step(plan).instructions[static_cast<size_t>(*named.index)];
    const std::string does = in.op.empty() ? std::string(plan::name(in.kind)) : in.op;
    return "[" + std::to_string(*named.index) + "] " + does +
           (in.module.empty() ? "" : " in " + in.module);
  }
  return what.empty() ? "the plan" : what;
}

}  // namespace

base::Result<Explanation> explain(const plan::Plan& plan, const std::string& what) {
  DC_ASSIGN_OR_RETURN(const Named named, named_by(plan, what));
  const Explainer explainer(plan);
  Explanation explanation;
  explanation.asked = in_words(plan, named, what);
  const auto wants_tensor = [&](std::span<const int32_t> ids) {
    return std::ranges::any_of(
        ids, [&](int32_t id) { return std::ranges::count(named.tensors, id) != 0; });
  };
  for (size_t p = 0; p < plan.programs.size(); ++p) {
    const plan::Program& program = plan.programs[p];
    std::optional<plan::ProgramTimeline> timeline;
    if (plan::has_timeline(plan)) timeline = plan::predicted_timeline(plan, program);
    const bool is_last = p == last_program_of_step(plan);
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const plan::Instruction& in = program.instructions[i];
      const auto number = static_cast<int32_t>(p), index = static_cast<int32_t>(i);
      const bool wanted = named.all() || (is_last && named.index == index) ||
                          wants_tensor(in.reads) || wants_tensor(in.writes) ||
                          (!named.module.empty() && is_in_module(in.module, named.module));
      if (const std::string* body = body_of(in); body != nullptr && wanted)
        explanation.fusions.push_back(explainer.fusion(number, index, *body));
      if (in.kind != plan::InstructionKind::Collective || in.buffers.size() < 2) continue;
      ExplainedMerge merge = explainer.merge(number, index, timeline);
      const bool has_member = std::ranges::any_of(merge.members, [&](const ExplainedMember& one) {
        return !named.module.empty() && is_in_module(one.module, named.module);
      });
      if (wanted || has_member) explanation.merges.push_back(std::move(merge));
    }
  }
  return explanation;
}

}  // namespace dc::runtime::report
