#include "runtime/verify/effects.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "src/base/expression.h"

namespace dc::runtime::verify {
namespace {

constexpr NativeKernel kNative[] = {
    {"dc.accumulate", "ur"},
    {"dc.adamw", "uuurrrw", 0, false, 1},
    {"dc.add_loss", "ur"},
    {"dc.add_product", "urr", 1, true},
    {"dc.cast", "r", 1},
    {"dc.copy", "wr"},
    {"dc.cross_entropy", "rr", 4},
    {"dc.cross_entropy_backward", "urrrrr", 1, true},
    {"dc.dropout", "rr", 2},
    {"dc.linear_cross_entropy", "rrrr", 4},
    {"dc.clip_and_check", "wrr"},
    {"dc.check_finite", "urr"},
    {"dc.sgd", "uurrrw", 0, false, 1},
    {"dc.square_sum", "urr"},
    {"dc.two_products", "rrrr", 2},
    {"dc.zero", "w"},
};

// Overloads that write an operand although their names do not say so, without "aten.". Those in the
// first group do so although their schemas do not say so either.
constexpr std::string_view kSilentWriters[] = {
    "native_batch_norm.default",
    "batch_norm.default",
    "instance_norm.default",
    "cudnn_batch_norm.default",
    "miopen_batch_norm.default",
    "_batch_norm_impl_index.default",

    "_batch_norm_with_update.default",
    "_native_batch_norm_legit.default",
    "_cummax_helper.default",
    "_cummin_helper.default",
    "_fused_moving_avg_obs_fq_helper.default",
    "fused_moving_avg_obs_fake_quant.default",
    "geqrf.a",
    "record_stream.default",
    "retain_grad.default",
    "rrelu_with_noise.default",
    "set_data.default",
};
// Names of out overloads that do not contain "out": they name one of several results.
constexpr std::string_view kOutNames[] = {
    "L",
    "Q",
    "U",
    "X",
    "dim_max",
    "dim_min",
    "dim_values",
    "eigvals",
    "inverse",
    "eigenvalues",
    "result",
    "grad_input",
    "sign",
    "names_dim_max",
    "values",
    "output",
    "names_dim_min",
    "names_dim_values",
    "dimname_values",
    "dimname_values_stable",
    "values_stable",
};

bool is_out(std::string_view overload) {
  return overload == "out" || overload.ends_with("_out") || overload.starts_with("Out") ||
         overload.starts_with("out_") ||
         std::find(std::begin(kOutNames), std::end(kOutNames), overload) != std::end(kOutNames);
}

void add(std::vector<int32_t>& list, int64_t tensor) {
  if (tensor >= 0) list.push_back(static_cast<int32_t>(tensor));
}

void sort(std::vector<int32_t>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

const NativeKernel* find_native(std::string_view op) {
  const auto found = std::find_if(std::begin(kNative), std::end(kNative),
                                  [&](const NativeKernel& row) { return row.op == op; });
  return found == std::end(kNative) ? nullptr : &*found;
}

Effects unknown(std::string problem) { return {{}, {}, std::move(problem)}; }

Effects aten(const plan::Instruction& in) {
  if (!in.op.starts_with("aten.")) return unknown("is no operator of ATen");
  if (writes_operands(in.op)) return unknown("is an operator that changes its operands");
  Effects effects;
  for (const plan::Arg& arg : in.args) {
    if (arg.kind == plan::ArgKind::Tensor) add(effects.reads, arg.i);
    if (arg.kind != plan::ArgKind::Tensors) continue;
    for (int64_t id : arg.ints) add(effects.reads, id);
  }
  for (int32_t id : in.outputs) add(effects.writes, id);
  return effects;
}

Effects native(const plan::Instruction& in) {
  if (in.op.starts_with("aten.")) return aten(in);  // the same operator, with another kernel
  const NativeKernel* row = find_native(in.op);
  if (row == nullptr) return unknown("is a native kernel that this version does not know");
  Effects effects;
  const size_t wanted = row->operands.size();
  size_t tensors = 0, leading = 0;
  for (size_t i = 0; i < in.args.size(); ++i) {
    const plan::Arg& arg = in.args[i];
    if (arg.kind == plan::ArgKind::Tensor || arg.kind == plan::ArgKind::Tensors) ++tensors;
    if (arg.kind != plan::ArgKind::Tensor || i >= wanted || i != leading) continue;
    ++leading;
    if (row->operands[i] != 'w') add(effects.reads, arg.i);
    if (row->operands[i] != 'r') add(effects.writes, arg.i);
  }
  const size_t least = wanted - row->perhaps;
  if (tensors < least || leading != tensors || in.outputs.size() > row->results) {
    return unknown("has " + std::to_string(tensors) + " tensors and " +
                   std::to_string(in.outputs.size()) + " outputs, where this kernel takes " +
                   std::to_string(least) +
                   (least < wanted ? " or " + std::to_string(wanted) : std::string()) + " and " +
                   std::to_string(row->results));
  }
  for (int32_t id : in.outputs) add(effects.writes, id);
  return effects;
}

// Reads its operands and writes its results, as many as its expression has.
Effects fused(const plan::Instruction& in) {
  if (in.op != "dc.fused") return unknown("is no fused kernel that this version knows");
  Effects effects;
  const std::string* body = nullptr;
  size_t operands = 0;
  for (const plan::Arg& arg : in.args) {
    if (arg.kind == plan::ArgKind::Tensors)
      return unknown("has a list of tensors, as no fused kernel does");
    if (arg.kind == plan::ArgKind::String && !body) body = &arg.s;
    if (arg.kind != plan::ArgKind::Tensor) continue;
    add(effects.reads, arg.i);
    ++operands;
  }
  if (!body) return unknown("is a fused kernel without an expression");
  const base::Result<base::Expression> expression = base::Expression::parse(*body);
  if (!expression.ok())
    return unknown("is a fused kernel whose expression cannot be read (" +
                   expression.status().sentence() + ")");
  if (expression->operands() != operands || expression->results.size() != in.outputs.size())
    return unknown("is a fused kernel whose expression has " +
                   std::to_string(expression->operands()) + " operands and " +
                   std::to_string(expression->results.size()) + " results, and not its " +
                   std::to_string(operands) + " and " + std::to_string(in.outputs.size()));
  for (const int32_t id : in.outputs) {
    if (id < 0) return unknown("is a fused kernel that leaves out a result");
    add(effects.writes, id);
  }
  return effects;
}

Effects kernel(const plan::Instruction& in) {
  switch (in.provider) {
    case plan::Provider::Aten:
      return aten(in);
    case plan::Provider::Native:
      return native(in);
    case plan::Provider::Fused:
      return fused(in);
  }
  return {};
}

}  // namespace

std::span<const NativeKernel> native_kernels() { return kNative; }

bool works_in_place(const plan::Instruction& in) {
  const NativeKernel* row = in.provider == plan::Provider::Native ? find_native(in.op) : nullptr;
  return row != nullptr && row->in_place;
}

bool writes_operands(std::string_view overload) {
  if (overload.starts_with("aten.")) overload.remove_prefix(5);
  const size_t dot = overload.rfind('.');
  const std::string_view name = overload.substr(0, dot);
  const std::string_view variant = dot == std::string_view::npos ? "" : overload.substr(dot + 1);
  const bool dunder = name.ends_with("__");
  if (dunder ? name.starts_with("__i") && name != "__is__" && name != "__isnot__"
             : name.ends_with('_'))
    return true;
  return is_out(variant) || std::find(std::begin(kSilentWriters), std::end(kSilentWriters),
                                      overload) != std::end(kSilentWriters);
}

Effects effects_of(const plan::Instruction& in) {
  Effects effects;
  switch (in.kind) {
    case plan::InstructionKind::Kernel:
      effects = kernel(in);
      break;
    case plan::InstructionKind::Collective:
      for (const plan::CollectiveBuffer& b : in.buffers) {
        add(effects.reads, b.input);
        add(effects.writes, b.output);
      }
      break;
    case plan::InstructionKind::Copy:
      add(effects.reads, in.src);
      add(effects.writes, in.dst);
      break;
    case plan::InstructionKind::Signal:
    case plan::InstructionKind::Wait:
      break;
  }
  sort(effects.reads);
  sort(effects.writes);
  return effects;
}

}  // namespace dc::runtime::verify
