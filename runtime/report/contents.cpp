#include "runtime/report/contents.h"

#include <algorithm>
#include <bit>
#include <string_view>

namespace dc::runtime::report {
namespace {

// A running hash (S. Vigna's splitmix64 as the mixing step).
class ContentHash {
 public:
  explicit ContentHash(uint64_t start) { add(start); }
  ContentHash& add(uint64_t value) {
    uint64_t x = (hash_ ^ value) + 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    hash_ = x ^ (x >> 31);
    return *this;
  }
  ContentHash& add(int64_t value) { return add(static_cast<uint64_t>(value)); }
  ContentHash& add(std::string_view text) {
    add(static_cast<uint64_t>(text.size()));
    for (const char c : text) add(static_cast<uint64_t>(static_cast<unsigned char>(c)));
    return *this;
  }
  template <typename T>
  ContentHash& add(const std::vector<T>& items) {
    add(static_cast<uint64_t>(items.size()));
    for (const T item : items) add(static_cast<int64_t>(item));
    return *this;
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0x243F6A8885A308D3;
};

enum ContentOrigin : uint64_t { kAtFirst, kKernel, kCollective, kGathered };

class ContentNumbering {
 public:
  explicit ContentNumbering(const plan::Plan& plan) : plan_(plan) {
    result_.made.assign(plan.slices.size(), 0);
    result_.maker.assign(plan.slices.size(), -1);
    result_.parameter.assign(plan.slices.size(), -1);
    version_.assign(plan.slices.size(), 0);
    for (size_t s = 0; s < plan.slices.size(); ++s)
      now_.push_back(ContentHash(kAtFirst).add(static_cast<uint64_t>(s)).value());
    for (const plan::StateEntry& entry : plan.state) {
      if (entry.parameter < 0 || entry.range_of >= 0) continue;
      const auto s = static_cast<size_t>(slice(entry.tensor));
      const plan::StateRole role = entry.role;
      if (role == plan::StateRole::Carried)
        now_[s] = gathered(entry.parameter, 0, tensor(entry.tensor).dtype);
      if (role == plan::StateRole::Parameter || role == plan::StateRole::Shard ||
          role == plan::StateRole::Master)
        result_.parameter[s] = entry.parameter;
    }
  }

  Contents run(const plan::Program& program) {
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const plan::Instruction& in = program.instructions[i];
      index_ = static_cast<int32_t>(i);
      find_parameter(in);
      if (in.kind == plan::InstructionKind::Kernel) kernel(in);
      if (in.kind == plan::InstructionKind::Collective) collective(in);
      if (in.kind == plan::InstructionKind::Copy)
        write(in.dst, now_[static_cast<size_t>(slice(in.src))]);
    }
    return std::move(result_);
  }

 private:
  const plan::Tensor& tensor(int32_t id) const { return plan_.tensors[static_cast<size_t>(id)]; }
  int32_t slice(int32_t id) const { return tensor(id).slice; }

  uint64_t read(int32_t id) const {
    if (id < 0) return 0;
    const plan::Tensor& t = tensor(id);
    return ContentHash(now_[static_cast<size_t>(t.slice)])
        .add(static_cast<int64_t>(t.dtype))
        .add(t.sizes)
        .add(t.strides)
        .add(t.offset)
        .add(t.rank_stride)
        .value();
  }

  static uint64_t gathered(int32_t parameter, uint64_t version, plan::DType dtype) {
    return ContentHash(kGathered)
        .add(static_cast<int64_t>(parameter))
        .add(version)
        .add(static_cast<int64_t>(dtype))
        .value();
  }

  // The first parameter that an instruction reads a shard of, and the shard's version.
  void find_parameter(const plan::Instruction& in) {
    parameter_ = -1;
    shard_version_ = 0;
    for (const int32_t id : in.reads) {
      const auto s = static_cast<size_t>(slice(id));
      if (result_.parameter[s] < 0) continue;
      parameter_ = result_.parameter[s];
      shard_version_ = version_[s];
      return;
    }
  }

  void write(int32_t id, uint64_t content) {
    if (id < 0) return;
    const auto s = static_cast<size_t>(slice(id));
    now_[s] = content;
    const bool is_state = plan_.slices[s].program < 0;
    if (!is_state) result_.parameter[s] = parameter_;
    version_[s] = is_state ? content : shard_version_;
    if (result_.maker[s] >= 0) return;
    result_.maker[s] = index_;
    result_.made[s] = content;
  }

  void add(const plan::Arg& arg, ContentHash& hash) const {
    hash.add(arg.name).add(static_cast<int64_t>(arg.kind)).add(arg.s);
    if (arg.kind == plan::ArgKind::Tensor) {
      hash.add(read(static_cast<int32_t>(arg.i)));
    } else if (arg.kind == plan::ArgKind::Tensors) {
      for (const int64_t id : arg.ints) hash.add(read(static_cast<int32_t>(id)));
    } else {
      hash.add(arg.i).add(arg.ints).add(std::bit_cast<uint64_t>(arg.f));
      for (const double f : arg.floats) hash.add(std::bit_cast<uint64_t>(f));
    }
  }

  // Results in the order of the kernel, then what else it writes.
  void kernel(const plan::Instruction& in) {
    ContentHash hash(kKernel);
    hash.add(in.op).add(static_cast<int64_t>(in.provider));
    for (const plan::Arg& arg : in.args) add(arg, hash);
    for (const int32_t id : in.reads) hash.add(read(id));
    uint64_t place = 0;
    for (const int32_t id : in.outputs) write(id, ContentHash(hash.value()).add(++place).value());
    for (const int32_t id : in.writes) {
      if (std::find(in.outputs.begin(), in.outputs.end(), id) == in.outputs.end())
        write(id, ContentHash(hash.value()).add(++place).value());
    }
  }

  void collective(const plan::Instruction& in) {
    for (const plan::CollectiveBuffer& buffer : in.buffers) {
      const auto from = static_cast<size_t>(slice(buffer.input));
      if (in.collective == plan::CollectiveKind::AllGather && result_.parameter[from] >= 0) {
        const int32_t owner = parameter_ = result_.parameter[from];
        write(buffer.output, gathered(owner, version_[from], tensor(buffer.output).dtype));
        continue;
      }
      const ContentHash hash = ContentHash(kCollective)
                                   .add(static_cast<int64_t>(in.collective))
                                   .add(read(buffer.input))
                                   .add(buffer.elements)
                                   .add(buffer.shard);
      write(buffer.output, hash.value());
    }
  }

  const plan::Plan& plan_;
  Contents result_;
  std::vector<uint64_t> now_, version_;  // by slice; of state: 0 before this program writes it
  int32_t index_ = 0, parameter_ = -1;
  uint64_t shard_version_ = 0;
};

}  // namespace

Contents contents(const plan::Plan& plan, const plan::Program& program) {
  return ContentNumbering(plan).run(program);
}

}  // namespace dc::runtime::report
