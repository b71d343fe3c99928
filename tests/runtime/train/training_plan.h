// A whole training step from native kernels only: one parameter w whose gradient is the input x, a
// loss that is an input too, ZeRO-3-like shards, clipping, AdamW. Enough to run a job without a
// model. Parameter and moments live in the space `home`. With several hosts shards lie inside each
// and are repeated across them.
#pragma once

#include "runtime/plan/state_entries.h"
#include "src/base/step_scalars.h"
#include "tests/runtime/exec/hand_plan.h"

namespace dc::runtime::test {

struct TrainingPlan : HandPlan {
  static constexpr int64_t kElements = 70;

  // `world` ranks, world / hosts of them on each host.
  TrainingPlan(int world, int accumulation, bool clip = true,
               plan::Space home = plan::Space::Device, int hosts = 1)
      : HandPlan(world),
        shard(whole_lanes(kElements, world / hosts)),
        clip_(clip),
        home_(home),
        hosts_(hosts) {
    plan.name = "hand-made";
    plan.model_digest = plan.options_digest = std::string(64, 'a');
    plan.compiler = "test";
    plan.chain = "zero3";
    plan.accumulation = accumulation;
    if (hosts > 1) add_hosts();
    add_tensors(world);
    if (accumulation > 1) {
      plan.programs = {{"accumulate", {}}, {"step", {}}};
      plan.step = {{0, accumulation - 1}, {1, 1}};
      add_micro_batch();
    }
    program = plan.programs.size() - 1;
    add_micro_batch();
    add_update(world);
    describe();
  }

  int32_t hyperparameters, rng, scalars, table, row, loss_cell, loss_sum, x, loss, acc, reduced, w,
      m, v;
  int64_t shard;

 private:
  static constexpr uint32_t kAcross = 0b01, kInside = 0b10;
  enum GroupId : int32_t { kGroupWorld, kGroupInside, kGroupAcross };

  // Elements of each of so many ranges, which begin at multiples of 32.
  static int64_t whole_lanes(int64_t elements, int ranges) {
    return base::round_up((elements + ranges - 1) / ranges, 32);
  }

  void add_hosts() {
    const int32_t per_host = plan.world() / hosts_;
    plan.mesh = {{"host", hosts_}, {"dp", per_host}};
    plan.groups.push_back({kInside, plan.groups[kGroupWorld].stream});
    plan.groups.push_back({kAcross, plan.groups[kGroupWorld].stream});
    plan.chain = "hsdp";
    plan.sums = {plan::ReductionOrder::PerStep, {kInside, kAcross}, kInside};
  }

  void add_tensors(int world) {
    using base::DType;
    hyperparameters =
        tensor("hyperparameters", DType::F64, {base::kHyperGroups + base::kHyperPerGroup});
    rng = tensor("rng", DType::I64, {4});
    scalars = tensor("scalars", DType::F64, {base::kScalarFinite + 1});
    table = tensor("table", DType::F64, {world, 3});
    row = own_range(table, 3);
    loss_cell = own_range(table, 3);
    plan.tensors[static_cast<size_t>(loss_cell)].sizes = {1};
    plan.tensors[static_cast<size_t>(loss_cell)].offset = 8;
    loss_sum = tensor("loss_sum", DType::F64, {1});
    x = tensor("x", DType::F32, {1, kElements});
    loss = tensor("loss", DType::F32, {1});
    acc = tensor("acc", DType::F32, {world / hosts_ * shard});
    plan.tensors[static_cast<size_t>(acc)].sizes = {kElements};
    reduced = tensor("reduced", DType::F32, {shard});
    w = tensor("w", DType::F32, {shard}, -1, 0, 0, home_);
    m = tensor("m", DType::F32, {shard}, -1, 0, 0, home_);
    v = tensor("v", DType::F32, {shard}, -1, 0, 0, home_);
  }

  void add_micro_batch() {
    native("dc.accumulate", {acc, x});
    native("dc.add_loss", {loss_sum, loss});
  }

  void add_update(int world) {
    signal(0, 0);
    wait(0, 1);
    reduce();
    signal(1, 1);
    wait(1, 0);
    native("dc.zero", {acc});
    add_square_sum();
    gradient_ready_ = static_cast<int32_t>(instructions().size()) - 1;
    native("dc.copy", {loss_cell, loss_sum});
    signal(2, 0);
    wait(2, 1);
    collective(plan::CollectiveKind::AllGather, row, table, int64_t{3} * world, 3);
    signal(3, 1);
    wait(3, 0);
    native("dc.clip_and_check", {scalars, table, hyperparameters}, {{"clip", clip_}});
    std::vector<int32_t> updated = {w, m, v};
    if (home_ != plan::Space::Device) updated = reload(updated);
    native("dc.adamw", {updated[0], updated[1], updated[2], reduced, scalars, hyperparameters},
           {{"param", 0}, {"group", 0}, {"clip", clip_}});
    if (home_ != plan::Space::Device) write_back(updated);
  }

  // acc, of all ranks, to shards.
  void reduce() {
    using Kind = plan::CollectiveKind;
    plan::Instruction& scatter = collective(Kind::ReduceScatter, acc, reduced, kElements, shard);
    if (hosts_ == 1) return;
    scatter.group = kGroupInside;
    const int64_t part = whole_lanes(shard, hosts_);
    collective(Kind::AllReduce, reduced, reduced, shard, part).group = kGroupAcross;
  }

