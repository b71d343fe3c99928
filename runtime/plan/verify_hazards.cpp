// Level 3, order between streams: where two instructions touch the same bytes and one writes them,
// one has ended before the other begins, in every step.
//
// Vector clocks (C. Fidge, 1988; F. Mattern, 1989): of each stream, how many instructions of every
// stream have ended whenever it goes on. Streams take their instructions in order; a wait knows
// what its signal knew; a run of a program begins where compute is, and compute goes on when all
// streams of the run have ended, unless they work on into the next step. Bytes are addresses in the
// arenas, so slices that follow each other in the same place count. Two steps are followed, and two
// of a program's repeated runs, so every pair of neighbours is seen.
//
// Nothing deadlocks: every signal stands before its waits in the program's one order (level 2), and
// all ranks run the same program, so collectives too are met in that order.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "runtime/plan/extent.h"
#include "runtime/plan/fail.h"
#include "runtime/plan/verify.h"

namespace dc::runtime::plan {
namespace {

using base::Status;

using Clock = std::vector<int64_t>;  // by stream

void merge(const Clock& other, Clock& clock) {
  for (size_t s = 0; s < clock.size(); ++s) clock[s] = std::max(clock[s], other[s]);
}

// Who touched bytes last, and when by its own stream's clock; 0: nobody.
struct Touch {
  int64_t time = 0;
  int32_t program = 0, instruction = 0;  // -1: the host, before the program
};
struct Cell {
  int64_t end = 0;
  std::vector<Touch> writes, reads;  // by stream
};
using Cells = std::map<int64_t, Cell>;  // by first byte

void cut(Cells& cells, int64_t at) {
  auto after = cells.upper_bound(at);
  if (after == cells.begin()) return;
  Cell& cell = std::prev(after)->second;
  if (std::prev(after)->first == at || cell.end <= at) return;
  cells.emplace_hint(after, at, cell);
  cell.end = at;
}

struct Range {
  Space space = Space::Device;
  int64_t begin = 0, end = 0;
};

bool awaits_run_before(const Program& program) {
  std::set<int32_t> signalled;
  for (const Instruction& in : program.instructions) {
    if (in.kind == InstructionKind::Signal) signalled.insert(in.event);
    if (in.kind == InstructionKind::Wait && !signalled.contains(in.event)) return true;
  }
  return false;
}

class HazardChecker {
 public:
  HazardChecker(const Plan& plan, int rank)
      : plan_(plan),
        rank_(rank),
        streams_(plan.streams.size(), Clock(plan.streams.size())),
        works_on_(std::any_of(plan.programs.begin(), plan.programs.end(), awaits_run_before)) {}

  Status steps() {
    std::set<int32_t> in_step;
    for (const ProgramRun& run : plan_.step) in_step.insert(run.program);
    for (size_t p = 0; p < plan_.programs.size(); ++p) {
      const auto program = static_cast<int32_t>(p);
      if (!in_step.contains(program)) DC_RETURN_IF_ERROR(run_once(program));
    }
    for (int step = 0; step < 2; ++step) {
      for (const ProgramRun& run : plan_.step) {
        for (int32_t i = 0; i < std::min(run.repeat, 2); ++i)
          DC_RETURN_IF_ERROR(run_once(run.program));
      }
    }
    return {};
  }

 private:
  Status run_once(int32_t program) {
    const std::vector<Instruction>& list =
        plan_.programs[static_cast<size_t>(program)].instructions;
    now_ = {0, program, -1};
    stream_ = 0;
    DC_RETURN_IF_ERROR(host_writes());
    std::vector<bool> used(streams_.size());
    for (size_t s = 1; s < streams_.size(); ++s) merge(streams_[0], streams_[s]);
    for (size_t i = 0; i < list.size(); ++i) {
      stream_ = static_cast<size_t>(list[i].stream);
      used[stream_] = true;
      now_.instruction = static_cast<int32_t>(i);
      DC_RETURN_IF_ERROR(follow(list[i]));
    }
    if (works_on_ && program == plan_.step.back().program) return {};
    for (size_t s = 1; s < streams_.size(); ++s) {
      if (used[s]) merge(streams_[s], streams_[0]);
    }
    return {};
  }

