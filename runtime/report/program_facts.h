// ProgramFacts: what one program does with slices, and what a byte is worth at its instructions.
// Private to this folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/report/contents.h"
#include "src/base/remark_codes.h"

namespace dc::runtime::report {

// A buffer of a collective, or a copy: which instruction, between which slices.
struct Move {
  int32_t instruction = 0, from = -1, to = -1;
  int64_t time_ns = 0;
};

// What one program does with slices.
class ProgramFacts {
 public:
  ProgramFacts(const plan::Plan& plan, int32_t program, int32_t runs)
      : number(program),
        runs(runs),
        contents(report::contents(plan, plan.programs[static_cast<size_t>(program)])),
        plan_(plan),
        program_(plan.programs[static_cast<size_t>(program)]),
        last_before_(plan.slices.size(), -1),
        first_after_(plan.slices.size(), -1) {
    find_backward();
    for (size_t i = 0; i < program_.instructions.size(); ++i) look_at(static_cast<int32_t>(i));
    price_before_.assign(program_.instructions.size() + 1, 0);
    for (const base::Remark& remark : plan.remarks) {
      const std::optional<int64_t> of = remark.number("program"), at = remark.number("instruction");
      if (remark.code != base::kBytePrice || of != number || !at || *at < 0 ||
          *at >= static_cast<int64_t>(program_.instructions.size()))
        continue;
      price_before_[static_cast<size_t>(*at) + 1] +=
          static_cast<double>(remark.number("ns_per_gib").value_or(0)) /
          static_cast<double>(int64_t{1} << 30);
    }
    for (size_t i = 1; i < price_before_.size(); ++i) price_before_[i] += price_before_[i - 1];
  }

  const int32_t number, runs;
  const Contents contents;
  std::vector<Move> gathers, copies;  // in program order

  bool has_backward() const { return backward_ < size(); }
  bool is_forward(int32_t instruction) const { return instruction < backward_; }
  // The last instruction before the backward phase, and the first of it or after, that reads or
  // writes the slice; -1: none.
  int32_t last_before(int32_t slice) const { return last_before_[static_cast<size_t>(slice)]; }
  int32_t first_after(int32_t slice) const { return first_after_[static_cast<size_t>(slice)]; }
  const plan::Instruction& at(int32_t instruction) const {
    return program_.instructions[static_cast<size_t>(instruction)];
  }
  int64_t time(int32_t instruction) const {
    const auto i = static_cast<size_t>(instruction);
    return i < program_.duration_ns.size() ? program_.duration_ns[i] : 0;
  }
  // Of a byte alive at the instructions first ... last of each run.
  double price(int32_t first, int32_t last) const {
    first = std::max(first, 0);
    last = std::min(last, size() - 1);
    if (last < first) return 0;
    return runs * (price_before_[static_cast<size_t>(last) + 1] -
                   price_before_[static_cast<size_t>(first)]);
  }
  double price_of_all() const { return price(0, size() - 1); }

 private:
  int32_t size() const { return static_cast<int32_t>(program_.instructions.size()); }

  void find_backward() {
    const auto is_backward = [](const plan::Instruction& in) {
      return in.kind == plan::InstructionKind::Kernel && in.phase == plan::Phase::Backward;
    };
    const auto found =
        std::find_if(program_.instructions.begin(), program_.instructions.end(), is_backward);
    backward_ = static_cast<int32_t>(found - program_.instructions.begin());
  }

  int32_t slice(int32_t tensor) const {
    return tensor < 0 ? -1 : plan_.tensors[static_cast<size_t>(tensor)].slice;
  }

  void look_at(int32_t i) {
    const plan::Instruction& in = at(i);
    for (const std::vector<int32_t>* ids : {&in.reads, &in.writes}) {
      for (const int32_t id : *ids) {
        const int32_t s = slice(id);
        if (s < 0) continue;
        if (is_forward(i)) last_before_[static_cast<size_t>(s)] = i;
        int32_t& first = first_after_[static_cast<size_t>(s)];
        if (!is_forward(i) && first < 0) first = i;
      }
    }
    if (in.kind == plan::InstructionKind::Copy)
      copies.push_back({i, slice(in.src), slice(in.dst), time(i)});
    if (in.kind != plan::InstructionKind::Collective ||
        in.collective != plan::CollectiveKind::AllGather)
      return;
    int64_t elements = 0;
    for (const plan::CollectiveBuffer& buffer : in.buffers) elements += buffer.elements;
    for (const plan::CollectiveBuffer& buffer : in.buffers) {
      const double part = static_cast<double>(buffer.elements) /
                          static_cast<double>(std::max<int64_t>(1, elements));
      gathers.push_back({i, slice(buffer.input), slice(buffer.output),
                         static_cast<int64_t>(static_cast<double>(time(i)) * part)});
    }
  }

  const plan::Plan& plan_;
  const plan::Program& program_;
  int32_t backward_ = 0;
  std::vector<int32_t> last_before_, first_after_;  // by slice
  std::vector<double> price_before_;                // by instruction, of a byte, of one run
};

}  // namespace dc::runtime::report
