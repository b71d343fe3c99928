#include "src/passes/offload/activation_gaps.h"

#include <algorithm>

#include "src/ir/effects.h"
#include "src/passes/offload/copy_writer.h"

namespace dc::passes {
namespace {

using ir::OpKind;
using ir::ValueId;

// A use of a value's bytes, or the position where they are made.
struct Touch {
  int32_t first = 0, last = 0;  // a transfer that has started uses them until it is done
  bool writes = false;
  ValueId names;  // made here: exactly these bytes, ready to be read; invalid: none
};

class GapScan {
 public:
  GapScan(const ir::Step& step, const schedule::MemoryPressure& pressure)
      : step_(step), pressure_(pressure) {}

  std::vector<ActivationGap> run() {
    for (size_t p = 0; p < step_.programs.size(); ++p) {
      program_ = static_cast<int>(p);
      graph_ = &step_.programs[p].graph;
      find_touches();
      is_output_.assign(graph_->value_capacity(), false);
      for (const ir::Output& output : graph_->outputs) {
        if (output.value.valid()) is_output_[axis().storages.root(output.value).index()] = true;
      }
      for (const analysis::LiveRange& range : axis().live.ranges) {
        if (may_leave(range)) add_gaps(range.value);
      }
    }
    return std::move(gaps_);
  }

 private:
  const schedule::TimeAxis& axis() const { return pressure_.axis(program_); }

  void find_touches() {
    touches_.assign(graph_->value_capacity(), {});
    for (int32_t i = 0; i < pressure_.positions(program_); ++i) {
      const ir::Node& node = axis().node(i);
      if (!ir::runs(node)) continue;
      const int32_t last = axis().live.known[static_cast<size_t>(i)];
      for (ValueId result : node.results) {
        if (!result.valid()) continue;
        const ValueId root = axis().storages.root(result);
        const bool is_ready = !ir::is_start(node.kind) && has_same_bytes(result, root);
        const ValueId names = is_ready ? result : ValueId();
        if (root == result || names.valid()) touch(root, {i, last, root == result, names});
      }
      for (size_t k = 0; k < node.operands.size(); ++k) {
        touch(axis().storages.root(node.operands[k]), {i, last, ir::writes(node, k), {}});
      }
    }
  }

  // An alias may be a part, or of another shape.
  bool has_same_bytes(ValueId alias, ValueId root) const {
    const ir::TensorType& a = graph_->value(alias).type;
    const ir::TensorType& b = graph_->value(root).type;
    return a.dtype == b.dtype && a.shape == b.shape && a.strides == b.strides &&
           a.offset == b.offset;
  }

  void touch(ValueId root, Touch what) {
    std::vector<Touch>& list = touches_[root.index()];
    if (!list.empty() && what.first <= list.back().last) {
      list.back().last = std::max(list.back().last, what.last);
      list.back().writes |= what.writes;
      if (what.names.valid()) list.back().names = what.names;
    } else {
      list.push_back(what);
    }
  }

  // False for gathered values, inputs, results of copies and what lies elsewhere: this pass never
  // moves these.
  bool may_leave(const analysis::LiveRange& range) const {
    if (range.space != ir::Space::Device) return false;
    const ir::Value& value = graph_->value(range.value);
    const ir::Node& producer = graph_->node(value.producer);
    const bool is_special =
        producer.kind == OpKind::Input || producer.kind == OpKind::ReloadStart ||
        producer.kind == OpKind::OffloadStart || producer.kind == OpKind::AllGatherStart;
    if (is_special || range.bytes.v == 0) return false;
    const bool is_dense = value.type.offset == 0 && value.type.bytes() == range.bytes &&
                          value.type.storage_elements() == value.type.numel();
    return is_dense && !is_output_[range.value.index()];
  }

  void add_gaps(ValueId root) {
    const std::vector<Touch>& touches = touches_[root.index()];
    ValueId source = root;
    for (size_t i = 1; i < touches.size(); ++i) {
      if (touches[i - 1].names.valid()) source = touches[i - 1].names;
      if (touches[i - 1].writes) ++version_;
      const int32_t from = touches[i - 1].last + 1, until = touches[i].first;
      if (from < until) gaps_.push_back({program_, root, source, from, until, version_});
    }
    ++version_;
  }

  const ir::Step& step_;
  const schedule::MemoryPressure& pressure_;
  int program_ = 0;
  const ir::Graph* graph_ = nullptr;
  std::vector<std::vector<Touch>> touches_;  // by root
  std::vector<bool> is_output_;              // by root
  int64_t version_ = 0;
  std::vector<ActivationGap> gaps_;
};

}  // namespace

std::vector<ActivationGap> find_activation_gaps(const ir::Step& step,
                                                const schedule::MemoryPressure& pressure) {
  return GapScan(step, pressure).run();
}

OffloadCandidate candidate_of(const ir::Step& step, const PassContext& context,
                              const ActivationGap& gap, size_t item) {
  const ir::Space space = target_space(context.options);
  const base::Bytes bytes =
      step.programs[static_cast<size_t>(gap.program)].graph.value(gap.root).type.bytes();
  OffloadCandidate candidate;
  candidate.bytes = analysis::aligned_bytes(bytes.v);
  candidate.offloaded_intervals = {{gap.program, gap.from, gap.until - 1}};
  candidate.target_intervals = {{gap.program, gap.from, gap.until}};
  const auto copy = [&](bool out) {
    PlannedCopy one;
    one.out = out;
    one.program = gap.program;
    one.position = out ? gap.from : gap.until;
    one.bound = out ? gap.until : gap.from;
    one.bytes = candidate.bytes;
    one.time = out ? context.cost.copy(bytes, ir::Space::Device, space).time
                   : context.cost.copy(bytes, space, ir::Space::Device).time;
    one.item = item;
    return one;
  };
  candidate.copies = {copy(true), copy(false)};
  return candidate;
}

void write_copies(ir::Step& step, const PassContext& context,
                  const schedule::MemoryPressure& pressure, const std::vector<ActivationGap>& gaps,
                  const std::vector<PlannedCopy>& copies) {
  const ir::Space space = target_space(context.options);
  for (int p = 0; p < pressure.programs(); ++p) {
    CopyWriter writer(step, step.programs[static_cast<size_t>(p)].graph, pressure.axis(p));
    for (const PlannedCopy& copy : copies) {
      if (copy.program != p) continue;
      const ValueId source = gaps[copy.item].source;
      if (copy.out) {
        writer.add(CopyWriter::Out{source, {}, space, copy.position, copy.other_half});
      } else {
        writer.add(CopyWriter::In{source, copy.other_half, copy.position});
      }
    }
    writer.write();
  }
}

}  // namespace dc::passes
