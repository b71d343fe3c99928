// `dcc inspect --as=json`: every field of the plan under the name it has in plan.fbs. "schema"
// tells readers which shape to expect.
#include <span>

#include "runtime/plan/mesh.h"
#include "runtime/plan/names.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/schema_version.h"
#include "runtime/report/report.h"
#include "src/base/json_writer.h"

namespace dc::runtime::report {
namespace {

class JsonDump {
 public:
  explicit JsonDump(const plan::Plan& plan) : plan_(plan) {}
  std::string run();

 private:
  template <typename Items, typename Write>
  void array(std::string_view key, const Items& items, Write write) {
    w_.key(key).begin_array();
    for (const auto& item : items) write(item);
    w_.end_array();
  }
  template <typename Items, typename Write>
  void objects(std::string_view key, const Items& items, Write write) {
    array(key, items, [&](const auto& item) {
      w_.begin_object();
      write(item);
      w_.end_object();
    });
  }
  template <typename T>
  void integers(std::string_view key, const std::vector<T>& values) {
    array(key, values, [&](int64_t v) { w_.integer(v); });
  }
  void texts(std::string_view key, const std::vector<std::string>& values) {
    array(key, values, [&](const std::string& v) { w_.string(v); });
  }
  void field(std::string_view key, std::string_view value) { w_.field(key, value); }
  void field(std::string_view key, int64_t value) { w_.field(key, value); }
  void real(std::string_view key, double value) { w_.field(key, value); }
  void flag(std::string_view key, bool value) { w_.field(key, value); }

  void head();
  void memory();
  void model();
  void initializer(const plan::Initializer& i);
  void record(const plan::ArchiveRecord& r);
  void parameter(const plan::Parameter& p);
  void optimizer();
  void inputs(const std::vector<plan::Input>& list);
  void prediction(const plan::Prediction& p);
  void runs(const std::vector<plan::ProgramRun>& list);
  void argument(const plan::Arg& arg);
  void instruction(const plan::Instruction& in);

