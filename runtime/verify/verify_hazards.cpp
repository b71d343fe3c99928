// Level 3, order between streams: where two instructions touch the same bytes and one writes them,
// one has ended before the other begins, in every step, on every rank.
//
// Vector clocks (C. Fidge, 1988; F. Mattern, 1989): of each stream, how many instructions of every
// stream have ended whenever it goes on. Streams take their instructions in order; a wait knows
// what its signal knew; a run of a program begins where compute is, and compute goes on when all
// streams of the run have ended, unless they work on into the next step. Bytes are addresses in the
// arenas, so slices that follow each other in the same place count.
//
// Every rank runs the same program, so the order is the same on all of them; only addresses differ,
// as begin + rank * stride. All ranks are followed at once: an access is entered in all cells that
// it reaches on any rank, and two accesses that meet in a cell are asked on which ranks they share
// a byte, which has an exact answer (places.h). An access is forgotten only for a later one of its
// stream that covers it on every rank; since a stream is in order, what comes after the later one
// comes after it too, and what does not is reported for the later one. So it is with all accesses
// of bytes that are then written on every rank: where none of them is reported for the write, it
// alone is remembered.
//
// Two steps are followed, then each variant twice with all streams ended before it, and two steps
// more; and two of a program's repeated runs. Any further pair of runs is as two
// neighbours, of which the earlier access has an equal one in between: its stream orders the two.
//
// What an instruction touches is what effects.h says; level 2 found the plan's lists to be equal.
//
// Nothing deadlocks: every signal stands before its waits in the program's one order (level 2), and
// all ranks run the same program, so collectives too are met in that order.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "runtime/plan/bad_plan.h"
#include "runtime/plan/describe.h"
#include "runtime/plan/mesh.h"
#include "runtime/verify/checks.h"
#include "runtime/verify/places.h"
#include "src/base/dtype.h"
#include "src/base/step_enums.h"

namespace dc::runtime::verify {
namespace {

using base::Status;

using Clock = std::vector<int64_t>;  // by stream

void merge(const Clock& other, Clock& clock) {
  for (size_t s = 0; s < clock.size(); ++s) clock[s] = std::max(clock[s], other[s]);
}

// An access, and when it was by its own stream's clock.
struct Touch {
  Place place;
  size_t stream = 0;
  int64_t time = 0;
  int32_t program = 0, instruction = 0;  // -1: the host, before the program
};
struct Cell {
  int64_t end = 0;
  std::vector<Touch> writes, reads;
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

bool awaits_run_before(const plan::Program& program) {
  std::set<int32_t> signalled;
  for (const plan::Instruction& in : program.instructions) {
    if (in.kind == plan::InstructionKind::Signal) signalled.insert(in.event);
    if (in.kind == plan::InstructionKind::Wait && !signalled.contains(in.event)) return true;
  }
  return false;
}

class HazardChecker {
 public:
  explicit HazardChecker(const plan::Plan& plan)
      : plan_(plan),
        world_(plan.world()),
        streams_(plan.streams.size(), Clock(plan.streams.size())),
        works_on_(std::any_of(plan.programs.begin(), plan.programs.end(), awaits_run_before)) {}

  Status steps() {
    std::set<int32_t> known;
    for (const plan::ProgramRun& run : plan_.step) known.insert(run.program);
    for (const plan::Variant& variant : plan_.variants) {
      for (const plan::ProgramRun& run : variant.step) known.insert(run.program);
    }
    for (size_t p = 0; p < plan_.programs.size(); ++p) {
      const auto program = static_cast<int32_t>(p);
      if (!known.contains(program)) DC_RETURN_IF_ERROR(run_once(program, plan_.inputs));
    }
    DC_RETURN_IF_ERROR(run_twice(plan_.step, plan_.inputs));
    for (const plan::Variant& variant : plan_.variants) {
      end_all_streams();
      DC_RETURN_IF_ERROR(run_twice(variant.step, variant.inputs));
      DC_RETURN_IF_ERROR(run_twice(plan_.step, plan_.inputs));
    }
    return {};
  }

 private:
  Status run_twice(const std::vector<plan::ProgramRun>& runs,
                   const std::vector<plan::Input>& inputs) {
    for (int time = 0; time < 2; ++time) {
      for (const plan::ProgramRun& run : runs) {
        for (int32_t i = 0; i < std::min(run.repeat, 2); ++i)
          DC_RETURN_IF_ERROR(run_once(run.program, inputs));
      }
    }
    return {};
  }

  void end_all_streams() {
    for (size_t s = 1; s < streams_.size(); ++s) merge(streams_[s], streams_[0]);
  }

  Status run_once(int32_t program, const std::vector<plan::Input>& inputs) {
    const std::vector<plan::Instruction>& list =
        plan_.programs[static_cast<size_t>(program)].instructions;
    now_.program = program;
    now_.instruction = -1;
    now_.stream = 0;
    DC_RETURN_IF_ERROR(host(inputs));
    std::vector<bool> used(streams_.size());
    for (size_t s = 1; s < streams_.size(); ++s) merge(streams_[0], streams_[s]);
    for (size_t i = 0; i < list.size(); ++i) {
      now_.stream = static_cast<size_t>(list[i].stream);
      used[now_.stream] = true;
      now_.instruction = static_cast<int32_t>(i);
      DC_RETURN_IF_ERROR(follow(list[i]));
    }
    if (works_on_ && program == plan_.step.back().program) return {};
    for (size_t s = 1; s < streams_.size(); ++s) {
      if (used[s]) merge(streams_[s], streams_[0]);
    }
    return {};
  }

