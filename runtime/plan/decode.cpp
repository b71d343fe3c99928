// FlatBuffers to plan structs. Trusts nothing: the FlatBuffers verifier first, then every enum,
// then the ids.
#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/plan/bad_plan.h"
#include "runtime/plan/file.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/schema_version.h"
#include "runtime/plan/structure.h"
#include "schemas/plan_generated.h"
#include "src/base/file.h"
#include "src/base/sha256.h"

namespace dc::runtime::plan {
namespace {

namespace fb = dc::schema;
using base::Status;
using FbString = const flatbuffers::String*;
template <typename T>
using FbVector = const flatbuffers::Vector<T>*;
template <typename T>
using FbTables = FbVector<flatbuffers::Offset<T>>;

constexpr int kMaxDepth = 16;
constexpr int64_t kMaxExpansion =
    64;  // copied bytes per payload byte: sharing is fine, bombs are not

class Decoder {
 public:
  explicit Decoder(int64_t payload_bytes) : budget_(payload_bytes * kMaxExpansion + (1 << 16)) {}
  Status run(const fb::Plan& from, Plan& to);

 private:
  // The first failure sticks; decoding goes on with harmless values.
  void fail(const char* code, const std::string& what) {
    if (status_.ok()) status_ = bad_plan(code, what);
  }
  bool spend(size_t bytes) {
    budget_ -= static_cast<int64_t>(bytes);
    if (budget_ < 0) fail("DC3008", "it expands far beyond its size");
    return budget_ >= 0;
  }
  std::string text(FbString s) { return s && spend(s->size()) ? s->str() : std::string(); }
  template <typename T>
  std::vector<T> numbers(FbVector<T> v) {
    if (!v || !spend(v->size() * sizeof(T))) return {};
    // Copied as bytes: the verifier does not promise that elements are aligned.
    std::vector<T> out(v->size());
    if (!out.empty()) std::memcpy(out.data(), v->Data(), out.size() * sizeof(T));
    for (T& value : out) value = flatbuffers::EndianScalar(value);
    return out;
  }
  std::vector<std::string> texts(FbTables<flatbuffers::String> v) {
    std::vector<std::string> out;
    if (!v || !spend(v->size() * sizeof(std::string))) return out;
    for (const flatbuffers::String* s : *v) out.push_back(text(s));
    return out;
  }
  template <typename To, typename From, typename Decode>
  void tables(FbTables<From> from, std::vector<To>& to, Decode decode) {
    if (!from || !spend(from->size())) return;
    to.reserve(from->size());
    for (const From* item : *from) to.push_back(decode(*item));
  }
  // The schema's and our enumerators have equal numbers.
  template <typename To, typename From>
  To enumerator(From value, From max, const char* what) {
    if (value <= max) return static_cast<To>(value);
    fail("DC3101",
         std::string(what) + " " + std::to_string(static_cast<int>(value)) + " is unknown");
    return static_cast<To>(0);
  }
  DType dtype(fb::DType value) {
    if (auto known = base::dtype_from_export(static_cast<int64_t>(value))) return *known;
    fail("DC3101", "dtype " + std::to_string(static_cast<int>(value)) + " is unknown");
    return DType::F32;
  }
  static uint32_t axes(uint32_t value) { return value == 0 ? kAllAxes : value; }
  Space space(fb::Space value) { return enumerator<Space>(value, fb::Space::MAX, "memory space"); }

  Arg arg(const fb::Arg& from);
  void kernel(const fb::Kernel& from, Instruction& to);
  void collective(const fb::Collective& from, Instruction& to);
  Instruction instruction(const fb::Instruction& from);
  Initializer initializer(const fb::Initializer* from);
  ArchiveRecord record(const fb::ArchiveRecord* from);
  Parameter parameter(const fb::Parameter& from);
  Buffer buffer(const fb::Buffer& from);
  StateEntry state(const fb::StateEntry& from);
  base::Remark remark(const fb::Remark& from);
  void optimizer(const fb::Optimizer& from, Optimizer& to);
  void prediction(const fb::Prediction& from, Prediction& to);
  void inputs(FbTables<fb::Input> from, std::vector<Input>& to);
  void runs(FbTables<fb::ProgramRun> from, std::vector<ProgramRun>& to);
  Variant variant(const fb::Variant& from);
  void memory(const fb::Plan& from, Plan& to);
  void model(const fb::Plan& from, Plan& to);
  void mesh_and_groups(const fb::Plan& from, Plan& to);
  void programs(const fb::Plan& from, Plan& to);

