// Level 2, each instruction by itself: what it touches is listed, and its buffers have the shapes
// that its kind demands.
#include <algorithm>
#include <compare>
#include <cstdint>

#include "runtime/plan/bad_plan.h"
#include "runtime/plan/describe.h"
#include "runtime/plan/extent.h"
#include "runtime/plan/mesh.h"
#include "runtime/verify/checks.h"
#include "runtime/verify/effects.h"
#include "runtime/verify/places.h"

namespace dc::runtime::verify {
namespace {

using base::Status;

constexpr size_t kMaxArgs = 64;
constexpr size_t kMaxResults = 4096;
constexpr size_t kMaxName = 4096;

class InstructionChecker {
 public:
  InstructionChecker(const plan::Plan& plan, int32_t program) : plan_(plan), program_(program) {}
  Status run(int32_t index);

 private:
  Status bad(const char* code, const std::string& what) const {
    return plan::bad_plan(code, plan::describe_instruction(plan_, program_, index_) + " " + what);
  }
  const plan::Tensor& tensor(int64_t id) const { return plan_.tensors[static_cast<size_t>(id)]; }
  int64_t numel(int64_t id) const { return *plan::element_count(tensor(id).sizes); }
  std::string describe(int64_t id) const {
    return plan::describe_tensor(plan_, static_cast<int32_t>(id));
  }
  Status spaces(const plan::Instruction& in) const;
  Status lists(const plan::Instruction& in) const;
  Status same(const std::vector<int32_t>& listed, const std::vector<int32_t>& known,
              const char* verb, const char* as) const;
  Status results(const plan::Instruction& in) const;
  Status apart(const plan::Instruction& in) const;
  Status kernel(const plan::Instruction& in);
  Status scratch(const plan::Instruction& in);
  Status copy(const plan::Instruction& in);
  Status collective(const plan::Instruction& in);
  Status buffer(plan::CollectiveKind kind, const plan::CollectiveBuffer& b, int64_t ranks);