  const plan::Plan& plan_;
  base::JsonWriter w_{1};
};

void JsonDump::head() {
  w_.field("schema", "dcc.plan/2");
  field("schema_major", plan::kSchemaMajor);
  field("schema_minor", plan::kSchemaMinor);
  field("name", plan_.name);
  field("model_digest", plan_.model_digest);
  texts("step_digest", plan_.step_digest);
  field("profile_digest", plan_.profile_digest);
  field("options_digest", plan_.options_digest);
  field("compiler", plan_.compiler);
  texts("notes", plan_.notes);
  field("options", plan_.options);
  field("passes", plan_.passes);
  flag("updates_by_range", plan_.updates_by_range);
  objects("remarks", plan_.remarks, [&](const base::Remark& r) { write_remark(w_, r); });
  objects("mesh", plan_.mesh, [&](const auto& axis) {
    field("name", axis.first);
    field("size", axis.second);
  });
  field("device", base::name(plan_.device));
  field("threads", plan_.threads);
  field("accumulation", plan_.accumulation);
  field("chain", plan_.chain);
  objects("streams", plan_.streams, [&](const plan::Stream& s) {
    field("name", s.name);
    field("space", plan::name(s.space));
  });
  field("events", plan_.events);
  objects("groups", plan_.groups, [&](const plan::Group& g) {
    integers("ranks", plan::ranks_of_group(plan_, g.axes, 0));
    field("axis", plan::axes_text(plan_, g.axes));
    field("stream", g.stream);
  });
}

void JsonDump::memory() {
  integers("arena_bytes", plan_.arena_bytes);
  integers("budgets", plan_.budgets);
  objects("slices", plan_.slices, [&](const plan::Slice& s) {
    field("space", plan::name(s.space));
    field("offset", s.offset);
    field("bytes", s.bytes);
    field("program", s.program);
    field("first", s.first);
    field("last", s.last);
    field("kind", plan::name(s.kind));
  });
  objects("tensors", plan_.tensors, [&](const plan::Tensor& t) {
    field("name", t.name);
    field("dtype", base::name(t.dtype));
    integers("sizes", t.sizes);
    integers("strides", t.strides);
    field("slice", t.slice);
    field("offset", t.offset);
    field("rank_stride", t.rank_stride);
    if (!plan::is_world(plan_, t.stride_axes))
      field("stride_axes", plan::axes_text(plan_, t.stride_axes));
  });
}

void JsonDump::initializer(const plan::Initializer& i) {
  w_.key("initializer").begin_object();
  field("kind", plan::name(i.kind));
  real("a", i.a);
  real("b", i.b);
  if (i.zero_row >= 0) field("zero_row", i.zero_row);
  w_.end_object();
}

void JsonDump::record(const plan::ArchiveRecord& r) {
  w_.key("record");
  if (r.entry.empty()) {
    w_.null();
    return;
  }
  w_.begin_object();
  field("entry", r.entry);
  field("dtype", base::name(r.dtype));
  integers("sizes", r.sizes);
  integers("strides", r.strides);
  field("offset", r.offset);
  w_.end_object();
}

void JsonDump::parameter(const plan::Parameter& p) {
  field("fqn", p.fqn);
  texts("aliases", p.aliases);
  field("dtype", base::name(p.dtype));
  integers("sizes", p.sizes);
  flag("trainable", p.trainable);
  initializer(p.initializer);
  record(p.record);
  field("group", p.group);
  field("shard", p.shard);
  field("trainable_index", p.trainable_index);
  field("gradient", p.gradient);
  field("gradient_ready", p.gradient_ready);
}

void JsonDump::model() {
  objects("state", plan_.state, [&](const plan::StateEntry& s) {
    field("name", s.name);
    field("tensor", s.tensor);
    field("source", plan::name(s.source));
    field("parameter", s.parameter);
    field("buffer", s.buffer);
    integers("data", s.data);
    field("role", plan::name(s.role));
    objects("placement", s.placement, [&](const plan::AxisPlacement& p) {
      field("axis", p.axis);
      field("spread", plan::name(p.spread));
      field("dim", p.dim);
      field("shard", p.shard);
    });
    field("range_of", s.range_of);
  });
  objects("parameters", plan_.parameters, [&](const plan::Parameter& p) { parameter(p); });
  objects("buffers", plan_.buffers, [&](const plan::Buffer& b) {
    field("fqn", b.fqn);
    field("dtype", base::name(b.dtype));
    integers("sizes", b.sizes);
    flag("persistent", b.persistent);
    initializer(b.initializer);
    record(b.record);
  });
  inputs(plan_.inputs);
}

void JsonDump::inputs(const std::vector<plan::Input>& list) {
  objects("inputs", list, [&](const plan::Input& i) {
    field("name", i.name);
    field("role", plan::name(i.role));
    real("low", i.low);
    real("high", i.high);
    field("tensor", i.tensor);
    if (i.role == plan::InputRole::Labels)
      field("labels", std::string_view(i.next ? "next" : "same"));
  });
}

void JsonDump::optimizer() {
  const plan::Optimizer& o = plan_.optimizer;
  w_.key("optimizer").begin_object();
  field("kind", plan::optimizer_name(o.kind));
  objects("groups", o.groups, [&](const plan::OptimizerGroup& g) {
    field("match", g.match);
    real("lr", g.lr);
    real("weight_decay", g.weight_decay);
    real("beta1", g.beta1);
    real("beta2", g.beta2);
    real("eps", g.eps);
    real("momentum", g.momentum);
    real("dampening", g.dampening);
    flag("nesterov", g.nesterov);
  });
  flag("clip", o.clip);
  real("clip_norm", o.clip_norm);
  field("seed", std::to_string(o.seed));  // 64 bits do not survive every JSON reader
  field("schedule", plan::schedule_name(o.schedule));
  field("warmup_steps", o.warmup_steps);
  field("total_steps", o.total_steps);
  real("final_lr_fraction", o.final_lr_fraction);
  w_.end_object();
  w_.key("step_tensors").begin_object();
  field("hyperparameters", plan_.hyperparameters);
  field("rng", plan_.rng);
  field("scalars", plan_.scalars);
  field("table", plan_.table);
  field("loss_sum", plan_.loss_sum);
  w_.end_object();
}

void JsonDump::prediction(const plan::Prediction& p) {
  w_.key("prediction").begin_object();
  field("compute_ns", p.compute_ns);
  field("communication_ns", p.communication_ns);
  field("step_ns", p.step_ns);
  field("peak_bytes", p.peak_bytes);
  field("live_bytes", p.live_bytes);
  integers("wire_bytes", p.wire_bytes);
  field("origin", p.origin);
  field("copy_ns", p.copy_ns);
  field("copied_out_bytes", p.copied_out_bytes);
  field("copied_in_bytes", p.copied_in_bytes);
  field("contention_ns", p.contention_ns);
  integers("bounds_ns", p.bounds_ns);
  field("without_norm_ns", p.without_norm_ns);
  integers("figures_ns", p.figures_ns);
  w_.end_object();
}

void JsonDump::argument(const plan::Arg& arg) {
  field("name", arg.name);
  field("kind", plan::name(arg.kind));
  switch (arg.kind) {
    case plan::ArgKind::None:
    case plan::ArgKind::Device:
      return;
    case plan::ArgKind::Tensor:
    case plan::ArgKind::Int:
    case plan::ArgKind::DType:
    case plan::ArgKind::Layout:
    case plan::ArgKind::MemoryFormat:
      field("value", arg.i);
      return;
    case plan::ArgKind::Bool:
      flag("value", arg.i != 0);
      return;
    case plan::ArgKind::Tensors:
    case plan::ArgKind::Ints:
      integers("value", arg.ints);
      return;
    case plan::ArgKind::Bools:
      array("value", arg.ints, [&](int64_t v) { w_.boolean(v != 0); });
      return;
    case plan::ArgKind::Float:
      real("value", arg.f);
      return;
    case plan::ArgKind::Floats:
      array("value", arg.floats, [&](double v) { w_.real(v); });
      return;
    case plan::ArgKind::String:
      field("value", arg.s);
      return;
  }
}

void JsonDump::instruction(const plan::Instruction& in) {
  field("kind", plan::name(in.kind));
  field("stream", in.stream);
  switch (in.kind) {
    case plan::InstructionKind::Kernel:
      field("provider", name(in.provider));
      field("op", in.op);
      objects("args", in.args, [&](const plan::Arg& a) { argument(a); });
      integers("outputs", in.outputs);
      field("scratch", in.scratch);
      break;
    case plan::InstructionKind::Collective:
      field("collective", plan::name(in.collective));
      field("group", in.group);
      objects("buffers", in.buffers, [&](const plan::CollectiveBuffer& b) {
        field("input", b.input);
        field("output", b.output);
        field("elements", b.elements);
        field("shard", b.shard);
      });
      break;
    case plan::InstructionKind::Copy:
      field("src", in.src);
      field("dst", in.dst);
      break;
    case plan::InstructionKind::Signal:
    case plan::InstructionKind::Wait:
      field("event", in.event);
      break;
  }
  integers("reads", in.reads);
  integers("writes", in.writes);
  field("module", in.module);
  field("phase", plan::phase_name(in.phase));
}

void JsonDump::runs(const std::vector<plan::ProgramRun>& list) {
  objects("step", list, [&](const plan::ProgramRun& r) {
    field("program", r.program);
    field("repeat", r.repeat);
  });
}

std::string JsonDump::run() {
  w_.begin_object();
  head();
  memory();
  model();
  optimizer();
  prediction(plan_.prediction);
  runs(plan_.step);
  objects("variants", plan_.variants, [&](const plan::Variant& v) {
    field("purpose", plan::name(v.purpose));
    runs(v.step);
    inputs(v.inputs);
    prediction(v.prediction);
  });
  objects("programs", plan_.programs, [&](const plan::Program& p) {
    field("name", p.name);
    objects("instructions", p.instructions, [&](const plan::Instruction& in) { instruction(in); });
    integers("duration_ns", p.duration_ns);
  });
  w_.end_object();
  return w_.take() + "\n";
}

}  // namespace

std::string to_json(const plan::Plan& plan) { return JsonDump(plan).run(); }

}  // namespace dc::runtime::report
