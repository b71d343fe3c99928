// A plan that is nothing but state, in one of the placements of ZeRO, and the memory of its ranks.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "runtime/checkpoint/state_memory.h"
#include "runtime/checkpoint/state_parts.h"
#include "runtime/kernel/elements.h"
#include "runtime/plan/plan.h"

namespace dc::runtime::test {

using base::DType;

struct StatePlan {
  plan::Plan plan;

  // zero: 0 all whole; 1 optimizer state in shards, parameters whole and their ranges separate
  // entries; 3 everything in shards. With several hosts shards are cut inside a host.
  StatePlan(int world, int zero, int hosts = 1)
      : zero_(world == 1 ? 0 : zero), shards_(world / hosts) {
    plan.name = "state";
    plan.model_digest = std::string(64, 'a');
    plan.mesh = {{"dp", shards_}};
    if (hosts > 1) plan.mesh.insert(plan.mesh.begin(), {"host", hosts});
    plan.slices.push_back({});
    plan.programs = {{"step", {{}}}};
    parameter("a", DType::F32, {7, 10}, true);
    parameter("b", DType::BF16, {3, 11, 13}, true);
    parameter("scalar", DType::F32, {}, true);
    parameter("frozen", DType::F32, {5, 5}, false);
    parameter("nothing", DType::F32, {0, 4}, true);
    buffer("statistics", DType::F32, {2, 3}, true, true);
    buffer("count", DType::I64, {}, true, true);
    buffer("hidden", DType::F32, {4}, false, true);
    buffer("mask", DType::F32, {9}, false, false);
    buffer("table", DType::F32, {2}, true, false);
    constant();
  }

 private:
  static int64_t numel(const std::vector<int64_t>& sizes) {
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    return count;
  }

  int32_t tensor(const std::string& name, DType dtype, std::vector<int64_t> sizes) {
    plan::Tensor made;
    made.name = name;
    made.dtype = dtype;
    made.sizes = sizes;
    made.strides.assign(sizes.size(), 1);
    for (size_t d = sizes.size(); d-- > 1;) made.strides[d - 1] = made.strides[d] * sizes[d];
    made.slice = static_cast<int32_t>(plan.slices.size());
    plan.slices.push_back({});
    plan.tensors.push_back(std::move(made));
    return static_cast<int32_t>(plan.tensors.size()) - 1;
  }

  void state(plan::StateRole role, DType dtype, bool sharded) {
    const auto& of = plan.parameters.back();
    plan::StateEntry entry;
    entry.role = role;
    entry.parameter = static_cast<int32_t>(plan.parameters.size()) - 1;
    entry.name = of.fqn + "." + std::to_string(static_cast<int>(role));
    entry.tensor = tensor(entry.name, dtype, sharded ? std::vector<int64_t>{of.shard} : of.sizes);
    const auto last = static_cast<int32_t>(plan.mesh.size()) - 1;
    if (sharded) entry.placement = {{last, plan::AxisPlacement::FlatShard, -1, of.shard}};
    plan.state.push_back(entry);
  }

  void parameter(const std::string& fqn, DType dtype, const std::vector<int64_t>& sizes,
                 bool trains) {
    plan::Parameter made;
    made.fqn = fqn;
    made.dtype = dtype;
    made.sizes = sizes;
    made.trainable = trains;
    made.shard = ((numel(sizes) + shards_ - 1) / shards_ + 31) / 32 * 32;
    plan.parameters.push_back(made);
    using plan::StateRole;
    if (zero_ < 3) state(StateRole::Parameter, dtype, false);
    if (zero_ == 3 || (zero_ > 0 && trains)) state(StateRole::Shard, dtype, true);
    if (!trains) return;
    if (dtype != DType::F32) state(StateRole::Master, DType::F32, zero_ > 0);
    state(StateRole::Moment1, DType::F32, zero_ > 0);
    state(StateRole::Moment2, DType::F32, zero_ > 0);
    state(StateRole::Accumulator, DType::F32, zero_ > 0);
  }