  // Between runs, while compute waits: it fills inputs and reads the step's results.
  Status host(const std::vector<plan::Input>& inputs) {
    tick();
    if (plan_.scalars >= 0) DC_RETURN_IF_ERROR(touch(place_of(plan_, plan_.scalars), false));
    for (const plan::Input& input : inputs) DC_RETURN_IF_ERROR(write(input.tensor));
    for (int32_t id : {plan_.hyperparameters, plan_.rng, plan_.table, plan_.loss_sum}) {
      if (id >= 0) DC_RETURN_IF_ERROR(write(id));
    }
    return {};
  }

  Status follow(const plan::Instruction& in) {
    Clock& clock = streams_[now_.stream];
    const auto signal = signals_.find(in.event);
    if (in.kind == plan::InstructionKind::Wait && signal != signals_.end())
      merge(signal->second, clock);
    if (in.kind == plan::InstructionKind::Signal) signals_[in.event] = clock;
    tick();
    for (int32_t id : in.reads) DC_RETURN_IF_ERROR(touch(place_of(plan_, id), false));
    for (int32_t id : in.writes) DC_RETURN_IF_ERROR(write(id));
    if (in.scratch >= 0) DC_RETURN_IF_ERROR(touch(place_of_slice(plan_, in.scratch), true));
    return gathers_padding(in);
  }

  // Whole shards arrive, so the bytes behind the value's last element are written too.
  Status gathers_padding(const plan::Instruction& in) {
    if (in.kind != plan::InstructionKind::Collective ||
        in.collective != plan::CollectiveKind::AllGather)
      return {};
    const int64_t ranks = plan::group_size(plan_, plan_.groups[static_cast<size_t>(in.group)].axes);
    for (const plan::CollectiveBuffer& b : in.buffers) {
      Place place = place_of(plan_, b.output);
      place.bytes =
          ranks * b.shard * base::byte_size(plan_.tensors[static_cast<size_t>(b.output)].dtype);
      DC_RETURN_IF_ERROR(touch(place, true));
    }
    return {};
  }

  void tick() { now_.time = ++streams_[now_.stream][now_.stream]; }

  Status write(int32_t tensor) { return touch(place_of(plan_, tensor), true); }

  Status touch(const Place& place, bool writes) {
    now_.place = place;
    const int64_t end = end_of(plan_, place);
    if (place.bytes == 0) return {};
    Cells& cells = cells_[place.space];
    cut(cells, place.begin);
    cut(cells, end);
    // What was written to the same bytes on every rank comes after all that touched them before, so
    // what comes after it comes after that too.
    const bool is_alone = writes && place.stride == 0;
    auto it = cells.lower_bound(place.begin);
    for (int64_t at = place.begin; at < end; at = it++->second.end) {
      if (it == cells.end() || it->first > at) {
        const int64_t free = it == cells.end() ? end : std::min(end, it->first);
        it = cells.emplace_hint(it, at, Cell{free, {}, {}});
      }
      Cell& cell = it->second;
      DC_RETURN_IF_ERROR(check(cell.writes, "writes", writes));
      if (writes) DC_RETURN_IF_ERROR(check(cell.reads, "reads", writes));
      if (!is_alone) enter(writes ? cell.writes : cell.reads);
    }
    if (!is_alone) return {};
    cells.erase(cells.lower_bound(place.begin), it);
    cells.emplace_hint(it, place.begin, Cell{end, {now_}, {}});
    return {};
  }

  // Adds the access to the cell. Removes earlier accesses of the same stream that it covers on
  // every rank.
  void enter(std::vector<Touch>& touches) const {
    std::erase_if(touches, [&](const Touch& before) {
      return before.stream == now_.stream && (now_.place.stride == 0 || now_.place == before.place);
    });
    touches.push_back(now_);
  }

  Status check(const std::vector<Touch>& others, const char* verb, bool writes) const {
    for (const Touch& other : others) {
      if (other.stream == now_.stream || other.time <= streams_[now_.stream][other.stream])
        continue;
      const Ranks ranks = shared_ranks(plan_, now_.place, other.place);
      if (ranks.empty()) continue;
      return plan::bad_plan("DC3241", describe(now_) + (writes ? " writes" : " reads") +
                                          " bytes that " + describe(other) + " " + verb +
                                          " on stream '" + plan_.streams[other.stream].name + "'" +
                                          on(ranks) + ": no event says which of them comes first");
    }
    return {};
  }

  std::string on(const Ranks& ranks) const {
    if (ranks.first == 0 && ranks.last == world_ - 1) return "";
    const std::string first = std::to_string(ranks.first);
    if (ranks.first == ranks.last) return " (on rank " + first + ")";
    return " (on ranks " + first + " to " + std::to_string(ranks.last) + ")";
  }

  std::string describe(const Touch& touch) const {
    if (touch.instruction >= 0)
      return plan::describe_instruction(plan_, touch.program, touch.instruction);
    return "the host, before program '" + plan_.programs[static_cast<size_t>(touch.program)].name +
           "',";
  }

  const plan::Plan& plan_;
  int64_t world_;
  std::vector<Clock> streams_;
  std::map<int32_t, Clock> signals_;  // by event: what the last signal knew
  bool works_on_;                     // the step's last program leaves its streams running
  base::PerSpace<Cells> cells_;
  Touch now_;
};

}  // namespace

Status check_hazards(const plan::Plan& plan) { return HazardChecker(plan).steps(); }

}  // namespace dc::runtime::verify
