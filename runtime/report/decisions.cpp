#include "runtime/report/decisions.h"

#include <algorithm>
#include <unordered_map>

#include "runtime/plan/state_entries.h"
#include "runtime/report/program_facts.h"
#include "src/base/units.h"

namespace dc::runtime::report {
namespace {

using plan::InstructionKind;
using plan::SliceKind;
using plan::Space;
using plan::StateRole;

class DecisionReader {
 public:
  explicit DecisionReader(const plan::Plan& plan) : plan_(plan), states_(plan) {
    for (const plan::ProgramRun& run : plan.step) {
      programs_.emplace_back(plan, run.program, run.repeat);
      micro_batches_ += programs_.back().has_backward() ? run.repeat : 0;
    }
  }

  std::vector<Decision> run() {
    for (size_t p = 0; p < plan_.parameters.size(); ++p) parameter(static_cast<int32_t>(p));
    for (const ProgramFacts& program : programs_) {
      if (program.has_backward()) activations(program);
    }
    for (const plan::StateEntry& entry : plan_.state) {
      if (is_fragment(entry)) state(entry);
    }
    return std::move(decisions_);
  }

 private:
  static bool is_fragment(const plan::StateEntry& entry) {
    return entry.range_of < 0 && entry.parameter >= 0 && entry.role >= StateRole::Master &&
           entry.role <= StateRole::Momentum;
  }
  const plan::Slice& slice(int32_t id) const { return plan_.slices[static_cast<size_t>(id)]; }
  int64_t bytes(int32_t slice_id) const {
    return base::round_up(slice(slice_id).bytes, base::kAlignment);
  }
  int32_t slice_of(int32_t entry) const {
    const int32_t tensor = plan_.state[static_cast<size_t>(entry)].tensor;
    return plan_.tensors[static_cast<size_t>(tensor)].slice;
  }
  double price_of_step() const {
    double sum = 0;
    for (const ProgramFacts& program : programs_) sum += program.price_of_all();
    return sum;
  }

  void parameter(int32_t p) {
    const auto index = static_cast<size_t>(p);
    if (const int32_t shard = states_.find(index, StateRole::Shard); shard >= 0)
      stored(p, slice_of(shard), plan_.state[static_cast<size_t>(shard)].name);
    const int32_t whole = states_.find(index, StateRole::Parameter),
                  carried = states_.find(index, StateRole::Carried);
    if (whole >= 0) {
      if (!stored(p, slice_of(whole), plan_.parameters[index].fqn))
        always(p, slice_of(whole), Decided::Whole);
    } else if (carried >= 0) {
      always(p, slice_of(carried), Decided::Carried);
    }
    for (const ProgramFacts& program : programs_) gathers(p, program);
  }

  // A shard or a whole parameter that is in another space between its uses. False: it is not.
  bool stored(int32_t p, int32_t in_slice, const std::string& name) {
    if (slice(in_slice).space == Space::Device) return false;
    Decision d = away(in_slice);
    d.on = DecidedOn::Parameter;
    d.name = name.empty() ? plan_.parameters[static_cast<size_t>(p)].fqn : name;
    decisions_.push_back(std::move(d));
    return true;
  }

  // Gathers of all programs that write the slice, of a step.
  Move written_by_gathers(int32_t in_slice) const {
    Move sum;
    sum.instruction = 0;
    for (const ProgramFacts& program : programs_) {
      for (const Move& gather : program.gathers) {
        if (gather.to != in_slice) continue;
        sum.instruction += program.runs;
        sum.time_ns += gather.time_ns * program.runs;
      }
    }
    return sum;
  }

  // Without it the parameter would be gathered in both phases of each micro-batch.
  void always(int32_t p, int32_t in_slice, Decided decided) {
    Decision d;
    d.decided = decided;
    d.name = plan_.parameters[static_cast<size_t>(p)].fqn;
    d.bytes = bytes(in_slice);
    d.price_ns = static_cast<double>(d.bytes) * price_of_step();
    const Move gathers = written_by_gathers(in_slice);
    d.times = gathers.instruction;
    if (gathers.instruction > 0)
      d.time_ns = std::max<int64_t>(
          0, gathers.time_ns / gathers.instruction * 2 * micro_batches_ - gathers.time_ns);
    if (plan_.world() == 1) d.time_ns = 0;
    decisions_.push_back(std::move(d));
  }

