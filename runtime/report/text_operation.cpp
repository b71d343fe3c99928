#include "runtime/report/text_operation.h"

#include "runtime/plan/names.h"

namespace dc::runtime::report {
namespace {

void write_argument(TextWriter& out, const plan::Arg& arg) {
  if (!arg.name.empty()) out.word(arg.name).raw("=");
  switch (arg.kind) {
    case plan::ArgKind::None:
      out.raw("None");
      return;
    case plan::ArgKind::Tensor:
      out.id(arg.i);
      return;
    case plan::ArgKind::Tensors:
      out.list(arg.ints, [&](int64_t v) { out.id(v); });
      return;
    case plan::ArgKind::Int:
      out.number(arg.i);
      return;
    case plan::ArgKind::Ints:
      out.numbers(arg.ints);
      return;
    case plan::ArgKind::Float:
      out.real(arg.f);
      return;
    case plan::ArgKind::Floats:
      out.list(arg.floats, [&](double v) { out.real(v); });
      return;
    case plan::ArgKind::Bool:
      out.raw(arg.i != 0 ? "true" : "false");
      return;
    case plan::ArgKind::Bools:
      out.list(arg.ints, [&](int64_t v) { out.raw(v != 0 ? "true" : "false"); });
      return;
    case plan::ArgKind::String:
      out.quoted(arg.s);
      return;
    case plan::ArgKind::Device:
      out.raw("device");
      return;
    case plan::ArgKind::DType:
    case plan::ArgKind::Layout:
    case plan::ArgKind::MemoryFormat:
      out.raw(plan::name(arg.kind)).raw(":").number(arg.i);
      return;
  }
}

}  // namespace

void write_operation(TextWriter& out, const plan::Instruction& in) {
  bool first = true;
  const auto comma = [&] {
    if (!first) out.raw(", ");
    first = false;
  };
  switch (in.kind) {
    case plan::InstructionKind::Kernel:
      for (int32_t output : in.outputs) {
        comma();
        out.id(output);
      }
      if (!in.outputs.empty()) out.raw(" = ");
      out.word(in.op).raw("(");
      first = true;
      for (const plan::Arg& arg : in.args) {
        comma();
        write_argument(out, arg);
      }
      out.raw(") provider=").raw(name(in.provider));
      if (in.scratch >= 0) out.raw(" scratch=").number(in.scratch);
      out.rest<plan::kBodyFields<plan::InstructionKind::Kernel>>(
          in, {"provider", "op", "args", "outputs", "scratch"});
      return;
    case plan::InstructionKind::Collective:
      out.raw(plan::name(in.collective)).raw("(");
      for (const plan::CollectiveBuffer& b : in.buffers) {
        comma();
        out.id(b.input).raw("->").id(b.output).raw(" elements=").number(b.elements);
        out.raw(" shard=").number(b.shard);
        out.rest<plan::kFields<plan::CollectiveBuffer>>(b,
                                                        {"input", "output", "elements", "shard"});
      }
      out.raw(") group=").index(in.group);
      out.rest<plan::kBodyFields<plan::InstructionKind::Collective>>(
          in, {"collective", "group", "buffers"});
      return;
    case plan::InstructionKind::Copy:
      out.id(in.dst).raw(" = copy(").id(in.src).raw(")");
      out.rest<plan::kBodyFields<plan::InstructionKind::Copy>>(in, {"src", "dst"});
      return;
    case plan::InstructionKind::Signal:
    case plan::InstructionKind::Wait:
      out.raw(plan::name(in.kind)).raw("(event ").index(in.event).raw(")");
      out.rest<plan::kBodyFields<plan::InstructionKind::Signal>>(in, {"event"});
      return;
  }
}

}  // namespace dc::runtime::report