  // Between runs, while compute stands.
  Status host_writes() {
    tick();
    for (const Input& input : plan_.inputs) DC_RETURN_IF_ERROR(write(input.tensor));
    for (int32_t id : {plan_.slots, plan_.rng, plan_.table, plan_.loss_sum}) {
      if (id >= 0) DC_RETURN_IF_ERROR(write(id));
    }
    return {};
  }

  Status follow(const Instruction& in) {
    Clock& clock = streams_[stream_];
    const auto signal = signals_.find(in.event);
    if (in.kind == InstructionKind::Wait && signal != signals_.end()) merge(signal->second, clock);
    if (in.kind == InstructionKind::Signal) signals_[in.event] = clock;
    tick();
    for (int32_t tensor : in.reads) DC_RETURN_IF_ERROR(touch(range_of(tensor), false));
    for (int32_t tensor : in.writes) DC_RETURN_IF_ERROR(write(tensor));
    if (in.scratch < 0) return {};
    const Slice& slice = plan_.slices[static_cast<size_t>(in.scratch)];
    return touch({slice.space, slice.offset, slice.offset + slice.bytes}, true);
  }

  void tick() { now_.time = ++streams_[stream_][stream_]; }

  Status write(int32_t tensor) { return touch(range_of(tensor), true); }

  Range range_of(int32_t id) const {
    const Tensor& tensor = plan_.tensors[static_cast<size_t>(id)];
    const Slice& slice = plan_.slices[static_cast<size_t>(tensor.slice)];
    const int64_t begin = slice.offset + tensor.offset + rank_ * tensor.rank_stride;
    return {slice.space, begin, begin + reach_bytes(tensor).value_or(0)};
  }

  Status touch(const Range& range, bool writes) {
    Cells& cells = cells_[static_cast<size_t>(range.space)];
    cut(cells, range.begin);
    cut(cells, range.end);
    auto it = cells.lower_bound(range.begin);
    for (int64_t at = range.begin; at < range.end; at = it++->second.end) {
      if (it == cells.end() || it->first > at) {
        const int64_t end = it == cells.end() ? range.end : std::min(range.end, it->first);
        const std::vector<Touch> nobody(streams_.size());
        it = cells.emplace_hint(it, at, Cell{end, nobody, nobody});
      }
      Cell& cell = it->second;
      DC_RETURN_IF_ERROR(check(cell.writes, "writes", writes));
      if (writes) DC_RETURN_IF_ERROR(check(cell.reads, "reads", writes));
      (writes ? cell.writes : cell.reads)[stream_] = now_;
    }
    return {};
  }

  Status check(const std::vector<Touch>& others, const char* verb, bool writes) const {
    for (size_t s = 0; s < others.size(); ++s) {
      if (s == stream_ || others[s].time <= streams_[stream_][s]) continue;
      return bad_plan("DC3241", describe(now_) + (writes ? " writes" : " reads") + " bytes that " +
                                    describe(others[s]) + " " + verb + " on stream '" +
                                    plan_.streams[s].name +
                                    "': no event says which of them comes first");
    }
    return {};
  }

  std::string describe(const Touch& touch) const {
    if (touch.instruction >= 0)
      return describe_instruction(plan_, touch.program, touch.instruction);
    return "the host, before program '" + plan_.programs[static_cast<size_t>(touch.program)].name +
           "',";
  }

  const Plan& plan_;
  int rank_;
  std::vector<Clock> streams_;
  std::map<int32_t, Clock> signals_;  // by event: what the last signal knew
  bool works_on_;                     // the step's last program leaves its streams running
  Cells cells_[3];                    // by space
  size_t stream_ = 0;
  Touch now_;
};

}  // namespace

Status check_hazards(const Plan& plan) {
  DC_RETURN_IF_ERROR(HazardChecker(plan, 0).steps());
  return plan.world() > 1 ? HazardChecker(plan, plan.world() - 1).steps() : Status();
}

}  // namespace dc::runtime::plan
