// `dcc inspect --as=json`: every field of the plan under its name in the lists of
// runtime/plan/plan.h. "schema" tells readers which shape to expect.
#include <algorithm>
#include <type_traits>

#include "runtime/plan/fields.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/names.h"
#include "runtime/plan/schema_version.h"
#include "runtime/report/report.h"
#include "src/base/json_writer.h"

namespace dc::runtime::report {
namespace {

// The plan's own fields, in the order in which readers are used to find them. Others come last.
constexpr std::string_view kOrder[] = {
    "name",        "model_digest", "step_digest", "profile_digest", "options_digest",
    "compiler",    "notes",        "options",     "passes",         "updates_by_range",
    "remarks",     "mesh",         "device",      "threads",        "accumulation",
    "sums",        "chain",        "streams",     "events",         "groups",
    "arena_bytes", "budgets",      "slices",      "tensors",        "state",
    "parameters",  "buffers",      "inputs",      "optimizer",      "step_tensors",
    "prediction",  "step",         "variants",    "programs"};

class JsonDump {
 public:
  explicit JsonDump(const plan::Plan& plan) : plan_(plan) {}
  std::string run();

 private:
  void value(bool v) { w_.boolean(v); }
  void value(double v) { w_.real(v); }
  void value(uint64_t v) { w_.string(std::to_string(v)); }  // not every JSON reader has 64 bits
  void value(std::string_view v) { w_.string(v); }
  template <typename T>
  void value(const std::vector<T>& items) {
    w_.begin_array();
    for (const T& item : items) value(item);
    w_.end_array();
  }
  template <typename T>
  void value(const T& item) {
    if constexpr (std::is_enum_v<T>) {
      w_.string(name(item));
    } else if constexpr (std::is_integral_v<T>) {
      w_.integer(item);
    } else if constexpr (std::is_convertible_v<T, std::string_view>) {
      w_.string(item);
    } else {
      w_.begin_object();
      fields(item);
      w_.end_object();
    }
  }
  template <typename T>
  void field(std::string_view key, const T& v) {
    w_.key(key);
    value(v);
  }
  template <const auto& list, typename Struct>
  void all(const Struct& item, plan::FieldSet<list> but = {}) {
    size_t index = 0;
    for_each_field(list, [&](const auto& each) {
      if (!but.has(index++)) field(each.name, each.of(item));
    });
  }

  template <typename Struct>
  void fields(const Struct& item) {
    all<plan::kFields<Struct>>(item);
  }
  void fields(const plan::Tensor& t);
  void fields(const plan::Group& g);
  void fields(const plan::SumOrder& s);
  void fields(const plan::Initializer& i);
  void fields(const plan::Input& i);
  void fields(const plan::Arg& arg);
  void fields(const plan::Instruction& in);
  void value(const plan::ArchiveRecord& r);
  void value(const base::Remark& r) {
    w_.begin_object();
    write_remark(w_, r);
    w_.end_object();
  }
  template <typename Visit>
  static void root(Visit visit) {
    for_each_field(plan::kFields<plan::Plan>, visit);
    for_each_field(plan::kRankClassFields, visit);
  }

  const plan::Plan& plan_;
  base::JsonWriter w_{1};
};

void JsonDump::fields(const plan::Tensor& t) {
  all<plan::kFields<plan::Tensor>>(t, {"stride_axes"});
  if (!plan::is_world(plan_, t.stride_axes))
    field("stride_axes", plan::axes_text(plan_, t.stride_axes));
}

void JsonDump::fields(const plan::Group& g) {
  field("ranks", plan::ranks_of_group(plan_, g.axes, 0));
  field("axis", plan::axes_text(plan_, g.axes));
  all<plan::kFields<plan::Group>>(g, {"axes"});
}

void JsonDump::fields(const plan::SumOrder& s) {
  all<plan::kFields<plan::SumOrder>>(s, {"levels", "shards"});
  w_.key("levels").begin_array();
  for (const uint32_t axes : s.levels) w_.string(plan::axes_text(plan_, axes));
  w_.end_array();
  field("shards", plan::axes_text(plan_, s.shards));
}

void JsonDump::fields(const plan::Initializer& i) {
  using Fields = plan::FieldSet<plan::kFields<plan::Initializer>>;
  all<plan::kFields<plan::Initializer>>(i, i.zero_row < 0 ? Fields("zero_row") : Fields());
}

void JsonDump::value(const plan::ArchiveRecord& r) {
  if (r.entry.empty()) {
    w_.null();
    return;
  }
  w_.begin_object();
  fields(r);
  w_.end_object();
}

void JsonDump::fields(const plan::Input& i) {
  all<plan::kFields<plan::Input>>(i, {"next", "guessed", "ignored"});
  if (i.guessed) w_.field("guessed", true);
  if (i.ignored != base::kIgnoredLabel) w_.field("ignored", i.ignored);
  if (i.role == plan::InputRole::Labels) w_.field("labels", i.next ? "next" : "same");
}

void JsonDump::fields(const plan::Arg& arg) {
  field("name", arg.name);
  field("kind", arg.kind);
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
      field("value", arg.i != 0);
      return;
    case plan::ArgKind::Tensors:
    case plan::ArgKind::Ints:
      field("value", arg.ints);
      return;
    case plan::ArgKind::Bools:
      w_.key("value").begin_array();
      for (const int64_t v : arg.ints) w_.boolean(v != 0);
      w_.end_array();
      return;
    case plan::ArgKind::Float:
      field("value", arg.f);
      return;
    case plan::ArgKind::Floats:
      field("value", arg.floats);
      return;
    case plan::ArgKind::String:
      field("value", arg.s);
      return;
  }
}

void JsonDump::fields(const plan::Instruction& in) {
  field("kind", in.kind);
  field("stream", in.stream);
  plan::with_kind(in.kind, [&](auto kind) { all<plan::kBodyFields<kind>>(in); });
  all<plan::kFields<plan::Instruction>>(in, {"stream"});
}

std::string JsonDump::run() {
  w_.begin_object();
  w_.field("schema", "dcc.plan/3");
  field("schema_major", plan::kSchemaMajor);
  field("schema_minor", plan::kSchemaMinor);
  for (const std::string_view key : kOrder) {
    root([&](const auto& each) {
      if (each.name == key) field(key, each.of(plan_));
    });
  }
  root([&](const auto& each) {
    if (std::find(std::begin(kOrder), std::end(kOrder), each.name) == std::end(kOrder))
      field(each.name, each.of(plan_));
  });
  w_.end_object();
  return w_.take() + "\n";
}

}  // namespace

std::string to_json(const plan::Plan& plan) { return JsonDump(plan).run(); }

}  // namespace dc::runtime::report
