// Plan structs to FlatBuffers. Written strictly in table order, so equal plans give equal bytes.
#include <cstring>

#include "runtime/plan/file.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/schema_version.h"
#include "schemas/plan_generated.h"
#include "src/base/enum_names.h"
#include "src/base/sha256.h"

namespace dc::runtime::plan {
namespace {

namespace fb = dc::schema;
using flatbuffers::Offset;
template <typename T>
using VectorOf = Offset<flatbuffers::Vector<T>>;

// Numbers of enumerators are equal here and in the schema, so they are cast.
template <typename Ours, typename Schema>
constexpr bool is_same_enum = base::enum_count<Ours>() == static_cast<size_t>(Schema::MAX) + 1;
static_assert(is_same_enum<Space, fb::Space> && is_same_enum<SliceKind, fb::SliceKind> &&
              is_same_enum<ArgKind, fb::ArgKind> && is_same_enum<Provider, fb::Provider> &&
              is_same_enum<CollectiveKind, fb::CollectiveKind> &&
              is_same_enum<InitKind, fb::InitKind> && is_same_enum<StateSource, fb::StateSource> &&
              is_same_enum<StateRole, fb::StateRole> && is_same_enum<Spread, fb::Spread> &&
              is_same_enum<InputRole, fb::InputRole> && is_same_enum<Purpose, fb::Purpose> &&
              is_same_enum<base::SubjectKind, fb::SubjectKind>);

class Encoder {
 public:
  std::string run(const Plan& plan);

 private:
  Offset<flatbuffers::String> text(const std::string& s) {
    return s.empty() ? Offset<flatbuffers::String>() : builder_.CreateSharedString(s);
  }
  template <typename T>
  VectorOf<T> numbers(const std::vector<T>& values) {
    return values.empty() ? VectorOf<T>() : builder_.CreateVector(values);
  }
  VectorOf<Offset<flatbuffers::String>> texts(const std::vector<std::string>& values) {
    if (values.empty()) return {};
    std::vector<Offset<flatbuffers::String>> offsets;
    for (const std::string& value : values) offsets.push_back(builder_.CreateSharedString(value));
    return builder_.CreateVector(offsets);
  }
  // One table per element, in order.
  template <typename Items, typename Encode>
  auto tables(const Items& items, Encode encode) {
    using Table = decltype(encode(*items.begin()));
    std::vector<Table> offsets;
    offsets.reserve(items.size());
    for (const auto& item : items) offsets.push_back(encode(item));
    return offsets.empty() ? VectorOf<Table>() : builder_.CreateVector(offsets);
  }
  // 0: all axes.
  static uint32_t axes(const Plan& plan, uint32_t axes) { return is_world(plan, axes) ? 0 : axes; }
  template <typename To, typename From>
  static To as(From value) {
    return static_cast<To>(value);
  }

  Offset<fb::Arg> arg(const Arg& a);
  Offset<void> body(const Instruction& i, fb::Body& type);
  Offset<fb::Instruction> instruction(const Instruction& i);
  Offset<fb::RankClass> all_ranks(const Plan& plan);
  Offset<fb::Initializer> initializer(const Initializer& i);
  Offset<fb::ArchiveRecord> record(const ArchiveRecord& r);
  Offset<fb::Parameter> parameter(const Parameter& p);
  Offset<fb::Buffer> buffer(const Buffer& b);
  Offset<fb::Optimizer> optimizer(const Optimizer& o);
  VectorOf<Offset<fb::Slice>> slices(const Plan& plan);
  VectorOf<Offset<fb::Tensor>> tensors(const Plan& plan);
  VectorOf<Offset<fb::StateEntry>> state(const Plan& plan);
  VectorOf<Offset<fb::Input>> inputs(const std::vector<Input>& list);
  VectorOf<Offset<fb::ProgramRun>> runs(const std::vector<ProgramRun>& list);
  VectorOf<Offset<fb::Variant>> variants(const Plan& plan);
  VectorOf<Offset<fb::MeshAxis>> mesh(const Plan& plan);
  VectorOf<Offset<fb::Stream>> streams(const Plan& plan);
  VectorOf<Offset<fb::Group>> groups(const Plan& plan);
  Offset<fb::Prediction> prediction(const Prediction& p);
  VectorOf<Offset<fb::Remark>> remarks(const Plan& plan);

