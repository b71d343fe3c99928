#include "src/sim/plan_workload.h"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/plan/extent.h"
#include "runtime/plan/kernel_signature.h"
#include "runtime/plan/names.h"
#include "src/analysis/live_bytes.h"

namespace dc::sim {
namespace {

namespace rp = runtime::plan;
using base::Nanos;
using base::Result;
using base::Status;

bool on_device(const rp::Slice& slice) { return slice.space == rp::Space::Device; }

Status unsupported(const rp::Program& program, size_t index, const std::string& what) {
  return Status(base::ErrorKind::Unsupported, "DC7101",
                "instruction " + std::to_string(index) + " of program '" + program.name + "' " +
                    what + ", which the simulator does not play; compile the plan with this dcc");
}

// One event of the schedule while its place is not final: `key` orders it, then program order.
struct Item {
  int64_t key = 0;
  Event event;
  EventTraits traits;
  std::vector<Access> accesses;
};

class Reader {
 public:
  Reader(const rp::Plan& plan, const rp::Program& program, const cost::CostModel& cost)
      : plan_(plan), program_(program), cost_(cost), events_(plan.events) {
    result_.workload.schedule.streams = static_cast<int>(std::max<size_t>(plan.streams.size(), 1));
    streams_.resize(static_cast<size_t>(result_.workload.schedule.streams));
    for (const rp::Slice& slice : plan.slices) {
      const int64_t bytes =
          slice.program < 0 || !on_device(slice) ? 0 : analysis::aligned_bytes(slice.bytes);
      result_.workload.storages.push_back({{bytes}, slice.program < 0});
    }
    for (const rp::Input& input : plan.inputs) {
      const rp::Tensor& tensor = plan.tensors[static_cast<size_t>(input.tensor)];
      result_.workload.storages[static_cast<size_t>(tensor.slice)].from_start = true;
    }
  }

  Status read() {
    for (size_t i = 0; i < program_.instructions.size(); ++i)
      DC_RETURN_IF_ERROR(add(program_.instructions[i], i));
    return {};
  }

  // `last`: the reader of the step's last program, which may be this one.
  Result<PlannedProgram> finish(const Reader& last) {
    DC_RETURN_IF_ERROR(find_arrivals(last));
    std::stable_sort(items_.begin(), items_.end(),
                     [](const Item& a, const Item& b) { return a.key < b.key; });
    Workload& workload = result_.workload;
    for (Item& item : items_) {
      const auto index = static_cast<int32_t>(workload.schedule.events.size());
      for (Access& access : item.accesses) access.event = index;
      workload.schedule.events.push_back(item.event);
      workload.traits.push_back(item.traits);
      workload.accesses.insert(workload.accesses.end(), item.accesses.begin(), item.accesses.end());
    }
    return std::move(result_);
  }

 private:
  // What a stream other than compute has come to: its next transfer starts no earlier than `key`,
  // and begins when `after` and its last one have ended.
  struct Stream {
    int64_t key = 0;
    int32_t transfer = -1;  // the last one
    std::vector<int32_t> after;
  };
  // The last signal of an event: the stream that signalled, compute's position or that stream's key
  // at that time, and what has ended then.
  struct Given {
    int32_t stream = -1;
    int64_t key = 0;
    std::vector<int32_t> ended;
  };

  Status add(const rp::Instruction& in, size_t index) {
    Stream& stream = streams_[static_cast<size_t>(in.stream)];
    switch (in.kind) {
      case rp::InstructionKind::Kernel:
        return add_kernel(in, index);
      case rp::InstructionKind::Collective:
      case rp::InstructionKind::Copy:
        return add_transfer(in, index);
      case rp::InstructionKind::Signal:
        events_[static_cast<size_t>(in.event)] = signal(in.stream);
        return {};
      case rp::InstructionKind::Wait: {
        const Given& given = events_[static_cast<size_t>(in.event)];
        if (given.stream < 0) return add_arrival(in, index);
        if (given.stream == in.stream) return {};
        if (in.stream == 0) {
          for (const int32_t transfer : given.ended)
            push({EventKind::Done, transfer, static_cast<int32_t>(index), {}}, {}, {});
          return {};
        }
        stream.key = std::max(stream.key, given.key);
        stream.after.insert(stream.after.end(), given.ended.begin(), given.ended.end());
        return {};
      }
    }
    return {};
  }

  Given signal(int32_t number) const {
    if (number == 0) return {0, 2 * done_, {}};
    const Stream& stream = streams_[static_cast<size_t>(number)];
    Given given{number, stream.key, stream.after};
    if (stream.transfer >= 0) given.ended.push_back(stream.transfer);
    return given;
  }

