// offload-activations: values that nobody touches for a while spend that time in another memory
// space, as far as the budget demands it.
//
// A candidate is a gap between two uses of a value, seen through views: from the forward pass to
// the backward pass, above all. Which ones go: at the position furthest above the budget the gap
// that saves most bytes times time away per time that compute would wait for its copies; none that
// the budget does not need. Both copies are asynchronous: the copy out runs beside the compute that
// follows the last use, as long as there is room for the bytes; the copy in starts as late as hides
// it behind the compute before the next use, and no earlier than there is room. (DeepCompile,
// arXiv 2504.09983 and its activation offload, copies out synchronously, largest values first.)
// Kernels and what they read stay the same; so do all numbers.
#include <algorithm>

#include "src/passes/absence.h"
#include "src/passes/copy_writer.h"
#include "src/passes/offload.h"

namespace dc::passes {
namespace {

using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

// A use of a value's bytes, or the position where they are made.
struct Touch {
  int32_t first = 0, last = 0;  // a transfer that has started uses them until it is done
  bool writes = false;
};

// A gap between two touches of one value.
struct Gap {
  int program = 0;
  ValueId root;
  ValueId source;               // a value with exactly the root's bytes that may be copied
  int32_t from = 0, until = 0;  // positions without the bytes, the second one excluded
  int64_t version = 0;          // equal for gaps of one value without a write between them
};

class Finder {
 public:
  Finder(const ir::Step& step, const MemoryPressure& pressure) : step_(step), pressure_(pressure) {}

  std::vector<Gap> run() {
    for (size_t p = 0; p < step_.programs.size(); ++p) {
      program_ = static_cast<int>(p);
      graph_ = &step_.programs[p].graph;
      find_touches();
      for (const analysis::LiveRange& range : axis().live.ranges) {
        if (may_leave(range)) add_gaps(range.value);
      }
    }
    return std::move(gaps_);
  }

 private:
  const TimeAxis& axis() const { return pressure_.axis(program_); }

  void find_touches() {
    touches_.assign(graph_->value_capacity(), {});
    for (int32_t i = 0; i < pressure_.positions(program_); ++i) {
      const ir::Node& node = axis().node(i);
      if (!analysis::runs(node)) continue;
      const int32_t last = ir::is_start(node.kind) ? done_of(node) : i;
      for (ValueId result : node.results) {
        if (result.valid() && axis().storages.root(result) == result)
          touch(result, {i, last, true});
      }
      for (size_t k = 0; k < node.operands.size(); ++k) {
        const bool writes = (ir::info(node.kind).mutated >> k & 1) != 0;
        touch(axis().storages.root(node.operands[k]), {i, last, writes});
      }
    }
  }

  int32_t done_of(const ir::Node& start) const {
    return axis().position(graph_->value(start.results[0]).uses[0].node);
  }

  void touch(ValueId root, Touch what) {
    std::vector<Touch>& list = touches_[root.index()];
    if (!list.empty() && what.first <= list.back().last) {
      list.back().last = std::max(list.back().last, what.last);
      list.back().writes |= what.writes;
    } else {
      list.push_back(what);
    }
  }

  // Gathered values, inputs and what copies made have other rules.
  bool may_leave(const analysis::LiveRange& range) const {
    const ir::Value& value = graph_->value(range.value);
    const ir::Node& producer = graph_->node(value.producer);
    const bool is_special =
        producer.kind == OpKind::Input || producer.kind == OpKind::ReloadStart ||
        producer.kind == OpKind::OffloadStart || producer.kind == OpKind::AllGatherStart;
    if (is_special || range.bytes.v == 0) return false;
    const bool is_dense = value.type.offset == 0 && value.type.bytes() == range.bytes &&
                          value.type.storage_elements() == value.type.numel();
    return is_dense && std::none_of(graph_->outputs.begin(), graph_->outputs.end(),
                                    [&](const ir::Output& output) {
                                      return axis().storages.root(output.value) == range.value;
                                    });
  }

  void add_gaps(ValueId root) {
    const std::vector<Touch>& touches = touches_[root.index()];
    const ir::Node& producer = graph_->node(graph_->value(root).producer);
    ValueId source = root;
    if (ir::is_start(producer.kind))
      source = graph_->node(graph_->value(root).uses[0].node).results[0];
    for (size_t i = 1; i < touches.size(); ++i) {
      if (touches[i - 1].writes) ++version_;
      const int32_t from = touches[i - 1].last + 1, until = touches[i].first;
      const bool helps = pressure_.first_over(program_, from, until) < until;
      if (helps) gaps_.push_back({program_, root, source, from, until, version_});
    }
    ++version_;
  }