  const plan::Plan& plan_;
  const int32_t program_;
  int32_t index_ = 0;
  std::vector<int32_t> reads_, writes_;  // sorted
};

Status InstructionChecker::run(int32_t index) {
  index_ = index;
  const plan::Instruction& in =
      plan_.programs[static_cast<size_t>(program_)].instructions[static_cast<size_t>(index)];
  reads_.assign(in.reads.begin(), in.reads.end());
  writes_.assign(in.writes.begin(), in.writes.end());
  std::sort(reads_.begin(), reads_.end());
  std::sort(writes_.begin(), writes_.end());
  DC_RETURN_IF_ERROR(spaces(in));
  switch (in.kind) {
    case plan::InstructionKind::Kernel:
      return kernel(in);
    case plan::InstructionKind::Collective:
      return collective(in);
    case plan::InstructionKind::Copy:
      return copy(in);
    case plan::InstructionKind::Signal:
    case plan::InstructionKind::Wait:
      if (reads_.empty() && writes_.empty()) return {};
      return bad("DC3221", "touches no memory and yet lists reads or writes");
  }
  return {};
}

// Kernels touch the space of their stream, collectives the device; only copies go between spaces.
Status InstructionChecker::spaces(const plan::Instruction& in) const {
  if (in.kind == plan::InstructionKind::Copy) return {};
  const plan::Stream& stream = plan_.streams[static_cast<size_t>(in.stream)];
  const bool is_kernel = in.kind == plan::InstructionKind::Kernel;
  const plan::Space own = is_kernel ? stream.space : plan::Space::Device;
  const std::string outside =
      own == plan::Space::Device
          ? " outside the device"
          : " outside the host, on whose memory stream '" + stream.name + "' works";
  for (const auto* list : {&reads_, &writes_}) {
    for (int32_t id : *list) {
      if (plan_.slices[static_cast<size_t>(tensor(id).slice)].space != own)
        return bad("DC3222", "touches " + describe(id) + ", which lies" + outside);
    }
  }
  if (in.scratch >= 0 && plan_.slices[static_cast<size_t>(in.scratch)].space != own)
    return bad("DC3222", "has its scratch" + outside);
  return {};
}

// The plan's lists are what the verifier itself knows of the kernel, the collective or the copy.
Status InstructionChecker::lists(const plan::Instruction& in) const {
  const Effects effects = effects_of(in);
  if (!effects.problem.empty())
    return bad("DC3223", effects.problem + ", so what it reads and writes is unknown");
  DC_RETURN_IF_ERROR(same(reads_, effects.reads, "reads", "read"));
  return same(writes_, effects.writes, "writes", "written");
}

Status InstructionChecker::same(const std::vector<int32_t>& listed,
                                const std::vector<int32_t>& known, const char* verb,
                                const char* as) const {
  for (int32_t id : known) {
    if (std::binary_search(listed.begin(), listed.end(), id)) continue;
    return bad("DC3211", std::string(verb) + " " + describe(id) + " and does not list it as " + as);
  }
  for (int32_t id : listed) {
    if (std::binary_search(known.begin(), known.end(), id)) continue;
    return bad("DC3211",
               "lists " + describe(id) + " as " + as + " and neither takes nor fills it so");
  }
  return {};
}

// The result of a kernel that works in place is its operand.
Status InstructionChecker::results(const plan::Instruction& in) const {
  if (in.outputs.empty() || !works_in_place(in)) return {};
  for (int32_t output : in.outputs) {
    if (output < 0 || same_place(plan_, output, static_cast<int32_t>(in.args[0].i))) continue;
    return bad("DC3224", "works in place, and " + describe(output) + " is not where its operand " +
                             describe(in.args[0].i) + " is");
  }
  return {};
}

// A tensor of an instruction. Of the input and the output of one buffer of a collective `place` is
// the same.
struct Operand {
  int32_t slice, tensor, place;
  auto operator<=>(const Operand&) const = default;
};
constexpr int32_t kResults = 1 << 20;  // place of the first result

template <typename Add>
void for_each_tensor(const plan::Instruction& in, const Add& add) {
  if (in.kind == plan::InstructionKind::Copy) {
    add(in.src, 0);
    add(in.dst, 1);
  }
  int32_t place = 0;
  for (const plan::CollectiveBuffer& buffer : in.buffers) {
    add(buffer.input, place);
    add(buffer.output, place++);
  }
  for (const plan::Arg& arg : in.args) {
    if (arg.kind == plan::ArgKind::Tensor) add(static_cast<int32_t>(arg.i), place++);
    if (arg.kind != plan::ArgKind::Tensors) continue;
    for (const int64_t id : arg.ints) add(static_cast<int32_t>(id), place++);
  }
  place = kResults;
  for (const int32_t id : in.outputs) add(id, place++);
}

// What is written shares no byte on any rank with anything else that is touched: nothing orders
// what happens within one instruction. A result in place is looked at by results(), what a
// collective may do with its own range by buffer(). SGD without momentum has the parameter in its
// place.
Status InstructionChecker::apart(const plan::Instruction& in) const {
  std::vector<Operand> touched;
  for_each_tensor(in, [&](int32_t id, int32_t place) {
    if (id >= 0) touched.push_back({tensor(id).slice, id, place});
  });
  std::sort(touched.begin(), touched.end());
  const bool in_place = in.kind == plan::InstructionKind::Kernel && works_in_place(in);
  for (size_t a = 0; a < touched.size(); ++a) {
    for (size_t b = a + 1; b < touched.size() && touched[b].slice == touched[a].slice; ++b) {
      const int32_t one = touched[a].tensor, other = touched[b].tensor;
      const auto is_written = [&](int32_t id) {
        return std::binary_search(writes_.begin(), writes_.end(), id);
      };
      const auto [first, last] = std::minmax(touched[a].place, touched[b].place);
      if (first == last || (in_place && first == 0 && last == kResults)) continue;
      if (in.op == "dc.sgd" && one == other && first == 0 && last == 1) continue;
      if (!is_written(one) && !is_written(other)) continue;
      if (shared_ranks(plan_, place_of(plan_, one), place_of(plan_, other)).empty()) continue;
      if (last >= kResults && first < kResults) {
        const bool is_one = touched[a].place == last;
        return bad("DC3224", "fills " + describe(is_one ? one : other) +
                                 ", which shares bytes with its operand " +
                                 describe(is_one ? other : one));
      }
      return bad("DC3224", "writes " + describe(is_written(one) ? one : other) +
                               ", which shares bytes with " +
                               describe(is_written(one) ? other : one) + ", which it touches too");
    }
  }
  return {};
}

Status InstructionChecker::kernel(const plan::Instruction& in) {
  if (in.op.empty()) return bad("DC3214", "names no operator");
  if (in.args.size() > kMaxArgs || in.outputs.size() > kMaxResults) {
    return bad("DC3214", "has " + std::to_string(in.args.size()) + " arguments and " +
                             std::to_string(in.outputs.size()) + " outputs");
  }
  for (const plan::Arg& arg : in.args) {
    if (arg.name.size() > kMaxName)
      return bad("DC3214",
                 "has an argument whose name has " + std::to_string(arg.name.size()) + " letters");
  }
  if (in.writes.empty()) return bad("DC3214", "writes nothing");
  DC_RETURN_IF_ERROR(lists(in));
  DC_RETURN_IF_ERROR(results(in));
  DC_RETURN_IF_ERROR(apart(in));
  return in.scratch < 0 ? Status() : scratch(in);
}

Status InstructionChecker::scratch(const plan::Instruction& in) {
  const plan::Slice& slice = plan_.slices[static_cast<size_t>(in.scratch)];
  if (slice.program >= 0 &&
      (slice.program != program_ || index_ < slice.first || index_ > slice.last)) {
    return bad("DC3215", "has its scratch in " + plan::describe_slice(plan_, in.scratch) +
                             ", which is not live there");
  }
  for (const auto* list : {&reads_, &writes_}) {
    for (int32_t id : *list) {
      if (tensor(id).slice == in.scratch) {
        return bad("DC3215", "has its scratch where " + describe(id) + " lies");
      }
    }
  }
  return {};
}

Status InstructionChecker::copy(const plan::Instruction& in) {
  const plan::Tensor& src = tensor(in.src);
  const plan::Tensor& dst = tensor(in.dst);
  if (src.dtype != dst.dtype || numel(in.src) != numel(in.dst) || !plan::is_contiguous(src) ||
      !plan::is_contiguous(dst)) {
    return bad("DC3216", "copies " + describe(in.src) + " to " + describe(in.dst) +
                             ", which differ in dtype or size or are not contiguous");
  }
  DC_RETURN_IF_ERROR(lists(in));
  return apart(in);
}

Status InstructionChecker::collective(const plan::Instruction& in) {
  const plan::Group& group = plan_.groups[static_cast<size_t>(in.group)];
  if (group.stream >= 0 && group.stream != in.stream) {
    return bad("DC3220", "runs on stream " + std::to_string(in.stream) +
                             ", but its group's communicator belongs to stream " +
                             std::to_string(group.stream));
  }
  if (in.buffers.empty()) return bad("DC3217", "has no buffers");
  for (const plan::CollectiveBuffer& b : in.buffers) {
    DC_RETURN_IF_ERROR(buffer(in.collective, b, plan::group_size(plan_, group.axes)));
  }
  DC_RETURN_IF_ERROR(lists(in));
  return apart(in);
}

// Elements that a buffer's input and output must have.
struct Demand {
  int64_t input = 0, output = 0;
};
Demand demand(plan::CollectiveKind kind, const plan::CollectiveBuffer& b) {
  switch (kind) {
    case plan::CollectiveKind::AllGather:
      return {b.shard, b.elements};
    case plan::CollectiveKind::ReduceScatter:
      return {b.elements, b.shard};
    case plan::CollectiveKind::AllReduce:
    case plan::CollectiveKind::Broadcast:
    case plan::CollectiveKind::AllToAll:
      return {b.elements, b.elements};
  }
  return {};
}

Status InstructionChecker::buffer(plan::CollectiveKind kind, const plan::CollectiveBuffer& b,
                                  int64_t ranks) {
  const auto padded = base::checked_mul(b.shard, ranks);
  if (b.elements < 0 || b.shard < 0 || !padded || *padded < b.elements ||
      (kind == plan::CollectiveKind::AllToAll && *padded != b.elements)) {
    return bad("DC3217", "splits " + std::to_string(b.elements) + " elements into " +
                             std::to_string(ranks) + " shards of " + std::to_string(b.shard));
  }
  const plan::Tensor& input = tensor(b.input);
  const plan::Tensor& output = tensor(b.output);
  const Demand want = demand(kind, b);
  if (numel(b.input) != want.input || numel(b.output) != want.output) {
    return bad("DC3217", "has " + describe(b.input) + " of " + std::to_string(numel(b.input)) +
                             " elements and " + describe(b.output) + " of " +
                             std::to_string(numel(b.output)) + ", and needs " +
                             std::to_string(want.input) + " and " + std::to_string(want.output));
  }
  if (!plan::is_contiguous(input) || !plan::is_contiguous(output)) {
    return bad("DC3217", "has a buffer that is not contiguous");
  }
  if (base::reduces(kind) ? output.dtype != base::DType::F32 || !base::is_floating(input.dtype)
                          : output.dtype != input.dtype) {
    return bad("DC3218", "turns " + std::string(base::name(input.dtype)) + " into " +
                             std::string(base::name(output.dtype)));
  }
  if (kind != plan::CollectiveKind::AllGather) return {};
  // The whole value arrives in equal shards, so its slice holds the padding too.
  const auto bytes = base::checked_mul(*padded, base::byte_size(output.dtype));
  const auto start =
      base::checked_mul(output.rank_stride, plan::group_size(plan_, output.stride_axes) - 1);
  const auto first = start ? base::checked_add(*start, output.offset) : std::nullopt;
  const auto end = bytes && first ? base::checked_add(*bytes, *first) : std::nullopt;
  if (!end || *end > plan_.slices[static_cast<size_t>(output.slice)].bytes) {
    return bad("DC3217", "gathers into " + describe(b.output) + ", whose slice has no room for " +
                             std::to_string(ranks) + " whole shards");
  }
  return {};
}

// Compute runs on the device, and no kernel reaches the disk.
Status check_streams(const plan::Plan& plan) {
  for (size_t s = 0; s < plan.streams.size(); ++s) {
    const plan::Space space = plan.streams[s].space;
    if (space == plan::Space::Device || (s > 0 && space == plan::Space::Host)) continue;
    return plan::bad_plan(
        "DC3222", "stream '" + plan.streams[s].name + "' is said to run kernels on the " +
                      std::string(base::name(space)) + (s == 0 ? ", and it is compute" : ""));
  }
  return {};
}

}  // namespace

Status check_instructions(const plan::Plan& plan) {
  DC_RETURN_IF_ERROR(check_streams(plan));
  for (size_t p = 0; p < plan.programs.size(); ++p) {
    InstructionChecker checker(plan, static_cast<int32_t>(p));
    for (size_t i = 0; i < plan.programs[p].instructions.size(); ++i) {
      DC_RETURN_IF_ERROR(checker.run(static_cast<int32_t>(i)));
    }
  }
  return {};
}

}  // namespace dc::runtime::verify
