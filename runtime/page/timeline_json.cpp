#include <map>
#include <string_view>
#include <utility>

#include "runtime/exec/trace.h"
#include "runtime/page/columns.h"
#include "runtime/page/page.h"
#include "runtime/page/reasons.h"
#include "runtime/plan/awaited.h"
#include "runtime/plan/names.h"
#include "runtime/plan/timeline.h"
#include "runtime/report/explain.h"
#include "src/base/json_writer.h"
#include "src/base/units.h"

namespace dc::runtime::page {
namespace {

using base::JsonWriter;

class TimelineJson {
 public:
  TimelineJson(const plan::Loaded& loaded, const exec::TraceFile* trace, const ChosenStep* real)
      : plan_(loaded.plan),
        digest_(loaded.digest),
        trace_(trace),
        real_(real),
        reasons_(loaded.plan) {
    const auto explained = report::explain(plan_, "");
    if (!explained.ok()) return;  // only a request that names something fails
    for (const report::ExplainedFusion& fusion : explained->fusions)
      saved_bytes_[{fusion.program, static_cast<size_t>(fusion.index)}] = fusion.bytes_saved;
  }

  std::string run() {
    json_.begin_object().field("schema", "dcc-timeline/1");
    about();
    json_.key("step").begin_array();
    for (const plan::ProgramRun& run : plan_.step) {
      json_.begin_object().field("program", run.program).field("repeat", run.repeat).end_object();
    }
    json_.end_array();
    json_.key("programs").begin_array();
    for (const plan::Program& program : plan_.programs) add_program(program);
    json_.end_array();
    slices();
    json_.key("real");
    if (real_) {
      real();
    } else {
      json_.null();
    }
    texts("strings", strings_.strings());
    return json_.end_object().take();
  }

 private:
  void texts(std::string_view key, const std::vector<std::string>& list) {
    json_.key(key).begin_array();
    for (const std::string& text : list) json_.string(text);
    json_.end_array();
  }
  void column(std::string_view key, const Column& column) { json_.field(key, column.base64()); }

  void about() {
    json_.key("plan").begin_object();
    json_.field("name", plan_.name).field("digest", digest_).field("chain", plan_.chain);
    json_.field("world", plan_.world()).field("threads", plan_.threads);
    json_.field("accumulation", plan_.accumulation).field("options", plan_.options);
    json_.field("compiler", plan_.compiler).field("origin", plan_.prediction.origin);
    texts("notes", plan_.notes);
    json_.key("remarks").begin_array();
    for (const base::Remark& remark : plan_.remarks) json_.string(remark.pass + ": " + remark.text);
    json_.end_array();
    json_.end_object();
    json_.key("streams").begin_array();
    for (const plan::Stream& stream : plan_.streams) json_.string(stream.name);
    json_.end_array();
    json_.key("spaces").begin_array();
    for (size_t s = 0; s < plan_.arena_bytes.size(); ++s) {
      json_.begin_object().field("name", plan::name(static_cast<plan::Space>(s)));
      json_.field("arena", plan_.arena_bytes[s]).end_object();
    }
    json_.end_array();
    json_.key("kinds").begin_array();
    for (size_t k = 0; k < plan::kSliceKinds; ++k)
      json_.string(plan::name(static_cast<plan::SliceKind>(k)));
    json_.end_array();
  }

  // "mm_25" and "f32[512,320]" of what the instruction makes first.
  std::pair<std::string, std::string> result(const plan::Instruction& in) const {
    if (in.writes.empty()) return {};
    const plan::Tensor& tensor = plan_.tensors[static_cast<size_t>(in.writes[0])];
    std::string type = std::string(base::name(tensor.dtype)) + "[";
    for (size_t d = 0; d < tensor.sizes.size(); ++d) {
      type += (d > 0 ? "," : "") + std::to_string(tensor.sizes[d]);
    }
    return {tensor.name, type + "]"};
  }

  // Remarks are few and shared by many instructions: sets of them are numbered, 0 is the empty one.
  uint64_t reason(const plan::Instruction& in) {
    std::string list;
    for (const size_t remark : reasons_.of(in)) {
      list += (list.empty() ? "" : ",") + std::to_string(remark);
    }
    return reason_sets_.number(list);
  }

  std::string names(const std::vector<int32_t>& tensors) const {
    std::string list;
    for (const int32_t id : tensors)
      list += (list.empty() ? "" : ",") + plan_.tensors[static_cast<size_t>(id)].name;
    return list;
  }

  // Of a fused kernel its expression, its operands and what it saves; of a collective of several
  // buffers what travels; of all others nothing.
  void add_group(const plan::Instruction& in, int64_t saved) {
    std::vector<int32_t> parts;
    std::string body;
    for (const plan::Arg& arg : in.args) {
      if (in.provider != plan::Provider::Fused) break;
      if (arg.kind == plan::ArgKind::Tensor) parts.push_back(static_cast<int32_t>(arg.i));
      if (arg.kind == plan::ArgKind::String) body = arg.s;
    }
    for (const plan::CollectiveBuffer& buffer : in.buffers) {
      if (in.buffers.size() > 1) parts.push_back(buffer.input);
    }
    body_.add(strings_.number(body));
    parts_.add(strings_.number(names(parts)));
    saved_.add(static_cast<uint64_t>(saved));
  }