  int64_t budget_;
  Status status_;
};

Arg Decoder::arg(const fb::Arg& from) {
  Arg to;
  to.name = text(from.name());
  to.kind = enumerator<ArgKind>(from.kind(), fb::ArgKind::MAX, "argument kind");
  to.i = from.value();
  to.ints = numbers(from.ints());
  to.s = text(from.text());
  std::vector<double> floats = numbers(from.floats());
  if (to.kind != ArgKind::Float) {
    to.floats = std::move(floats);
  } else if (floats.size() == 1) {
    to.f = floats[0];
  } else {
    fail("DC3103", "float argument '" + to.name + "' has no single value");
  }
  return to;
}

void Decoder::kernel(const fb::Kernel& from, Instruction& to) {
  to.kind = InstructionKind::Kernel;
  to.provider = enumerator<Provider>(from.provider(), fb::Provider::MAX, "provider");
  to.op = text(from.op());
  tables(from.args(), to.args, [&](const fb::Arg& a) { return arg(a); });
  to.outputs = numbers(from.outputs());
  to.scratch = from.scratch();
}

void Decoder::collective(const fb::Collective& from, Instruction& to) {
  to.kind = InstructionKind::Collective;
  to.collective =
      enumerator<CollectiveKind>(from.kind(), fb::CollectiveKind::MAX, "collective kind");
  to.group = from.group();
  tables(from.buffers(), to.buffers, [](const fb::CollectiveBuffer& b) {
    return CollectiveBuffer{b.input(), b.output(), b.elements(), b.shard()};
  });
}

Instruction Decoder::instruction(const fb::Instruction& from) {
  Instruction to;
  const fb::Body type = from.body() ? from.body_type() : fb::Body::NONE;
  if (type == fb::Body::Kernel) {
    kernel(*from.body_as_Kernel(), to);
  } else if (type == fb::Body::Collective) {
    collective(*from.body_as_Collective(), to);
  } else if (type == fb::Body::Copy) {
    to.kind = InstructionKind::Copy;
    to.src = from.body_as_Copy()->src();
    to.dst = from.body_as_Copy()->dst();
  } else if (type == fb::Body::Signal) {
    to.kind = InstructionKind::Signal;
    to.event = from.body_as_Signal()->event();
  } else if (type == fb::Body::Wait) {
    to.kind = InstructionKind::Wait;
    to.event = from.body_as_Wait()->event();
  } else {
    fail("DC3101", "instruction kind " + std::to_string(static_cast<int>(type)) + " is unknown");
  }
  to.stream = from.stream();
  to.reads = numbers(from.reads());
  to.writes = numbers(from.writes());
  to.module = text(from.module_name());
  to.phase = enumerator<uint8_t>(from.phase(), fb::Phase::MAX, "phase");
  return to;
}

Initializer Decoder::initializer(const fb::Initializer* from) {
  if (!from) return {};
  return {enumerator<InitKind>(from->kind(), fb::InitKind::MAX, "initializer"), from->a(),
          from->b(), from->zero_row()};
}

ArchiveRecord Decoder::record(const fb::ArchiveRecord* from) {
  if (!from) return {};
  return {text(from->entry()), dtype(from->dtype()), numbers(from->sizes()),
          numbers(from->strides()), from->offset()};
}

Parameter Decoder::parameter(const fb::Parameter& from) {
  Parameter to;
  to.fqn = text(from.fqn());
  to.aliases = texts(from.aliases());
  to.dtype = dtype(from.dtype());
  to.sizes = numbers(from.sizes());
  to.trainable = from.trainable();
  to.initializer = initializer(from.initializer());
  to.record = record(from.record());
  to.group = from.group();
  to.shard = from.shard();
  to.trainable_index = from.trainable_index();
  to.gradient = from.gradient();
  to.gradient_ready = from.gradient_ready();
  return to;
}

Buffer Decoder::buffer(const fb::Buffer& from) {
  Buffer to;
  to.fqn = text(from.fqn());
  to.dtype = dtype(from.dtype());
  to.sizes = numbers(from.sizes());
  to.persistent = from.persistent();
  to.initializer = initializer(from.initializer());
  to.record = record(from.record());
  return to;
}

StateEntry Decoder::state(const fb::StateEntry& from) {
  StateEntry to;
  to.name = text(from.name());
  to.tensor = from.tensor();
  to.source = enumerator<StateSource>(from.source(), fb::StateSource::MAX, "state source");
  to.parameter = from.parameter();
  to.buffer = from.buffer();
  to.data = numbers(from.data());
  to.role = enumerator<StateRole>(from.role(), fb::StateRole::MAX, "state role");
  tables(from.placement(), to.placement, [&](const fb::AxisPlacement& p) {
    return AxisPlacement{p.axis(), enumerator<Spread>(p.spread(), fb::Spread::MAX, "spread"),
                         p.dim(), p.shard()};
  });
  to.range_of = from.range_of();
  return to;
}

base::Remark Decoder::remark(const fb::Remark& from) {
  base::Remark to;
  to.pass = text(from.pass());
  to.code = text(from.code());
  tables(from.subjects(), to.subjects, [&](const fb::RemarkSubject& s) {
    return base::RemarkSubject{
        enumerator<base::SubjectKind>(s.kind(), fb::SubjectKind::MAX, "subject of a remark"),
        s.id()};
  });
  tables(from.numbers(), to.numbers, [&](const fb::RemarkNumber& n) {
    return base::RemarkNumber{text(n.name()), n.value()};
  });
  to.text = text(from.text());
  return to;
}

void Decoder::optimizer(const fb::Optimizer& from, Optimizer& to) {
  to.kind = enumerator<uint8_t>(from.kind(), fb::OptimizerKind::MAX, "optimizer");
  tables(from.groups(), to.groups, [&](const fb::OptimizerGroup& g) {
    return OptimizerGroup{text(g.match()), g.lr(),       g.weight_decay(), g.beta1(),   g.beta2(),
                          g.eps(),         g.momentum(), g.dampening(),    g.nesterov()};
  });
  to.clip = from.clip();
  to.clip_norm = from.clip_norm();
  to.seed = from.seed();
  to.schedule = enumerator<uint8_t>(from.schedule(), fb::ScheduleKind::MAX, "schedule");
  to.warmup_steps = from.warmup_steps();
  to.total_steps = from.total_steps();
  to.final_lr_fraction = from.final_lr_fraction();
}

void Decoder::prediction(const fb::Prediction& from, Prediction& to) {
  to.compute_ns = from.compute_ns();
  to.communication_ns = from.communication_ns();
  to.step_ns = from.step_ns();
  to.peak_bytes = from.peak_bytes();
  to.live_bytes = from.live_bytes();
  to.wire_bytes = numbers(from.wire_bytes());
  to.origin = text(from.origin());
  to.copy_ns = from.copy_ns();
  to.copied_out_bytes = from.copied_out_bytes();
  to.copied_in_bytes = from.copied_in_bytes();
  to.contention_ns = from.contention_ns();
  to.bounds_ns = numbers(from.bounds_ns());
  to.without_norm_ns = from.without_norm_ns();
  to.figures_ns = numbers(from.figures_ns());
}

void Decoder::memory(const fb::Plan& from, Plan& to) {
  to.arena_bytes = numbers(from.arena_bytes());
  to.budgets = numbers(from.budgets());
  tables(from.slices(), to.slices, [&](const fb::Slice& s) {
    return Slice{space(s.space()),
                 s.offset(),
                 s.bytes(),
                 s.program(),
                 s.first(),
                 s.last(),
                 enumerator<SliceKind>(s.kind(), fb::SliceKind::MAX, "slice kind")};
  });
  tables(from.tensors(), to.tensors, [&](const fb::Tensor& t) {
    return Tensor{text(t.name()), dtype(t.dtype()), numbers(t.sizes()), numbers(t.strides()),
                  t.slice(),      t.offset(),       t.rank_stride(),    axes(t.stride_axes())};
  });
}

void Decoder::model(const fb::Plan& from, Plan& to) {
  tables(from.state(), to.state, [&](const fb::StateEntry& s) { return state(s); });
  tables(from.parameters(), to.parameters, [&](const fb::Parameter& p) { return parameter(p); });
  tables(from.buffers(), to.buffers, [&](const fb::Buffer& b) { return buffer(b); });
  inputs(from.inputs(), to.inputs);
}

void Decoder::inputs(FbTables<fb::Input> from, std::vector<Input>& to) {
  tables(from, to, [&](const fb::Input& i) {
    return Input{text(i.name()), enumerator<InputRole>(i.role(), fb::InputRole::MAX, "input role"),
                 i.low(),        i.high(),
                 i.tensor(),     i.next()};
  });
}

void Decoder::runs(FbTables<fb::ProgramRun> from, std::vector<ProgramRun>& to) {
  tables(from, to, [](const fb::ProgramRun& r) { return ProgramRun{r.program(), r.repeat()}; });
}

Variant Decoder::variant(const fb::Variant& from) {
  Variant to;
  to.purpose = enumerator<Purpose>(from.purpose(), fb::Purpose::MAX, "purpose");
  runs(from.step(), to.step);
  inputs(from.inputs(), to.inputs);
  if (from.prediction()) prediction(*from.prediction(), to.prediction);
  return to;
}

void Decoder::mesh_and_groups(const fb::Plan& from, Plan& to) {
  tables(from.mesh(), to.mesh, [&](const fb::MeshAxis& a) {
    return std::pair<std::string, int32_t>(text(a.name()), a.size());
  });
  tables(from.streams(), to.streams, [&](const fb::Stream& s) {
    return Stream{text(s.name()), space(s.space())};
  });
  tables(from.groups(), to.groups, [&](const fb::Group& g) {
    return Group{axes(g.axes()), g.stream()};
  });
}

void Decoder::programs(const fb::Plan& from, Plan& to) {
  const auto* classes = from.rank_classes();
  if (!classes || classes->size() != 1 ||
      (classes->Get(0)->coordinates() && classes->Get(0)->coordinates()->size() > 0)) {
    fail("DC3102", "it does not have exactly one rank class of all ranks");
    return;
  }
  const fb::RankClass& all = *classes->Get(0);
  tables(all.programs(), to.programs, [&](const fb::Program& p) {
    Program program;
    program.name = text(p.name());
    tables(p.instructions(), program.instructions,
           [&](const fb::Instruction& i) { return instruction(i); });
    program.duration_ns = numbers(p.duration_ns());
    return program;
  });
  runs(all.step(), to.step);
}

Status Decoder::run(const fb::Plan& from, Plan& to) {
  to.name = text(from.name());
  to.model_digest = text(from.model_digest());
  to.profile_digest = text(from.profile_digest());
  to.options_digest = text(from.options_digest());
  to.compiler = text(from.compiler());
  to.notes = texts(from.notes());
  to.options = text(from.options());
  tables(from.decisions(), to.remarks, [&](const fb::Remark& r) { return remark(r); });
  to.passes = text(from.passes());
  to.updates_by_range = from.updates_by_range();
  to.step_digest = texts(from.step_digest());
  to.device = enumerator<base::DeviceKind>(from.device(), fb::DeviceKind::MAX, "device kind");
  to.threads = from.threads();
  to.accumulation = from.accumulation();
  to.chain = text(from.chain());
  to.events = from.events();
  memory(from, to);
  model(from, to);
  mesh_and_groups(from, to);
  programs(from, to);
  tables(from.variants(), to.variants, [&](const fb::Variant& v) { return variant(v); });
  if (from.optimizer()) optimizer(*from.optimizer(), to.optimizer);
  if (from.prediction()) prediction(*from.prediction(), to.prediction);
  if (const fb::StepTensors* s = from.step_tensors()) {
    to.hyperparameters = s->hyperparameters();
    to.rng = s->rng();
    to.scalars = s->scalars();
    to.table = s->rank_table();
    to.loss_sum = s->loss_sum();
  }
  return status_;
}

// A group's ranks follow from its axes; readers that know no axes go by the ranks, so both must say
// the same. After check_structure.
Status check_listed_ranks(const fb::Plan& from, const Plan& plan) {
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const auto* listed = from.groups()->Get(static_cast<flatbuffers::uoffset_t>(i))->ranks();
    const uint32_t axes = plan.groups[i].axes;
    const size_t count = listed == nullptr ? 0 : listed->size();
    bool equal = count == static_cast<size_t>(group_size(plan, axes));
    const auto ranks = equal ? ranks_of_group(plan, axes, 0) : std::vector<int32_t>();
    for (size_t r = 0; equal && r < count; ++r) {
      equal = listed->Get(static_cast<flatbuffers::uoffset_t>(r)) == ranks[r];
    }
    if (equal) continue;
    return bad_plan("DC3106", "group " + std::to_string(i) +
                                  " lists other ranks than those along '" + axes_text(plan, axes) +
                                  "'");
  }
  return {};
}

// Level 0: magic, size, digest. Returns the digest.
base::Result<std::string> check_header(std::span<const uint8_t> file) {
  if (file.size() > static_cast<size_t>(kMaxFileBytes)) {
    return bad_plan("DC3001", "it has " + std::to_string(file.size()) +
                                  " bytes, and 1 GiB is the largest plan there is");
  }
  if (file.size() < static_cast<size_t>(kHeaderBytes)) {
    return bad_plan("DC3002", "it has " + std::to_string(file.size()) +
                                  " bytes, less than a header (it is truncated)");
  }
  if (std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    return bad_plan("DC3003", "it does not begin like a plan (is it another kind of file?)");
  }
  uint64_t size = 0;
  for (int i = 7; i >= 0; --i) size = size << 8 | file[40 + static_cast<size_t>(i)];
  if (size != file.size() - static_cast<size_t>(kHeaderBytes)) {
    return bad_plan("DC3004", "its header announces " + std::to_string(size) + " bytes and " +
                                  std::to_string(file.size() - kHeaderBytes) +
                                  " follow (it is truncated or damaged)");
  }
  const std::string digest = base::sha256_hex(file.subspan(kHeaderBytes));
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (size_t i = 0; i < 32; ++i) {
    const uint8_t byte = file[8 + i];
    if (digest[2 * i] != kDigits[byte >> 4] || digest[2 * i + 1] != kDigits[byte & 15]) {
      return bad_plan("DC3005", "its content does not match its digest (it is damaged)");
    }
  }
  return digest;
}

// Level 1 and the copy into structs.
base::Result<Plan> decode_payload(std::span<const uint8_t> payload) {
  std::vector<uint64_t> aligned;  // FlatBuffers wants 8-byte alignment
  const uint8_t* data = payload.data();
  if (reinterpret_cast<uintptr_t>(data) % 8 != 0) {
    aligned.resize(payload.size() / 8 + 1);
    std::memcpy(aligned.data(), data, payload.size());
    data = reinterpret_cast<const uint8_t*>(aligned.data());
  }
  if (payload.size() < 16 || !fb::PlanBufferHasIdentifier(data)) {
    return bad_plan("DC3006", "its payload is not of format DCP1");
  }
  flatbuffers::Verifier verifier(data, payload.size(), kMaxDepth,
                                 static_cast<flatbuffers::uoffset_t>(payload.size() / 8 + 16));
  if (!fb::VerifyPlanBuffer(verifier)) {
    return bad_plan("DC3007", "its payload is not a well-formed FlatBuffer");
  }
  const fb::Plan& root = *fb::GetPlan(data);
  if (root.schema_major() != kSchemaMajor) {
    return Status(base::ErrorKind::Mismatch, "DC3009",
                  "the plan has schema version " + std::to_string(root.schema_major()) + "." +
                      std::to_string(root.schema_minor()) + " and this program reads version " +
                      std::to_string(kSchemaMajor) + "." + std::to_string(kSchemaMinor) + kCure);
  }
  Plan plan;
  DC_RETURN_IF_ERROR(Decoder(static_cast<int64_t>(payload.size())).run(root, plan));
  DC_RETURN_IF_ERROR(check_structure(plan));
  DC_RETURN_IF_ERROR(check_listed_ranks(root, plan));
  return plan;
}

}  // namespace

base::Result<Plan> decode(std::span<const uint8_t> file) {
  DC_ASSIGN_OR_RETURN(const std::string digest, check_header(file));
  return decode_payload(file.subspan(kHeaderBytes));
}

base::Result<Loaded> read(const std::string& path) {
  DC_ASSIGN_OR_RETURN(const base::MappedFile file, base::MappedFile::open(path));
  const auto in_file = [&](Status status) { return std::move(status).add_context("in " + path); };
  auto digest = check_header(file.bytes());
  if (!digest.ok()) return in_file(std::move(digest).status());
  auto plan = decode_payload(file.bytes().subspan(kHeaderBytes));
  if (!plan.ok()) return in_file(std::move(plan).status());
  return Loaded{std::move(*plan), std::move(*digest)};
}

}  // namespace dc::runtime::plan