  flatbuffers::FlatBufferBuilder builder_;
};

Offset<fb::Arg> Encoder::arg(const Arg& a) {
  const auto name = text(a.name);
  switch (a.kind) {
    case ArgKind::None:
    case ArgKind::Device:
      return fb::CreateArg(builder_, name, as<fb::ArgKind>(a.kind));
    case ArgKind::Tensor:
    case ArgKind::Int:
    case ArgKind::Bool:
    case ArgKind::DType:
    case ArgKind::Layout:
    case ArgKind::MemoryFormat:
      return fb::CreateArg(builder_, name, as<fb::ArgKind>(a.kind), a.i);
    case ArgKind::Tensors:
    case ArgKind::Ints:
    case ArgKind::Bools:
      return fb::CreateArg(builder_, name, as<fb::ArgKind>(a.kind), 0, numbers(a.ints));
    case ArgKind::Float:
      return fb::CreateArg(builder_, name, fb::ArgKind::Float, 0, 0,
                           numbers(std::vector<double>{a.f}));
    case ArgKind::Floats:
      return fb::CreateArg(builder_, name, fb::ArgKind::Floats, 0, 0, numbers(a.floats));
    case ArgKind::String:
      return fb::CreateArg(builder_, name, fb::ArgKind::String, 0, 0, 0, text(a.s));
  }
  return {};
}

Offset<void> Encoder::body(const Instruction& i, fb::Body& type) {
  switch (i.kind) {
    case InstructionKind::Kernel: {
      type = fb::Body::Kernel;
      const auto op = text(i.op);
      const auto args = tables(i.args, [&](const Arg& a) { return arg(a); });
      return fb::CreateKernel(builder_, as<fb::Provider>(i.provider), op, args, numbers(i.outputs),
                              i.scratch)
          .Union();
    }
    case InstructionKind::Collective: {
      type = fb::Body::Collective;
      const auto buffers = tables(i.buffers, [&](const CollectiveBuffer& b) {
        return fb::CreateCollectiveBuffer(builder_, b.input, b.output, b.elements, b.shard);
      });
      return fb::CreateCollective(builder_, as<fb::CollectiveKind>(i.collective), i.group, buffers)
          .Union();
    }
    case InstructionKind::Copy:
      type = fb::Body::Copy;
      return fb::CreateCopy(builder_, i.src, i.dst).Union();
    case InstructionKind::Signal:
      type = fb::Body::Signal;
      return fb::CreateSignal(builder_, i.event).Union();
    case InstructionKind::Wait:
      type = fb::Body::Wait;
      return fb::CreateWait(builder_, i.event).Union();
  }
  return {};
}

Offset<fb::Instruction> Encoder::instruction(const Instruction& i) {
  fb::Body type = fb::Body::NONE;
  const Offset<void> content = body(i, type);
  const auto reads = numbers(i.reads);
  const auto writes = numbers(i.writes);
  const auto module = text(i.module);
  return fb::CreateInstruction(builder_, i.stream, type, content, reads, writes, module,
                               as<fb::Phase>(i.phase));
}

Offset<fb::RankClass> Encoder::all_ranks(const Plan& plan) {
  const auto programs = tables(plan.programs, [&](const Program& p) {
    const auto name = text(p.name);
    const auto list = tables(p.instructions, [&](const Instruction& i) { return instruction(i); });
    return fb::CreateProgram(builder_, name, list, numbers(p.duration_ns));
  });
  const auto step = runs(plan.step);
  return fb::CreateRankClass(builder_, 0, programs, step);
}

VectorOf<Offset<fb::ProgramRun>> Encoder::runs(const std::vector<ProgramRun>& list) {
  return tables(list, [&](const ProgramRun& r) {
    return fb::CreateProgramRun(builder_, r.program, r.repeat);
  });
}

VectorOf<Offset<fb::Variant>> Encoder::variants(const Plan& plan) {
  return tables(plan.variants, [&](const Variant& v) {
    const auto step = runs(v.step);
    const auto input_list = inputs(v.inputs);
    const auto predicted = prediction(v.prediction);
    return fb::CreateVariant(builder_, as<fb::Purpose>(v.purpose), step, input_list, predicted);
  });
}

Offset<fb::Initializer> Encoder::initializer(const Initializer& i) {
  return fb::CreateInitializer(builder_, as<fb::InitKind>(i.kind), i.a, i.b, i.zero_row);
}

Offset<fb::ArchiveRecord> Encoder::record(const ArchiveRecord& r) {
  const auto entry = text(r.entry);
  const auto sizes = numbers(r.sizes);
  const auto strides = numbers(r.strides);
  return fb::CreateArchiveRecord(builder_, entry, as<fb::DType>(r.dtype), sizes, strides, r.offset);
}

Offset<fb::Parameter> Encoder::parameter(const Parameter& p) {
  const auto fqn = text(p.fqn);
  const auto aliases = texts(p.aliases);
  const auto sizes = numbers(p.sizes);
  const auto init = initializer(p.initializer);
  const auto source = record(p.record);
  return fb::CreateParameter(builder_, fqn, aliases, as<fb::DType>(p.dtype), sizes, p.trainable,
                             init, source, p.group, p.shard, p.trainable_index, p.gradient,
                             p.gradient_ready);
}

Offset<fb::Buffer> Encoder::buffer(const Buffer& b) {
  const auto fqn = text(b.fqn);
  const auto sizes = numbers(b.sizes);
  const auto init = initializer(b.initializer);
  const auto source = record(b.record);
  return fb::CreateBuffer(builder_, fqn, as<fb::DType>(b.dtype), sizes, b.persistent, init, source);
}

Offset<fb::Optimizer> Encoder::optimizer(const Optimizer& o) {
  const auto list = tables(o.groups, [&](const OptimizerGroup& g) {
    return fb::CreateOptimizerGroup(builder_, text(g.match), g.lr, g.weight_decay, g.beta1, g.beta2,
                                    g.eps, g.momentum, g.dampening, g.nesterov);
  });
  return fb::CreateOptimizer(builder_, as<fb::OptimizerKind>(o.kind), list, o.clip, o.clip_norm,
                             o.seed, as<fb::ScheduleKind>(o.schedule), o.warmup_steps,
                             o.total_steps, o.final_lr_fraction);
}

VectorOf<Offset<fb::Slice>> Encoder::slices(const Plan& plan) {
  return tables(plan.slices, [&](const Slice& s) {
    return fb::CreateSlice(builder_, as<fb::Space>(s.space), s.offset, s.bytes, s.program, s.first,
                           s.last, as<fb::SliceKind>(s.kind));
  });
}

VectorOf<Offset<fb::Tensor>> Encoder::tensors(const Plan& plan) {
  return tables(plan.tensors, [&](const Tensor& t) {
    const auto name = text(t.name);
    const auto sizes = numbers(t.sizes);
    const auto strides = numbers(t.strides);
    return fb::CreateTensor(builder_, name, as<fb::DType>(t.dtype), sizes, strides, t.slice,
                            t.offset, t.rank_stride, axes(plan, t.stride_axes));
  });
}

VectorOf<Offset<fb::StateEntry>> Encoder::state(const Plan& plan) {
  return tables(plan.state, [&](const StateEntry& s) {
    const auto name = text(s.name);
    const auto data = numbers(s.data);
    const auto placement = tables(s.placement, [&](const AxisPlacement& p) {
      return fb::CreateAxisPlacement(builder_, p.axis, as<fb::Spread>(p.spread), p.dim, p.shard);
    });
    return fb::CreateStateEntry(builder_, name, s.tensor, as<fb::StateSource>(s.source),
                                s.parameter, s.buffer, data, as<fb::StateRole>(s.role), placement,
                                s.range_of);
  });
}

VectorOf<Offset<fb::Input>> Encoder::inputs(const std::vector<Input>& list) {
  return tables(list, [&](const Input& i) {
    return fb::CreateInput(builder_, text(i.name), as<fb::InputRole>(i.role), i.low, i.high,
                           i.tensor, i.next);
  });
}

VectorOf<Offset<fb::Remark>> Encoder::remarks(const Plan& plan) {
  return tables(plan.remarks, [&](const base::Remark& r) {
    const auto pass = text(r.pass);
    const auto code = text(r.code);
    const auto subjects = tables(r.subjects, [&](const base::RemarkSubject& s) {
      return fb::CreateRemarkSubject(builder_, as<fb::SubjectKind>(s.kind), s.id);
    });
    const auto values = tables(r.numbers, [&](const base::RemarkNumber& n) {
      return fb::CreateRemarkNumber(builder_, text(n.name), n.value);
    });
    return fb::CreateRemark(builder_, pass, code, subjects, values, text(r.text));
  });
}

VectorOf<Offset<fb::MeshAxis>> Encoder::mesh(const Plan& plan) {
  return tables(plan.mesh, [&](const std::pair<std::string, int32_t>& axis) {
    return fb::CreateMeshAxis(builder_, text(axis.first), axis.second);
  });
}

VectorOf<Offset<fb::Stream>> Encoder::streams(const Plan& plan) {
  return tables(plan.streams, [&](const Stream& s) {
    return fb::CreateStream(builder_, text(s.name), as<fb::Space>(s.space));
  });
}

VectorOf<Offset<fb::Group>> Encoder::groups(const Plan& plan) {
  return tables(plan.groups, [&](const Group& g) {
    const auto ranks =
        numbers(has_ranks(plan) ? ranks_of_group(plan, g.axes, 0) : std::vector<int32_t>());
    const auto axis = text(axes_text(plan, g.axes));
    return fb::CreateGroup(builder_, ranks, axis, g.stream, axes(plan, g.axes));
  });
}

Offset<fb::Prediction> Encoder::prediction(const Prediction& p) {
  const auto wire = numbers(p.wire_bytes);
  const auto origin = text(p.origin);
  const auto bounds = numbers(p.bounds_ns);
  const auto figures = numbers(p.figures_ns);
  return fb::CreatePrediction(builder_, p.compute_ns, p.communication_ns, p.step_ns, p.peak_bytes,
                              p.live_bytes, wire, origin, p.copy_ns, p.copied_out_bytes,
                              p.copied_in_bytes, p.contention_ns, bounds, p.without_norm_ns,
                              figures);
}

std::string Encoder::run(const Plan& plan) {
  const auto classes = builder_.CreateVector(std::vector<Offset<fb::RankClass>>{all_ranks(plan)});
  const auto slice_list = slices(plan);
  const auto tensor_list = tensors(plan);
  const auto state_list = state(plan);
  const auto parameter_list =
      tables(plan.parameters, [&](const Parameter& p) { return parameter(p); });
  const auto buffer_list = tables(plan.buffers, [&](const Buffer& b) { return buffer(b); });
  const auto input_list = inputs(plan.inputs);
  const auto mesh_list = mesh(plan);
  const auto stream_list = streams(plan);
  const auto group_list = groups(plan);
  const auto optimizer_table = optimizer(plan.optimizer);
  const auto step_tensors = fb::CreateStepTensors(builder_, plan.hyperparameters, plan.rng,
                                                  plan.scalars, plan.table, plan.loss_sum);
  const auto prediction_table = prediction(plan.prediction);
  const auto name = text(plan.name);
  const auto model = text(plan.model_digest);
  const auto profile = text(plan.profile_digest);
  const auto options_digest = text(plan.options_digest);
  const auto compiler = text(plan.compiler);
  const auto notes = texts(plan.notes);
  const auto options = text(plan.options);
  const auto decisions = remarks(plan);
  const auto passes = text(plan.passes);
  const auto chain = text(plan.chain);
  const auto arenas = numbers(plan.arena_bytes);
  const auto budgets = numbers(plan.budgets);
  const auto step_digest = texts(plan.step_digest);
  const auto variant_list = variants(plan);
  builder_.Finish(
      fb::CreatePlan(builder_, kSchemaMajor, kSchemaMinor, name, model, profile, options_digest,
                     compiler, notes, options, mesh_list, plan.threads, plan.accumulation, chain,
                     arenas, slice_list, tensor_list, state_list, parameter_list, buffer_list,
                     input_list, stream_list, plan.events, group_list, classes, optimizer_table,
                     step_tensors, prediction_table, step_digest, decisions, passes,
                     plan.updates_by_range, budgets, variant_list,
                     static_cast<fb::DeviceKind>(plan.device)),
      fb::PlanIdentifier());
  return std::string(reinterpret_cast<const char*>(builder_.GetBufferPointer()),
                     builder_.GetSize());
}

int hex_digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

}  // namespace

std::string encode(const Plan& plan) { return seal(Encoder().run(plan)); }

std::string seal(std::string_view payload) {
  const std::string digest =
      base::sha256_hex(std::span(reinterpret_cast<const uint8_t*>(payload.data()), payload.size()));
  std::string file(kMagic);
  for (size_t i = 0; i < digest.size(); i += 2) {
    file.push_back(static_cast<char>(hex_digit(digest[i]) * 16 + hex_digit(digest[i + 1])));
  }
  for (int shift = 0; shift < 64; shift += 8) {
    file.push_back(static_cast<char>(static_cast<uint64_t>(payload.size()) >> shift & 0xff));
  }
  return file.append(payload);
}

}  // namespace dc::runtime::plan