  void buffer(const std::string& fqn, DType dtype, std::vector<int64_t> sizes, bool persistent,
              bool written) {
    plan::Buffer made;
    made.fqn = fqn;
    made.dtype = dtype;
    made.sizes = sizes;
    made.persistent = persistent;
    plan.buffers.push_back(made);
    plan::StateEntry entry;
    entry.role = plan::StateRole::Buffer;
    entry.source = plan::StateSource::Buffer;
    entry.buffer = static_cast<int32_t>(plan.buffers.size()) - 1;
    entry.name = fqn;
    entry.tensor = tensor(fqn, dtype, sizes);
    if (sizes.size() == 2) {  // stored the other way round
      plan.tensors.back().strides = {1, sizes[0]};
    }
    plan.state.push_back(entry);
    if (written) plan.programs[0].instructions[0].writes.push_back(entry.tensor);
  }

  void constant() {
    plan::StateEntry entry;
    entry.role = plan::StateRole::Constant;
    entry.source = plan::StateSource::Data;
    entry.name = "constant";
    entry.tensor = tensor("constant", DType::F32, {1});
    entry.data.assign(4, 1);
    plan.state.push_back(entry);
  }

  int zero_, shards_;
};

// Element `index` of a value; no two values are alike.
inline double truth(const checkpoint::ValueId& id, int64_t index) {
  double start = 1 + static_cast<int>(id.kind) * 7 + (id.rank + 1) * 300;
  for (const char c : id.fqn) start = start * 3 + c % 16;
  return static_cast<double>(static_cast<int64_t>(start) % 200 + index % 50);
}

// One rank's tensors.
class RankState {
 public:
  explicit RankState(const plan::Plan& plan) : plan_(&plan) {
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      int64_t bytes = base::byte_size(plan.tensors[i].dtype);
      for (const int64_t size : plan.tensors[i].sizes) bytes *= size;
      memory_[static_cast<int32_t>(i)].resize(static_cast<size_t>(bytes), std::byte{0xEE});
    }
  }

  checkpoint::StateMemory memory(device::Device& device = device::cpu_device()) {
    return checkpoint::StateMemory(
        *plan_, device,
        [this](int32_t id) {
          const plan::Tensor& tensor = plan_->tensors[static_cast<size_t>(id)];
          return kernel::BoundTensor{memory_[id].data(), tensor.dtype, tensor.sizes,
                                     tensor.strides};
        },
        nullptr);
  }

  void fill(const std::vector<checkpoint::StatePart>& parts) {
    for (const checkpoint::StatePart& part : parts) {
      for (int64_t i = 0; i < part.piece.count; ++i) {
        double element = 0;
        put(part.piece.dtype, &element, truth(part.piece.value, part.piece.first + i));
        (void)memory().write(part.tensor, i, 1, reinterpret_cast<const std::byte*>(&element));
      }
    }
  }

  // Element `i` of a tensor in row-major order.
  double get(int32_t tensor, int64_t i) {
    double element = 0;
    (void)memory().read(tensor, i, 1, reinterpret_cast<std::byte*>(&element));
    const DType dtype = plan_->tensors[static_cast<size_t>(tensor)].dtype;
    return base::is_floating(dtype) ? kernel::load_real(dtype, &element)
                                    : static_cast<double>(kernel::load_integer(dtype, &element));
  }
  int64_t numel(int32_t tensor) {
    return static_cast<int64_t>(memory_[tensor].size()) /
           base::byte_size(plan_->tensors[static_cast<size_t>(tensor)].dtype);
  }
  void set(int32_t tensor, int64_t i, double value) {
    double element = 0;
    put(plan_->tensors[static_cast<size_t>(tensor)].dtype, &element, value);
    (void)memory().write(tensor, i, 1, reinterpret_cast<const std::byte*>(&element));
  }

 private:
  static void put(DType dtype, void* element, double value) {
    if (base::is_floating(dtype)) {
      kernel::store_real(dtype, element, value);
    } else {
      kernel::store_integer(dtype, element, static_cast<int64_t>(value));
    }
  }

  const plan::Plan* plan_;
  std::map<int32_t, std::vector<std::byte>> memory_;
};

}  // namespace dc::runtime::test
