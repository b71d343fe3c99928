// Small plans written by hand, and ranks as threads to run them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/rendezvous.h"
#include "runtime/plan/plan.h"
#include "src/base/units.h"

namespace dc::runtime::test {

// Builds a plan tensor by tensor; every tensor gets its slice.
class HandPlan {
 public:
  explicit HandPlan(int world, int streams = 2) {
    plan.name = "hand";
    plan.mesh = {{"dp", world}};
    plan.arena_bytes.assign(base::kSpaces.size(), 0);
    for (int s = 0; s < streams; ++s) plan.streams.push_back({s == 0 ? "compute" : "comm"});
    plan.groups.push_back({plan::kAllAxes, streams - 1});
    plan.programs.push_back({"step", {}});
    plan.step.push_back({0, 1});
  }

  int32_t tensor(const std::string& name, base::DType dtype, std::vector<int64_t> sizes,
                 int32_t program = -1, int32_t first = 0, int32_t last = 0,
                 plan::Space space = plan::Space::Device) {
    int64_t numel = 1;
    for (const int64_t size : sizes) numel *= size;
    plan::Slice slice;
    slice.space = space;
    int64_t& arena = plan.arena_bytes[static_cast<size_t>(space)];
    slice.offset = arena;
    slice.bytes = base::round_up(numel * base::byte_size(dtype), base::kAlignment);
    slice.program = program;
    slice.first = first;
    slice.last = last;
    arena += slice.bytes;
    plan.slices.push_back(slice);
    plan::Tensor tensor;
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.sizes = std::move(sizes);
    tensor.strides.resize(tensor.sizes.size());
    int64_t stride = 1;
    for (size_t d = tensor.sizes.size(); d-- > 0; stride *= tensor.sizes[d]) {
      tensor.strides[d] = stride;
    }
    tensor.slice = static_cast<int32_t>(plan.slices.size()) - 1;
    plan.tensors.push_back(tensor);
    return static_cast<int32_t>(plan.tensors.size()) - 1;
  }

  // This rank's `elements` elements of a whole value.
  int32_t own_range(int32_t whole, int64_t elements) {
    plan::Tensor tensor = plan.tensors[static_cast<size_t>(whole)];
    tensor.name += ".own";
    tensor.sizes = {elements};
    tensor.strides = {1};
    tensor.rank_stride = elements * base::byte_size(tensor.dtype);
    plan.tensors.push_back(tensor);
    return static_cast<int32_t>(plan.tensors.size()) - 1;
  }

  plan::Instruction& native(const std::string& op, std::vector<int32_t> operands,
                            const std::vector<std::pair<std::string, int64_t>>& attributes = {},
                            std::vector<int32_t> outputs = {}) {
    plan::Instruction instruction;
    instruction.provider = plan::Provider::Native;
    instruction.op = op;
    for (const int32_t id : operands) {
      plan::Arg arg;
      arg.kind = plan::ArgKind::Tensor;
      arg.i = id;
      instruction.args.push_back(arg);
    }
    for (const auto& [name, value] : attributes) {
      plan::Arg arg;
      arg.name = name;
      arg.kind = plan::ArgKind::Int;
      arg.i = value;
      instruction.args.push_back(arg);
    }
    instruction.outputs = std::move(outputs);
    // An op writes its first operand, an update its state as well.
    const size_t written = op == "dc.adamw" ? 3 : op == "dc.sgd" ? 2 : 1;
    const bool only_written = op == "dc.zero" || op == "dc.copy" || op == "dc.clip_and_check";
    instruction.writes.assign(operands.begin(), operands.begin() + static_cast<long>(written));
    instruction.reads.assign(operands.begin() + (only_written ? 1 : 0), operands.end());
    return add(std::move(instruction));
  }
  plan::Instruction& collective(plan::CollectiveKind kind, int32_t input, int32_t output,
                                int64_t elements, int64_t shard) {
    plan::Instruction instruction;
    instruction.kind = plan::InstructionKind::Collective;
    instruction.stream = plan.groups[0].stream;
    instruction.collective = kind;
    instruction.group = 0;
    instruction.buffers = {{input, output, elements, shard}};
    instruction.reads = {input};
    instruction.writes = {output};
    return add(std::move(instruction));
  }
  plan::Instruction& copy(int32_t from, int32_t to, int32_t stream = 0) {
    plan::Instruction instruction;
    instruction.kind = plan::InstructionKind::Copy;
    instruction.stream = stream;
    instruction.src = from;
    instruction.dst = to;
    instruction.reads = {from};
    instruction.writes = {to};
    return add(std::move(instruction));
  }
  void signal(int32_t event, int32_t stream) { sync(plan::InstructionKind::Signal, event, stream); }
  void wait(int32_t event, int32_t stream) { sync(plan::InstructionKind::Wait, event, stream); }

  std::vector<plan::Instruction>& instructions() { return plan.programs[program].instructions; }
  size_t program = 0;  // that the next instruction goes to

  plan::Plan plan;

 private:
  plan::Instruction& add(plan::Instruction instruction) {
    instructions().push_back(std::move(instruction));
    return instructions().back();
  }
  void sync(plan::InstructionKind kind, int32_t event, int32_t stream) {
    plan::Instruction instruction;
    instruction.kind = kind;
    instruction.event = event;
    instruction.stream = stream;
    plan.events = std::max(plan.events, event + 1);
    add(std::move(instruction));
  }
};

// Runs `body` on every rank of a job of threads.
inline void on_ranks(int world, const comm::CommOptions& options,
                     const std::function<void(comm::ProcessGroup&, int rank)>& body) {
  auto jobs = comm::connect_threads(world, options);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      auto job = std::move(jobs[static_cast<size_t>(rank)]);
      body(*job, rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

#define DC_ASSERT_OK(status)                                \
  do {                                                      \
    const ::dc::base::Status& dc_checked = (status);        \
    ASSERT_TRUE(dc_checked.ok()) << dc_checked.to_string(); \
  } while (false)

}  // namespace dc::runtime::test