  // Into slices of this program alone.
  void gathers(int32_t p, const ProgramFacts& program) {
    std::vector<const Move*> own;
    for (const Move& gather : program.gathers) {
      if (slice(gather.to).program == program.number &&
          program.contents.parameter[static_cast<size_t>(gather.from)] == p)
        own.push_back(&gather);
    }
    if (own.empty()) return;
    Decision d;
    d.name = plan_.parameters[static_cast<size_t>(p)].fqn;
    d.program = program.number;
    d.runs = program.runs;
    d.times = static_cast<int32_t>(own.size());
    const int32_t gathered = own.front()->instruction, first = own.front()->to;
    const int32_t before = program.last_before(first), after = program.first_after(first);
    d.bytes = bytes(first);
    if (own.size() > 1) {
      d.decided = Decided::PerUse;
      d.time_ns = 0;
      for (size_t i = 1; i < own.size(); ++i) {
        d.time_ns += own[i]->time_ns * program.runs;
        d.price_ns += static_cast<double>(d.bytes) *
                      program.price(slice(own[i - 1]->to).last + 1, slice(own[i]->to).first - 1);
      }
      d.from = slice(first).last;
      d.to = slice(own[1]->to).first;
    } else if (gathered < before && after >= 0 && program.is_forward(gathered)) {
      // From a use of the forward phase to one of the backward phase. An output layer that is fused
      // with its loss has one use.
      d.decided = Decided::Kept;
      d.from = before;
      d.to = after;
      d.time_ns = own.front()->time_ns * program.runs;
      d.price_ns = static_cast<double>(d.bytes) * program.price(before + 1, after - 1);
    } else {  // for one use
      d.decided = Decided::PerUse;
      d.from = d.to = slice(first).last;
      d.time_ns = 0;
    }
    decisions_.push_back(std::move(d));
  }

  void activations(const ProgramFacts& program) {
    std::unordered_map<uint64_t, int32_t> forward;  // slices by what was made in them
    for (size_t s = 0; s < plan_.slices.size(); ++s) {
      if (is_activation(program, s)) forward[program.contents.made[s]] = static_cast<int32_t>(s);
    }
    std::vector<int32_t> again(plan_.slices.size(), -1);
    for (size_t s = 0; s < plan_.slices.size(); ++s) {
      const int32_t maker = program.contents.maker[s];
      if (plan_.slices[s].program != program.number || plan_.slices[s].space != Space::Device ||
          maker < 0 || program.is_forward(maker))
        continue;
      const auto same = forward.find(program.contents.made[s]);
      if (same == forward.end()) continue;
      int32_t& first = again[static_cast<size_t>(same->second)];
      if (first < 0 || maker < program.contents.maker[static_cast<size_t>(first)])
        first = static_cast<int32_t>(s);
    }
    for (size_t s = 0; s < plan_.slices.size(); ++s) {
      if (!is_activation(program, s)) continue;
      const auto id = static_cast<int32_t>(s);
      if (program.first_after(id) >= 0) activation(program, id, -1);
      if (again[s] >= 0 && slice(again[s]).first > slice(id).last)
        activation(program, id, again[s]);
    }
  }

  // Made in the forward phase.
  bool is_activation(const ProgramFacts& program, size_t s) const {
    const plan::Slice& one = plan_.slices[s];
    const int32_t maker = program.contents.maker[s];
    return one.program == program.number && one.space == Space::Device &&
           one.kind == SliceKind::Activations && maker >= 0 && program.is_forward(maker);
  }

