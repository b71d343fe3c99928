// `dcc inspect --as=text`: one line per thing, in table order, the same bytes everywhere. Complete
// but for the bytes of constants, which are shown as their SHA-256.
#include <span>

#include "runtime/plan/mesh.h"
#include "runtime/plan/schema_version.h"
#include "runtime/report/report.h"
#include "runtime/report/text_operation.h"
#include "runtime/report/text_writer.h"
#include "src/base/sha256.h"

namespace dc::runtime::report {
namespace {

class TextDump : TextWriter {
 public:
  explicit TextDump(const plan::Plan& plan) : plan_(plan) {}
  std::string run();

 private:
  const plan::Slice& slice_of(int32_t tensor) const {
    return plan_.slices[static_cast<size_t>(plan_.tensors[static_cast<size_t>(tensor)].slice)];
  }

  void head();
  void sums();
  void ranks();
  void memory();
  void placement(const std::vector<plan::PlacedAxis>& axes);
  void state();
  void parameters();
  void initializer(const plan::Initializer& i);
  void record(const plan::ArchiveRecord& r);
  void optimizer();
  void input(const plan::Input& i);
  void prediction(const plan::Prediction& p);
  void runs(const std::vector<plan::ProgramRun>& list);
  void variants();
  void instruction(const plan::Program& program, size_t index);
  void programs();

