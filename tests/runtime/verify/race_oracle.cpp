#include "tests/runtime/verify/race_oracle.h"

#include <bitset>
#include <map>
#include <set>
#include <stdexcept>

#include "runtime/plan/mesh.h"
#include "src/ir/ops.h"

namespace dc::runtime::plan::test {
namespace {

constexpr size_t kMost = 1024;

struct Access {
  int32_t tensor = -1, slice = -1;  // one of them
  bool writes = false;
  int64_t padded_bytes = 0;  // of a gathered value; else 0
};

struct Bytes {
  Space space = Space::Device;
  int64_t begin = 0, end = 0;
};

// Two steps as a graph of instructions, with everything that comes before each.
class AllPairs {
 public:
  explicit AllPairs(const Plan& plan) : plan_(plan) {
    for (int step = 0; step < 2; ++step) {
      for (const ProgramRun& run : plan.step) {
        for (int i = 0; i < std::min(run.repeat, 2); ++i) add(run.program);
      }
    }
  }

  bool has_race() const {
    for (int32_t rank = 0; rank < plan_.world(); ++rank) {
      if (has_race_on(rank)) return true;
    }
    return false;
  }

 private:
  struct Node {
    std::vector<Access> accesses;
    std::bitset<kMost> before;
  };

  bool has_race_on(int32_t rank) const {
    std::vector<std::vector<Bytes>> bytes(nodes_.size());
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (const Access& access : nodes_[i].accesses) bytes[i].push_back(range(access, rank));
    }
    for (size_t j = 0; j < nodes_.size(); ++j) {
      for (size_t i = 0; i < j; ++i) {
        if (!nodes_[j].before[i] && conflict(i, j, bytes)) return true;
      }
    }
    return false;
  }

  bool conflict(size_t i, size_t j, const std::vector<std::vector<Bytes>>& bytes) const {
    for (size_t a = 0; a < bytes[i].size(); ++a) {
      for (size_t b = 0; b < bytes[j].size(); ++b) {
        if (!nodes_[i].accesses[a].writes && !nodes_[j].accesses[b].writes) continue;
        const Bytes &one = bytes[i][a], &other = bytes[j][b];
        if (one.space == other.space && one.begin < other.end && other.begin < one.end) return true;
      }
    }
    return false;
  }

  Bytes range(const Access& access, int32_t rank) const {
    const Tensor* tensor =
        access.tensor < 0 ? nullptr : &plan_.tensors[static_cast<size_t>(access.tensor)];
    const Slice& slice =
        plan_.slices[static_cast<size_t>(tensor == nullptr ? access.slice : tensor->slice)];
    if (tensor == nullptr) return {slice.space, slice.offset, slice.offset + slice.bytes};
    int64_t elements = 1;  // up to the last that the strides reach
    for (size_t d = 0; d < tensor->sizes.size(); ++d) {
      if (tensor->sizes[d] == 0) return {slice.space, 0, 0};
      elements += (tensor->sizes[d] - 1) * tensor->strides[d];
    }
    const int64_t begin = slice.offset + tensor->offset + rank * tensor->rank_stride;
    const int64_t bytes = elements * base::byte_size(tensor->dtype);
    return {slice.space, begin, begin + std::max(bytes, access.padded_bytes)};
  }

  void add(int32_t program) {
    const Program& list = plan_.programs[static_cast<size_t>(program)];
    std::map<int32_t, size_t> last_of;  // stream: its last instruction in this run
    const size_t host = nodes_.size();
    nodes_.emplace_back();
    for (const Input& input : plan_.inputs) touch(input.tensor, true);
    for (int32_t id : {plan_.hyperparameters, plan_.rng, plan_.table, plan_.loss_sum})
      touch(id, true);
    touch(plan_.scalars, false);
    for (size_t earlier : ends_) comes_behind(earlier);
    std::set<int32_t> signalled;
    bool leaves = false;
    for (const Instruction& in : list.instructions) {
      nodes_.emplace_back();
      const size_t node = nodes_.size() - 1;
      if (node >= kMost) throw std::length_error("a plan too long for the oracle");
      comes_behind(host);
      if (last_.contains(in.stream)) comes_behind(last_[in.stream]);
      if (in.kind == InstructionKind::Wait && signal_.contains(in.event))
        comes_behind(signal_[in.event]);
      if (in.kind == InstructionKind::Wait) leaves |= !signalled.contains(in.event);
      if (in.kind == InstructionKind::Signal) {
        signal_[in.event] = node;
        signalled.insert(in.event);
      }
      touch_all(in);
      last_[in.stream] = last_of[in.stream] = node;
    }
    // Nothing but the step's one program works on into the next step in these plans.
    ends_.clear();
    for (const auto& [stream, node] : last_of) {
      if (stream == 0 || !leaves) ends_.push_back(node);
    }
  }

  void touch_all(const Instruction& in) {
    if (in.kind == InstructionKind::Copy) {
      touch(in.src, false);
      touch(in.dst, true);
    }
    for (const CollectiveBuffer& b : in.buffers) {
      touch(b.input, false);
      touch(b.output, true);
      if (in.collective != CollectiveKind::AllGather) continue;
      const Group& group = plan_.groups[static_cast<size_t>(in.group)];
      nodes_.back().accesses.back().padded_bytes =
          b.shard * group_size(plan_, group.axes) *
          base::byte_size(plan_.tensors[static_cast<size_t>(b.output)].dtype);
    }
    if (in.kind == InstructionKind::Kernel) touch_operands(in);
    for (int32_t id : in.outputs) touch(id, true);
    if (in.scratch >= 0) nodes_.back().accesses.push_back({-1, in.scratch, true, 0});
  }

  void touch_operands(const Instruction& in) {
    ir::OpKind op = ir::OpKind::Aten;
    if (in.provider == Provider::Native && !in.op.starts_with("aten.")) {  // those write no operand
      const auto kind = ir::native_op(in.op);
      if (!kind) throw std::invalid_argument(in.op);
      op = *kind;
    }
    for (size_t i = 0; i < in.args.size(); ++i) {
      const Arg& arg = in.args[i];
      if (arg.kind == ArgKind::Tensor) touch(static_cast<int32_t>(arg.i), ir::writes(op, i));
      if (arg.kind != ArgKind::Tensors) continue;
      for (int64_t id : arg.ints) touch(static_cast<int32_t>(id), false);
    }
  }

  void touch(int32_t id, bool writes) {
    if (id >= 0) nodes_.back().accesses.push_back({id, -1, writes, 0});
  }

  void comes_behind(size_t earlier) {
    nodes_.back().before |= nodes_[earlier].before;
    nodes_.back().before.set(earlier);
  }

  const Plan& plan_;
  std::vector<Node> nodes_;
  std::map<int32_t, size_t> last_, signal_;  // by stream, by event
  std::vector<size_t> ends_;                 // what the next run waits for
};

}  // namespace

bool has_race(const Plan& plan) { return AllPairs(plan).has_race(); }

}  // namespace dc::runtime::plan::test