  void add_square_sum() {
    plan::Instruction& sum =
        native("dc.square_sum", {row, reduced, hyperparameters},
               {{"param", 0}, {"shard", shard}, {"elements", kElements}, {"whole", 0}});
    if (hosts_ == 1) return;
    plan::Arg axes, part;
    axes.name = "axes", axes.kind = plan::ArgKind::Ints, axes.ints = {1};
    part.name = "part", part.kind = plan::ArgKind::Int, part.i = whole_lanes(shard, hosts_);
    sum.args.push_back(axes);
    sum.args.push_back(part);
  }

  // Device copies of `state`, made on another stream.
  std::vector<int32_t> reload(const std::vector<int32_t>& state) {
    const auto in = static_cast<int32_t>(plan.streams.size());
    plan.streams.push_back({"copy_in"});
    const auto now = static_cast<int32_t>(instructions().size());
    std::vector<int32_t> copies;
    signal(4, 0);
    wait(4, in);
    for (const int32_t id : state) {
      const plan::Tensor original = plan.tensors[static_cast<size_t>(id)];
      copies.push_back(tensor(original.name + "'", original.dtype, original.sizes,
                              static_cast<int32_t>(program), now));
      copy(id, copies.back(), in);
    }
    signal(5, in);
    wait(5, 0);
    return copies;
  }

  void write_back(const std::vector<int32_t>& copies) {
    const auto out = static_cast<int32_t>(plan.streams.size());
    plan.streams.push_back({"copy_out"});
    signal(6, 0);
    wait(6, out);
    const int32_t state[] = {w, m, v};
    for (size_t i = 0; i < copies.size(); ++i) copy(copies[i], state[i], out);
    signal(7, out);
    wait(7, 0);
    for (const int32_t id : copies) {
      plan.slices[static_cast<size_t>(plan.tensors[static_cast<size_t>(id)].slice)].last =
          static_cast<int32_t>(instructions().size()) - 1;
    }
  }

  void describe() {
    plan.hyperparameters = hyperparameters;
    plan.rng = rng;
    plan.scalars = scalars;
    plan.table = table;
    plan.loss_sum = loss_sum;
    plan.optimizer.groups = {{"*", 0.01, 0.0, 0.9, 0.999, 1e-8, 0, 0, false}};
    plan.optimizer.clip = clip_;
    plan::Parameter parameter;
    parameter.fqn = "model.w";
    parameter.aliases = {"model.tied"};
    parameter.sizes = {7, 10};
    parameter.initializer = {plan::InitKind::Normal, 0.0, 1.0};
    parameter.shard = shard;
    parameter.trainable_index = 0;
    parameter.gradient = reduced;
    parameter.gradient_ready = gradient_ready_;
    plan.parameters = {parameter};
    using plan::StateRole;
    const plan::PlacedAxis sharded{hosts_ > 1 ? 1 : 0, plan::AxisPlacement::FlatShard, -1, shard};
    add_state(w, StateRole::Shard, plan::StateSource::ParameterShard, sharded);
    add_state(m, StateRole::Moment1, plan::StateSource::Zeros, sharded);
    add_state(v, StateRole::Moment2, plan::StateSource::Zeros, sharded);
    add_state(acc, StateRole::Accumulator, plan::StateSource::Zeros,
              {0, plan::AxisPlacement::Partial});
    if (hosts_ > 1) plan.state.back().placement.push_back({1, plan::AxisPlacement::Partial});
    add_state(hyperparameters, StateRole::Hyperparameters);
    add_state(rng, StateRole::Random);
    add_state(scalars, StateRole::Scalars);
    add_state(table, StateRole::NormTable);
    add_state(loss_sum, StateRole::LossSum);
    plan.inputs = {{"x", plan::InputRole::Float, -1, 1, x},
                   {"loss", plan::InputRole::Float, 1, 2, loss}};
    for (const plan::Input& input : plan.inputs) set_kind(input.tensor, plan::SliceKind::Inputs);
  }

  void set_kind(int32_t tensor, plan::SliceKind kind) {
    const auto slice = static_cast<size_t>(plan.tensors[static_cast<size_t>(tensor)].slice);
    plan.slices[slice].kind = kind;
  }

  // Of the parameter, placed along the one mesh axis.
  void add_state(int32_t tensor, plan::StateRole role, plan::StateSource source,
                 plan::PlacedAxis placement) {
    add_state(tensor, role, source);
    plan.state.back().parameter = 0;
    plan.state.back().placement = {placement};
  }
  void add_state(int32_t tensor, plan::StateRole role,
                 plan::StateSource source = plan::StateSource::Runtime) {
    plan::StateEntry entry;
    entry.name = plan.tensors[static_cast<size_t>(tensor)].name;
    entry.tensor = tensor;
    entry.source = source;
    entry.role = role;
    plan.state.push_back(entry);
    set_kind(tensor, plan::slice_kind(role));
  }

  bool clip_;
  plan::Space home_;
  int hosts_;
  int32_t gradient_ready_ = -1;
};

}  // namespace dc::runtime::test