  const std::vector<Transfer>& transfers() const { return result_.workload.schedule.transfers; }

  Status find_arrivals(const Reader& last) {
    std::map<int32_t, int32_t> by_started;
    Schedule& schedule = result_.workload.schedule;
    for (const auto& [item, event] : awaited_) {
      const std::vector<int32_t>& ended = last.events_[static_cast<size_t>(event)].ended;
      const int32_t started = ended.empty() ? -1 : ended.back();
      if (started < 0) return unsupported(program_, 0, "waits for what no program starts");
      const auto [found, is_new] = by_started.try_emplace(started, started);
      if (is_new && &last != this) {
        found->second = static_cast<int32_t>(schedule.transfers.size());
        schedule.transfers.push_back(last.transfers()[static_cast<size_t>(started)]);
        schedule.transfers.back().after.clear();  // of the run before
        result_.sent.push_back(last.result_.sent[static_cast<size_t>(started)]);
      }
      if (is_new) schedule.arrivals.push_back({found->second, started});
      items_[item].event.transfer = found->second;
    }
    return {};
  }

  // A wait for what the step's last program signalled in its previous run.
  Status add_arrival(const rp::Instruction& in, size_t index) {
    if (in.stream != 0) return unsupported(program_, index, "waits for an earlier run");
    awaited_.emplace_back(items_.size(), in.event);
    push({EventKind::Done, -1, static_cast<int32_t>(index), {}}, {}, {});
    return {};
  }

  // Events of compute get odd keys. A start gets the even key before the next event of compute.
  void push(Event event, EventTraits traits, std::vector<Access> accesses) {
    items_.push_back({2 * done_++ + 1, event, traits, std::move(accesses)});
  }

  Status add_kernel(const rp::Instruction& in, size_t index) {
    const bool is_own = in.provider == rp::Provider::Native && !in.op.starts_with("aten.");
    const std::optional<ir::OpKind> kind =
        is_own ? ir::native_op(in.op) : std::optional(ir::OpKind::Aten);
    if (!kind) return unsupported(program_, index, "is the unknown kernel " + in.op);
    const cost::Estimate estimate = cost_.compute(rp::signature_of(plan_, in));
    count(estimate);
    EventTraits traits;
    if (in.scratch >= 0) {
      const rp::Slice& scratch = plan_.slices[static_cast<size_t>(in.scratch)];
      traits.scratch = {analysis::aligned_bytes(scratch.bytes)};
    }
    traits.is_barrier = *kind == ir::OpKind::ClipAndCheck;
    traits.keeps_order =
        in.stream == 0 && in.phase != rp::Phase::Update && !travels_with_collective(*kind);
    std::vector<Access> accesses = accesses_of(in);
    narrow(*kind, in, accesses);
    const Nanos time = std::min(estimate.time, kLongest);
    if (in.stream != 0) {
      start(in, index, kernel_outside_compute(time, in.stream), 0, traits, std::move(accesses));
      return {};
    }
    push({EventKind::Compute, -1, static_cast<int32_t>(index), time}, traits, std::move(accesses));
    return {};
  }

  // Of some operands a kernel touches one cell, whatever else is in them.
  void narrow(ir::OpKind kind, const rp::Instruction& in, std::vector<Access>& accesses) {
    const auto is_operand = [](const rp::Arg& arg) { return arg.kind == rp::ArgKind::Tensor; };
    CellUse use{kind, {}, false};
    for (const rp::Arg& arg : in.args) {
      if (arg.name == "param") use.param = arg.i;
      if (arg.name == "clip") use.clips = arg.i != 0;
    }
    for (size_t i = 0; i < in.args.size(); ++i) {
      const int64_t cell = only_cell(use, i);
      if (cell < 0 || !is_operand(in.args[i])) continue;
      const rp::Tensor& tensor = plan_.tensors[static_cast<size_t>(in.args[i].i)];
      for (Access& access : accesses) {
        if (access.storage != tensor.slice) continue;
        access.first = tensor.offset + cell * base::byte_size(tensor.dtype);
        access.last = access.first + base::byte_size(tensor.dtype);
      }
    }
  }