  const ir::Step& step_;
  const MemoryPressure& pressure_;
  int program_ = 0;
  const ir::Graph* graph_ = nullptr;
  std::vector<std::vector<Touch>> touches_;  // by root
  int64_t version_ = 0;
  std::vector<Gap> gaps_;
};

class Offloader {
 public:
  Offloader(ir::Step& step, const PassContext& context, base::Bytes budget)
      : step_(step),
        context_(context),
        space_(space_outside(context.options)),
        pressure_(step, context.cost, budget) {}

  Offloaded run() {
    if (!pressure_.survey()) return {0, 0, true};
    gaps_ = Finder(step_, pressure_).run();
    for (size_t i = 0; i < gaps_.size(); ++i) absences_.push_back(absence_of(i));
    AbsenceChoice(step_, context_, pressure_, absences_).run([&](size_t chosen) {
      // Later gaps of the same bytes need no second copy out.
      for (size_t i = chosen + 1; i < gaps_.size() && gaps_[i].version == gaps_[chosen].version;
           ++i)
        std::erase_if(absences_[i].copies, [](const PlannedCopy& copy) { return copy.out; });
    });
    write(planned_copies());
    return {values_, bytes_, !pressure_.has_given_up()};
  }

 private:
  Absence absence_of(size_t index) const {
    const Gap& gap = gaps_[index];
    const base::Bytes bytes =
        step_.programs[static_cast<size_t>(gap.program)].graph.value(gap.root).type.bytes();
    Absence absence;
    absence.bytes = aligned_bytes(bytes.v);
    absence.gaps = {{gap.program, gap.from, gap.until - 1}};
    absence.outside = {{gap.program, gap.from, gap.until}};
    const auto copy = [&](bool out) {
      PlannedCopy one;
      one.out = out;
      one.program = gap.program;
      one.position = out ? gap.from : gap.until;
      one.bound = out ? gap.until : gap.from;
      one.bytes = absence.bytes;
      one.time = out ? context_.cost.copy(bytes, ir::Space::Device, space_).time
                     : context_.cost.copy(bytes, space_, ir::Space::Device).time;
      one.item = index;
      return one;
    };
    absence.copies = {copy(true), copy(false)};
    return absence;
  }

  // One copy out for each stay of the same bytes outside, one copy in for each gap.
  std::vector<PlannedCopy> planned_copies() {
    std::vector<PlannedCopy> copies;
    int64_t copied_out = -1;  // version
    for (size_t i = 0; i < gaps_.size(); ++i) {
      if (!absences_[i].is_chosen) continue;
      const Absence whole = absence_of(i);
      if (gaps_[i].version != copied_out) {
        copies.push_back(whole.copies[0]);
        ++values_;
        bytes_ += whole.bytes;
      }
      copies.push_back(whole.copies[1]);
      copied_out = gaps_[i].version;
    }
    return copies;
  }

  void write(std::vector<PlannedCopy> copies) {
    std::vector<PlannedCopy*> to_place;
    for (PlannedCopy& copy : copies) to_place.push_back(&copy);
    if (to_place.empty()) return;
    place_copies(pressure_, to_place);
    for (int p = 0; p < pressure_.programs(); ++p) {
      CopyWriter writer(step_, step_.programs[static_cast<size_t>(p)].graph, pressure_.axis(p));
      for (const PlannedCopy& copy : copies) {
        if (copy.program != p) continue;
        const Gap& gap = gaps_[copy.item];
        if (copy.out) {
          writer.add(CopyWriter::Out{gap.source, {}, space_, copy.position, copy.other_half});
        } else {
          writer.add(CopyWriter::In{gap.source, copy.other_half, copy.position});
        }
      }
      writer.write();
    }
  }

  ir::Step& step_;
  const PassContext& context_;
  ir::Space space_;
  MemoryPressure pressure_;
  std::vector<Gap> gaps_;
  std::vector<Absence> absences_;  // of each gap
  int values_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace

base::Result<Change> offload_activations(ir::Step& step, PassContext& context) {
  return offload_to_fit(
      step, context, "offload-activations", "values", "leave the device between their uses",
      [&](ir::Step& trial, base::Bytes budget) { return Offloader(trial, context, budget).run(); });
}

}  // namespace dc::passes