  // `again`: the slice in which it comes back; -1: it stays.
  void activation(const ProgramFacts& program, int32_t s, int32_t again) {
    const int32_t maker = program.contents.maker[static_cast<size_t>(s)];
    Decision d;
    d.on = DecidedOn::Activation;
    d.name = tensor_name(s);
    d.module = program.at(maker).module;
    d.op = program.at(maker).op;
    d.program = program.number;
    d.runs = program.runs;
    d.bytes = bytes(s);
    if (again < 0) {
      d.decided = Decided::Kept;
      d.from = program.last_before(s);
      d.to = program.first_after(s);
      d.times = 1;
      d.time_ns = program.time(maker) * program.runs;
    } else {
      d.from = slice(s).last;
      d.to = slice(again).first;
      const int32_t back = program.contents.maker[static_cast<size_t>(again)];
      d.time_ns = program.time(back) * program.runs;
      d.times = 2;
      d.decided = Decided::MadeAgain;
      if (program.at(back).kind == InstructionKind::Copy) {
        d.decided = Decided::Away;
        add_way_out(program, s, d);
      }
    }
    d.price_ns = static_cast<double>(d.bytes) * program.price(d.from + 1, d.to - 1);
    decisions_.push_back(std::move(d));
  }

  void add_way_out(const ProgramFacts& program, int32_t s, Decision& d) const {
    for (const Move& copy : program.copies) {
      if (copy.from != s || slice(copy.to).space == Space::Device) continue;
      d.space = slice(copy.to).space;
      d.time_ns += copy.time_ns * program.runs;
    }
  }

  std::string tensor_name(int32_t s) {
    if (names_.empty()) {
      names_.resize(plan_.slices.size(), -1);
      for (size_t t = 0; t < plan_.tensors.size(); ++t) {
        int32_t& name = names_[static_cast<size_t>(plan_.tensors[t].slice)];
        if (name < 0) name = static_cast<int32_t>(t);
      }
    }
    const int32_t tensor = names_[static_cast<size_t>(s)];
    return tensor < 0 ? "" : plan_.tensors[static_cast<size_t>(tensor)].name;
  }

  void state(const plan::StateEntry& entry) {
    const int32_t in_slice = plan_.tensors[static_cast<size_t>(entry.tensor)].slice;
    Decision d;
    if (slice(in_slice).space == Space::Device) {
      d.decided = Decided::Here;
      d.bytes = bytes(in_slice);
      d.price_ns = static_cast<double>(d.bytes) * price_of_step();
    } else {
      d = away(in_slice);
    }
    d.on = DecidedOn::State;
    d.name = entry.name;
    decisions_.push_back(std::move(d));
  }

  // State in another space: what it takes to bring it to the device and back, or to update it
  // there.
  Decision away(int32_t in_slice) const {
    Decision d;
    d.decided = Decided::Away;
    d.space = slice(in_slice).space;
    d.bytes = bytes(in_slice);
    d.time_ns = 0;
    double free = price_of_step();
    for (const ProgramFacts& program : programs_) {
      for (const Move& copy : program.copies) {
        if (copy.from != in_slice && copy.to != in_slice) continue;
        d.times += program.runs;
        d.time_ns += copy.time_ns * program.runs;
        if (copy.from == in_slice) free -= program.price(slice(copy.to).first, slice(copy.to).last);
      }
      add_updates_there(program, in_slice, d);
    }
    d.price_ns = static_cast<double>(d.bytes) * std::max(0.0, free);
    return d;
  }

  // A kernel that updates several entries takes as long for each.
  void add_updates_there(const ProgramFacts& program, int32_t in_slice, Decision& d) const {
    const int32_t maker = program.contents.maker[static_cast<size_t>(in_slice)];
    if (maker < 0 || program.at(maker).kind != InstructionKind::Kernel) return;
    d.decided = Decided::UpdatedThere;
    d.times += program.runs;
    d.time_ns += program.time(maker) * program.runs;
  }

  const plan::Plan& plan_;
  const plan::ParameterStates states_;
  std::vector<ProgramFacts> programs_;
  int64_t micro_batches_ = 0;
  std::vector<int32_t> names_;  // by slice: its first tensor
  std::vector<Decision> decisions_;
};

}  // namespace

std::string_view name(DecidedOn on) { return base::enum_name(kDecidedOnNames, on); }
std::string_view name(Decided decided) { return base::enum_name(kDecidedNames, decided); }

std::vector<Decision> decisions(const plan::Plan& plan) { return DecisionReader(plan).run(); }

}  // namespace dc::runtime::report