  Status add_transfer(const rp::Instruction& in, size_t index) {
    Transfer started;
    cost::Estimate estimate;
    int64_t sent = 0;
    if (in.kind == rp::InstructionKind::Copy) {
      const rp::Tensor &from = tensor(in.src), &to = tensor(in.dst);
      const base::Bytes bytes{rp::element_count(from.sizes).value_or(0) *
                              base::byte_size(from.dtype)};
      started = sim::transfer(cost_, bytes, space_of(from), space_of(to));
      estimate = cost_.copy(bytes, space_of(from), space_of(to));
    } else {
      if (!base::has_op(in.collective)) {
        return unsupported(program_, index,
                           "is a collective of kind " + std::string(rp::name(in.collective)));
      }
      base::Bytes bytes;
      for (const rp::CollectiveBuffer& buffer : in.buffers)
        bytes.v += base::wire_bytes(in.collective, buffer.elements,
                                    base::byte_size(tensor(buffer.input).dtype));
      const cost::Group group = group_of(in);
      started = sim::transfer(cost_, in.collective, bytes, group);
      estimate = cost_.collective(in.collective, bytes, group);
      const int halves = in.collective == cost::Collective::AllReduce ? 2 : 1;
      sent = bytes.v / group.size * (group.size - 1) * halves;
    }
    count(estimate);
    started.stream = in.stream;
    start(in, index, std::move(started), sent, {}, accesses_of(in));
    return {};
  }

  void start(const rp::Instruction& in, size_t index, Transfer transfer, int64_t sent,
             EventTraits traits, std::vector<Access> accesses) {
    result_.sent.push_back(sent);
    std::vector<Transfer>& transfers = result_.workload.schedule.transfers;
    const auto id = static_cast<int32_t>(transfers.size());
    const Event event{EventKind::Start, id, static_cast<int32_t>(index), {}};
    if (in.stream == 0) {
      push(event, traits, std::move(accesses));
    } else {
      Stream& stream = streams_[static_cast<size_t>(in.stream)];
      transfer.after = std::exchange(stream.after, {});
      items_.push_back({stream.key, event, traits, std::move(accesses)});
      stream.transfer = id;
    }
    transfers.push_back(std::move(transfer));
  }

  cost::Group group_of(const rp::Instruction& in) const {
    ir::Mesh mesh;
    for (const auto& [name, size] : plan_.mesh) mesh.axes.push_back({name, size});
    return cost::group_on(mesh, plan_.groups[static_cast<size_t>(in.group)].axes);
  }

  std::vector<Access> accesses_of(const rp::Instruction& in) const {
    std::vector<Access> accesses;
    for (int32_t id : in.reads) accesses.push_back(access(id, false));
    for (int32_t id : in.writes) accesses.push_back(access(id, true));
    return accesses;
  }
  Access access(int32_t id, bool writes) const {
    const rp::Tensor& it = tensor(id);
    return {-1,
            it.slice,
            it.rank_stride != 0,
            it.offset,
            it.offset + rp::reach_bytes(it).value_or(0),
            writes};
  }

  const rp::Tensor& tensor(int32_t id) const { return plan_.tensors[static_cast<size_t>(id)]; }
  ir::Space space_of(const rp::Tensor& tensor) const {
    return static_cast<ir::Space>(plan_.slices[static_cast<size_t>(tensor.slice)].space);
  }
  void count(cost::Estimate estimate) {
    result_.time_by_source[static_cast<size_t>(estimate.source)] += estimate.time;
  }

  const rp::Plan& plan_;
  const rp::Program& program_;
  const cost::CostModel& cost_;
  std::vector<Given> events_;
  std::vector<Stream> streams_;
  std::vector<Item> items_;
  std::vector<std::pair<size_t, int32_t>> awaited_;  // item, and the event of an earlier run
  int64_t done_ = 0;                                 // events of compute so far
  PlannedProgram result_;
};

}  // namespace

Result<std::vector<PlannedProgram>> planned_programs(const rp::Plan& plan,
                                                     const cost::CostModel& cost) {
  std::vector<PlannedProgram> programs;
  std::vector<Reader> readers;
  readers.reserve(plan.step.size());
  for (const rp::ProgramRun& run : plan.step) {
    readers.emplace_back(plan, plan.programs[static_cast<size_t>(run.program)], cost);
    DC_RETURN_IF_ERROR(readers.back().read());
  }
  for (size_t i = 0; i < readers.size(); ++i) {
    DC_ASSIGN_OR_RETURN(PlannedProgram planned, readers[i].finish(readers.back()));
    planned.repeat = plan.step[i].repeat;
    programs.push_back(std::move(planned));
  }
  for (const Arrival& one : programs.front().workload.schedule.arrivals)
    programs.back().workload.schedule.leaving.push_back(one.started);
  return programs;
}

base::Bytes kept_on_device(const rp::Plan& plan) {
  base::Bytes bytes;
  for (const rp::Slice& slice : plan.slices) {
    if (slice.program < 0 && on_device(slice)) bytes.v += analysis::aligned_bytes(slice.bytes);
  }
  return bytes;
}

}  // namespace dc::sim