  const plan::Plan& plan_;
};

void TextDump::head() {
  raw("plan ").word(plan_.name);
  rest<plan::kFields<plan::Plan>>(
      plan_, {"slices",         "tensors",    "state",        "parameters",   "buffers",
              "inputs",         "mesh",       "streams",      "groups",       "optimizer",
              "step_tensors",   "prediction", "name",         "model_digest", "profile_digest",
              "options_digest", "compiler",   "notes",        "options",      "remarks",
              "passes",         "chain",      "arena_bytes",  "budgets",      "step_digest",
              "variants",       "threads",    "accumulation", "events",       "updates_by_range",
              "device",         "sums"});
  raw("\n");
  raw("schema ").number(plan::kSchemaMajor).raw(".").number(plan::kSchemaMinor).raw("\n");
  line("compiler", plan_.compiler);
  line("model", plan_.model_digest);
  for (const std::string& digest : plan_.step_digest) line("step", digest);
  line("profile", plan_.profile_digest);
  line("options", plan_.options_digest);
  line("option-text", plan_.options);
  line("chain", plan_.chain);
  line("passes", plan_.passes);
  line("updates", plan_.updates_by_range ? "by-range" : "all-or-none");
  raw("device ").raw(base::name(plan_.device)).raw("\n");
  raw("threads ").number(plan_.threads).raw("\n");
  raw("accumulation ").number(plan_.accumulation).raw("\n");
  sums();
  for (const std::string& note : plan_.notes) line("note", note);
  for (const base::Remark& remark : plan_.remarks) {
    raw("remark ").word(remark.pass).raw(" ").raw(describe_facts(remark)).raw(" ");
    word(remark.text).raw("\n");
  }
}

void TextDump::sums() {
  const plan::SumOrder& s = plan_.sums;
  raw("sums ").raw(plan::name(s.reductions)).raw(" levels=");
  list(s.levels, [&](uint32_t axes) { word(plan::axes_text(plan_, axes)); });
  raw(" shards=").word(plan::axes_text(plan_, s.shards));
  rest<plan::kFields<plan::SumOrder>>(s, {"reductions", "levels", "shards"}).raw("\n");
}

void TextDump::ranks() {
  raw("mesh");
  for (const auto& [axis, size] : plan_.mesh) raw(" ").word(axis).raw("=").number(size);
  raw("\n");
  for (size_t i = 0; i < plan_.streams.size(); ++i) {
    raw("stream ").number(static_cast<int64_t>(i)).raw(" ").word(plan_.streams[i].name);
    raw(" ").raw(plan::name(plan_.streams[i].space));
    rest<plan::kFields<plan::Stream>>(plan_.streams[i], {"name", "space"}).raw("\n");
  }
  raw("events ").number(plan_.events).raw("\n");
  for (size_t i = 0; i < plan_.groups.size(); ++i) {
    const plan::Group& g = plan_.groups[i];
    raw("group ")
        .number(static_cast<int64_t>(i))
        .raw(" axis=")
        .word(plan::axes_text(plan_, g.axes));
    raw(" ranks=");
    list(plan::ranks_of_group(plan_, g.axes, 0), [&](int32_t r) { number(r); });
    raw(" stream=").index(g.stream);
    rest<plan::kFields<plan::Group>>(g, {"axes", "stream"}).raw("\n");
  }
}

void TextDump::memory() {
  for (size_t i = 0; i < plan_.arena_bytes.size(); ++i) {
    raw("arena ")
        .raw(plan::name(static_cast<plan::Space>(i)))
        .raw(" ")
        .number(plan_.arena_bytes[i]);
    if (i < plan_.budgets.size() && plan_.budgets[i] != 0) raw(" of ").number(plan_.budgets[i]);
    raw("\n");
  }
  for (size_t i = 0; i < plan_.slices.size(); ++i) {
    const plan::Slice& s = plan_.slices[i];
    raw("slice ").number(static_cast<int64_t>(i)).raw(" ").raw(plan::name(s.space)).raw(" @");
    number(s.offset).raw("+").number(s.bytes);
    if (s.program >= 0) {
      raw(" program=").number(s.program).raw(" live=").number(s.first).raw("..").number(s.last);
    }
    raw(" kind=").word(plan::name(s.kind));
    rest<plan::kFields<plan::Slice>>(
        s, {"space", "offset", "bytes", "program", "first", "last", "kind"});
    raw("\n");
  }
  for (size_t i = 0; i < plan_.tensors.size(); ++i) {
    const plan::Tensor& t = plan_.tensors[i];
    raw("tensor ").id(static_cast<int64_t>(i)).raw(" ").word(t.name).raw(" ");
    type(t.dtype, t.sizes).raw(" strides=").numbers(t.strides).raw(" slice=").number(t.slice);
    if (t.offset != 0) raw(" offset=").number(t.offset);
    if (t.rank_stride != 0) raw(" rank-stride=").number(t.rank_stride);
    if (!plan::is_world(plan_, t.stride_axes))
      raw(" along=").word(plan::axes_text(plan_, t.stride_axes));
    rest<plan::kFields<plan::Tensor>>(
        t, {"name", "dtype", "sizes", "strides", "slice", "offset", "rank_stride", "stride_axes"});
    raw("\n");
  }
}

// " placement=flat_shard(dp:32)", " placement=whole"
void TextDump::placement(const std::vector<plan::PlacedAxis>& axes) {
  raw(" placement=");
  if (axes.empty()) raw("whole");
  for (size_t i = 0; i < axes.size(); ++i) {
    const plan::PlacedAxis& p = axes[i];
    raw(i > 0 ? "+" : "").raw(plan::name(p.placement)).raw("(");
    word(plan_.mesh[static_cast<size_t>(p.axis)].first);
    if (p.placement == plan::AxisPlacement::Shard) raw(":dim").number(p.dim);
    if (p.placement == plan::AxisPlacement::FlatShard) raw(":").number(p.shard);
    rest<plan::kFields<plan::PlacedAxis>>(p, {"axis", "placement", "dim", "shard"}).raw(")");
  }
}

void TextDump::state() {
  for (const plan::StateEntry& s : plan_.state) {
    raw("state ").word(s.name).raw(" ").id(s.tensor).raw(" role=").raw(plan::name(s.role));
    placement(s.placement);
    if (s.range_of >= 0) raw(" range-of=").number(s.range_of);
    raw(" source=").raw(plan::name(s.source));
    if (s.parameter >= 0) raw(" parameter=").number(s.parameter);
    if (s.buffer >= 0) raw(" buffer=").number(s.buffer);
    if (!s.data.empty()) {
      raw(" data=").number(static_cast<int64_t>(s.data.size())).raw(":");
      raw(base::sha256_hex(std::span<const uint8_t>(s.data)));
    }
    rest<plan::kFields<plan::StateEntry>>(s, {"name", "tensor", "role", "placement", "range_of",
                                              "source", "parameter", "buffer", "data"});
    raw("\n");
  }
  raw("step-scalars hyperparameters=")
      .id(plan_.hyperparameters)
      .raw(" rng=")
      .id(plan_.rng)
      .raw(" scalars=");
  id(plan_.scalars).raw(" table=").id(plan_.table).raw(" loss_sum=").id(plan_.loss_sum);
  rest<plan::kFields<plan::StepTensors>>(plan_,
                                         {"hyperparameters", "rng", "scalars", "table", "loss_sum"})
      .raw("\n");
  for (const plan::Input& i : plan_.inputs) input(i);
}

void TextDump::input(const plan::Input& i) {
  raw("input ").word(i.name).raw(" ").id(i.tensor).raw(" role=").raw(plan::name(i.role));
  raw(" range=[").real(i.low).raw(",").real(i.high).raw(i.next ? "] labels=next" : "]");
  raw(i.guessed ? " guessed" : "");
  if (i.ignored != base::kIgnoredLabel) raw(" ignored=").number(i.ignored);
  rest<plan::kFields<plan::Input>>(
      i, {"name", "tensor", "role", "low", "high", "next", "guessed", "ignored"})
      .raw("\n");
}

void TextDump::initializer(const plan::Initializer& i) {
  raw(" init=").raw(plan::name(i.kind)).raw("(").real(i.a).raw(",").real(i.b).raw(")");
  rest<plan::kFields<plan::Initializer>>(i, {"kind", "a", "b"});
}

void TextDump::record(const plan::ArchiveRecord& r) {
  if (r.entry.empty()) return;
  raw(" record=").word(r.entry).raw(":").type(r.dtype, r.sizes).raw(":").numbers(r.strides);
  raw("+").number(r.offset);
  rest<plan::kFields<plan::ArchiveRecord>>(r, {"entry", "dtype", "sizes", "strides", "offset"});
}

void TextDump::parameters() {
  for (size_t i = 0; i < plan_.parameters.size(); ++i) {
    const plan::Parameter& p = plan_.parameters[i];
    raw("parameter ").number(static_cast<int64_t>(i)).raw(" ").word(p.fqn).raw(" ");
    type(p.dtype, p.sizes).raw(" shard=").number(p.shard).raw(" group=").number(p.group);
    if (p.trainable) {
      raw(" trainable=").number(p.trainable_index).raw(" gradient=").id(p.gradient);
      raw(" ready=").index(p.gradient_ready);
    } else {
      raw(" frozen");
    }
    if (!p.aliases.empty())
      raw(" aliases=").list(p.aliases, [&](const std::string& a) { word(a); });
    initializer(p.initializer);
    record(p.record);
    rest<plan::kFields<plan::Parameter>>(
        p, {"fqn", "dtype", "sizes", "shard", "group", "trainable", "trainable_index", "gradient",
            "gradient_ready", "aliases", "initializer", "record"});
    raw("\n");
  }
  for (size_t i = 0; i < plan_.buffers.size(); ++i) {
    const plan::Buffer& b = plan_.buffers[i];
    raw("buffer ").number(static_cast<int64_t>(i)).raw(" ").word(b.fqn).raw(" ");
    type(b.dtype, b.sizes).raw(b.persistent ? " persistent" : " not-persistent");
    initializer(b.initializer);
    record(b.record);
    rest<plan::kFields<plan::Buffer>>(
        b, {"fqn", "dtype", "sizes", "persistent", "initializer", "record"});
    raw("\n");
  }
}

void TextDump::optimizer() {
  const plan::Optimizer& o = plan_.optimizer;
  raw("optimizer ").raw(plan::name(o.kind)).raw(" clip=").raw(o.clip ? "on:" : "off:");
  real(o.clip_norm).raw(" seed=").raw(std::to_string(o.seed)).raw(" schedule=");
  raw(plan::name(o.schedule)).raw(" warmup=").number(o.warmup_steps).raw(" total=");
  number(o.total_steps).raw(" final=").real(o.final_lr_fraction);
  rest<plan::kFields<plan::Optimizer>>(
      o, {"kind", "clip", "clip_norm", "seed", "schedule", "warmup_steps", "total_steps",
          "final_lr_fraction", "groups"});
  raw("\n");
  for (const plan::OptimizerGroup& g : o.groups) {
    raw("optimizer-group ").word(g.match).raw(" lr=").real(g.lr).raw(" weight_decay=");
    real(g.weight_decay).raw(" betas=[").real(g.beta1).raw(",").real(g.beta2).raw("] eps=");
    real(g.eps).raw(" momentum=").real(g.momentum).raw(" dampening=").real(g.dampening);
    raw(g.nesterov ? " nesterov" : "");
    rest<plan::kFields<plan::OptimizerGroup>>(g, {"match", "lr", "weight_decay", "beta1", "beta2",
                                                  "eps", "momentum", "dampening", "nesterov"});
    raw("\n");
  }
}

void TextDump::prediction(const plan::Prediction& p) {
  raw("prediction");
  plan::for_each_field(plan::kFields<plan::Prediction>, [&](const auto& each) {
    raw(" ").raw(each.name).raw("=").show(each.of(p));
  });
  raw("\n");
}

void TextDump::instruction(const plan::Program& program, size_t index) {
  const plan::Instruction& in = program.instructions[index];
  raw("  [").number(static_cast<int64_t>(index)).raw("] ");
  write_operation(*this, in);
  raw(" stream=").word(plan_.streams[static_cast<size_t>(in.stream)].name);
  raw(" phase=").raw(plan::name(in.phase));
  if (!in.module.empty()) raw(" module=").word(in.module);
  if (!in.reads.empty()) raw(" reads=").ids(in.reads);
  if (!in.writes.empty()) raw(" writes=").ids(in.writes);
  for (int32_t tensor : in.writes) {
    const plan::Slice& slice = slice_of(tensor);
    raw(slice.space == plan::Space::Device ? " @"
                                           : " " + std::string(plan::name(slice.space)) + "@");
    number(slice.offset).raw("+").number(slice.bytes);
  }
  const bool takes_time =
      in.kind != plan::InstructionKind::Signal && in.kind != plan::InstructionKind::Wait;
  if (takes_time && !program.duration_ns.empty()) {
    raw(" predicted_ns=").number(program.duration_ns[index]);
    const bool says = !program.duration_origins.empty() && program.duration_origins[index] != 0;
    if (says) {
      raw(" from=").word(
          plan::name(static_cast<plan::FigureOrigin>(program.duration_origins[index])));
    }
  }
  rest<plan::kFields<plan::Instruction>>(in, {"stream", "phase", "module", "reads", "writes"});
  raw("\n");
}

void TextDump::runs(const std::vector<plan::ProgramRun>& list) {
  for (const plan::ProgramRun& run : list) {
    const plan::Program& program = plan_.programs[static_cast<size_t>(run.program)];
    raw(" ").word(program.name).raw("*").number(run.repeat);
    rest<plan::kFields<plan::ProgramRun>>(run, {"program", "repeat"});
  }
  raw("\n");
}

// "variant evaluate evaluation*1", then its inputs and its prediction.
void TextDump::variants() {
  for (const plan::Variant& v : plan_.variants) {
    raw("variant ").raw(plan::name(v.purpose));
    rest<plan::kFields<plan::Variant>>(v, {"purpose", "step", "inputs", "prediction"});
    runs(v.step);
    for (const plan::Input& i : v.inputs) {
      raw("variant-");
      input(i);
    }
    raw("variant-");
    prediction(v.prediction);
  }
}

void TextDump::programs() {
  raw("step");
  runs(plan_.step);
  variants();
  for (size_t p = 0; p < plan_.programs.size(); ++p) {
    raw("program ").number(static_cast<int64_t>(p)).raw(" ").word(plan_.programs[p].name);
    rest<plan::kFields<plan::Program>>(plan_.programs[p],
                                       {"name", "instructions", "duration_ns", "duration_origins"})
        .raw(" {\n");
    const plan::Program& program = plan_.programs[p];
    for (size_t i = 0; i < program.instructions.size(); ++i) instruction(program, i);
    raw("}\n");
  }
}

std::string TextDump::run() {
  head();
  ranks();
  memory();
  state();
  parameters();
  optimizer();
  prediction(plan_.prediction);
  programs();
  return take();
}

}  // namespace

std::string to_text(const plan::Plan& plan) { return TextDump(plan).run(); }

}  // namespace dc::runtime::report