  void add_program(const plan::Program& program) {
    const plan::ProgramTimeline line = plan::predicted_timeline(plan_, program);
    const std::vector<int32_t> awaited = plan::awaited(plan_, program);
    Column kind, stream, phase, op, node, type, module, bytes, awaits, reasons, begin, length;
    body_ = parts_ = saved_ = {};
    int64_t previous = 0;
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const plan::Instruction& in = program.instructions[i];
      const auto [node_name, type_name] = result(in);
      kind.add(static_cast<uint64_t>(in.kind));
      stream.add(static_cast<uint64_t>(in.stream));
      phase.add(static_cast<int64_t>(in.phase));
      op.add(strings_.number(exec::instruction_name(in)));
      node.add(strings_.number(node_name));
      type.add(strings_.number(type_name));
      module.add(strings_.number(in.module));
      bytes.add(static_cast<uint64_t>(exec::written_bytes(plan_, in)));
      awaits.add(static_cast<uint64_t>(int64_t{awaited[i]} + 1));
      reasons.add(reason(in));
      add_group(in, saved_bytes_[{&program - plan_.programs.data(), i}]);
      begin.add_signed(line.begin_ns[i] - previous);
      length.add(static_cast<uint64_t>(line.end_ns[i] - line.begin_ns[i]));
      previous = line.begin_ns[i];
    }
    json_.begin_object().field("name", program.name);
    json_.field("count", static_cast<int64_t>(program.instructions.size()));
    json_.field("time_ns", line.time_ns).field("exposed_ns", line.exposed_ns);
    json_.field("collective_ns", line.collective_ns);
    column("kind", kind), column("stream", stream), column("phase", phase), column("op", op);
    column("node", node), column("type", type), column("module", module), column("bytes", bytes);
    column("awaits", awaits), column("reasons", reasons), column("begin", begin);
    column("length", length), column("body", body_), column("parts", parts_);
    column("saved", saved_);
    texts("reason_sets", reason_sets_.strings());
    reason_sets_ = StringTable();
    json_.end_object();
  }

  void slices() {
    Column space, kind, program, first, last, bytes;
    for (const plan::Slice& slice : plan_.slices) {
      space.add(static_cast<uint64_t>(slice.space));
      kind.add(static_cast<uint64_t>(slice.kind));
      program.add(static_cast<uint64_t>(int64_t{slice.program} + 1));
      first.add(static_cast<uint64_t>(slice.first));
      last.add(static_cast<uint64_t>(slice.last));
      bytes.add(static_cast<uint64_t>(base::round_up(slice.bytes, base::kAlignment)));
    }
    json_.key("slices").begin_object();
    json_.field("count", static_cast<int64_t>(plan_.slices.size()));
    column("space", space), column("kind", kind), column("program", program);
    column("first", first), column("last", last), column("bytes", bytes);
    json_.end_object();
  }

  // By rank and run of a program in the step; an instruction that left no record has length 0, any
  // other 1 more than it took.
  void real() {
    std::vector<int32_t> program_of_run;
    for (const plan::ProgramRun& run : plan_.step) {
      program_of_run.insert(program_of_run.end(), static_cast<size_t>(run.repeat), run.program);
    }
    std::map<std::pair<int32_t, int32_t>, std::vector<const exec::TraceEvent*>>
        events;  // by rank, run
    for (const exec::TraceEvent& event : real_->events) {
      events[{event.rank, event.run}].push_back(&event);
    }
    json_.begin_object().field("communicator", trace_->communicator);
    json_.field("step", real_->step).field("whole_steps", real_->whole_steps);
    json_.key("ranks").begin_array();
    for (const int32_t rank : real_->ranks) {
      json_.begin_object().field("rank", rank).key("runs").begin_array();
      for (size_t run = 0; run < program_of_run.size(); ++run) {
        real_run(events[{rank, static_cast<int32_t>(run)}], program_of_run[run]);
      }
      json_.end_array().end_object();
    }
    json_.end_array().end_object();
  }

  void real_run(const std::vector<const exec::TraceEvent*>& events, int32_t program) {
    const size_t count = plan_.programs[static_cast<size_t>(program)].instructions.size();
    std::vector<const exec::TraceEvent*> records(count);
    for (const exec::TraceEvent* event : events) {
      if (event->program == program) records[static_cast<size_t>(event->instruction)] = event;
    }
    Column begin, length;
    int64_t previous = 0;
    for (const exec::TraceEvent* record : records) {
      begin.add_signed(record ? record->begin_ns - previous : 0);
      length.add(record ? static_cast<uint64_t>(record->end_ns - record->begin_ns) + 1 : 0);
      if (record) previous = record->begin_ns;
    }
    json_.begin_object();
    column("begin", begin), column("length", length);
    json_.end_object();
  }

  const plan::Plan& plan_;
  const std::string& digest_;
  const exec::TraceFile* trace_;
  const ChosenStep* real_;
  Reasons reasons_;
  StringTable strings_, reason_sets_;
  Column body_, parts_, saved_;  // of the program that is being written
  std::map<std::pair<std::ptrdiff_t, size_t>, int64_t> saved_bytes_;  // by program and instruction
  JsonWriter json_;
};

}  // namespace

std::string timeline_json(const plan::Loaded& loaded, const exec::TraceFile* trace,
                          const ChosenStep* real) {
  return TimelineJson(loaded, trace, real).run();
}

}  // namespace dc::runtime::page
