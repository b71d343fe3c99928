// Steps in textual form that several tests start from. Both are valid and in canonical form.
#pragma once

namespace dc::ir {

inline constexpr const char* kImported = R"(step @tiny stage=imported mesh=<dp=2> {
  input "x" : f32[4,8]
  parameter "w" : f32[8,8]
  state "w" : f32[8,8] parameter="w"
  program @micro_batch {
    %x = input(name="x") : f32[4,8]
    %w = state(entry="w") : f32[8,8]
    %wt = aten.t.default(self=%w) : f32[8,8] strides=(1,8)
    %h = aten.mm.default(self=%x, mat2=%wt) : f32[4,8] in "net"
    %loss = aten.mean.default(self=%h) : f32[]
    %xt = aten.t.default(self=%x) : f32[8,4] strides=(1,8) backward
    %gw = aten.mm.default(self=%xt, mat2=%h) : f32[8,8] backward in "net"
    output loss %loss
    output gradient "w" %gw
  }
}
)";

inline constexpr const char* kScheduled = R"(step @tiny stage=scheduled mesh=<dp=2> {
  input "x" : f32[4,8]
  parameter "w" : f32[8,8] placement=gathered_per_use gradient=sharded_each_micro_batch state=sharded shard=32
  state "w" : f32[32] flat_shard<dp> role=shard parameter="w"
  state "exp_avg.w" : f32[32] flat_shard<dp> role=moment1 parameter="w"
  state "exp_avg_sq.w" : f32[32] flat_shard<dp> role=moment2 parameter="w"
  state "hyperparameters" : f64[16] role=hyperparameters
  state "scalars" : f64[9] role=scalars
  state "norm_table" : f64[2,3] role=norm_table
  state "norm_row" : f64[3] role=norm_table range_of="norm_table"
  state "loss_sum" : f64[1] role=loss_sum
  state "rng" : i64[4] role=random
  streams "compute" "comm"
  program @step {
    %x = input(name="x") : f32[4,8] varying<dp>
    %w = state(entry="w") : f32[32] flat_shard<dp>
    %m = state(entry="exp_avg.w") : f32[32] flat_shard<dp>
    %v = state(entry="exp_avg_sq.w") : f32[32] flat_shard<dp>
    %hyperparameters = state(entry="hyperparameters") : f64[16]
    %scalars = state(entry="scalars") : f64[9]
    %norm_table = state(entry="norm_table") : f64[2,3]
    %row = state(entry="norm_row") : f64[3]
    %loss_sum = state(entry="loss_sum") : f64[1]
    %rng = state(entry="rng") : i64[4]
    %g0 = all_gather.start %w (elements=64, shard=32) : f32[8,8] stream=comm
    %f0 = all_gather.done %g0 : f32[8,8]
    %wt = aten.t.default(self=%f0) : f32[8,8] strides=(1,8)
    %h = aten.mm.default(self=%x, mat2=%wt) : f32[4,8] varying<dp> in "net"
    %y, %mask = dropout %h, %rng (p=0.5, op_id=0) : f32[4,8] varying<dp>, bool[4,8] varying<dp>
    %loss = aten.mean.default(self=%y) : f32[] varying<dp>
    add_loss %loss_sum, %loss
    release %f0
    %xt = aten.t.default(self=%x) : f32[8,4] strides=(1,8) varying<dp> backward
    %gw = aten.mm.default(self=%xt, mat2=%y) : f32[8,8] partial<dp> backward in "net"
    %r0 = reduce_scatter.start %gw (elements=32, shard=32) : f32[32] flat_shard<dp> backward stream=comm
    %r1 = reduce_scatter.done %r0 : f32[32] flat_shard<dp> backward
    square_sum %row, %r1, %hyperparameters (param=0, shard=32, elements=64, whole=0) update
    %t0 = all_gather_into.start %norm_table, %row (elements=6, shard=3) : f64[2,3] update stream=comm
    %t1 = all_gather_into.done %t0 : f64[2,3] update
    clip_and_check %scalars, %norm_table, %hyperparameters (clip=0) update
    adamw %w, %m, %v, %r1, %scalars, %hyperparameters (param=0, group=0, clip=0) update
    output loss %loss
  }
}
)";

// One rank; the first moment lives on the host and an activation spends its gap on the disk.
inline constexpr const char* kOffloaded = R"(step @tiny stage=scheduled mesh=<dp=1> {
  input "x" : f32[4,8]
  parameter "w" : f32[8,8] shard=64
  state "w" : f32[8,8] parameter="w"
  state "exp_avg.w" : f32[8,8] role=moment1 parameter="w" at host
  state "exp_avg_sq.w" : f32[8,8] role=moment2 parameter="w"
  state "hyperparameters" : f64[16] role=hyperparameters
  state "scalars" : f64[9] role=scalars
  state "norm_table" : f64[1,3] role=norm_table
  state "norm_row" : f64[3] role=norm_table range_of="norm_table"
  state "loss_sum" : f64[1] role=loss_sum
  state "rng" : i64[4] role=random
  streams "compute" "copy_out" "copy_in"
  program @step {
    %x = input(name="x") : f32[4,8]
    %w = state(entry="w") : f32[8,8]
    %m = state(entry="exp_avg.w") : f32[8,8]
    %v = state(entry="exp_avg_sq.w") : f32[8,8]
    %hyperparameters = state(entry="hyperparameters") : f64[16]
    %scalars = state(entry="scalars") : f64[9]
    %row = state(entry="norm_row") : f64[3]
    %h = aten.mm.default(self=%x, mat2=%w) : f32[4,8] in "net"
    %loss = aten.mean.default(self=%h) : f32[]
    %o0 = offload.start %h : f32[4,8] at disk stream=copy_out
    %o1 = offload.done %o0 : f32[4,8]
    %xt = aten.t.default(self=%x) : f32[8,4] strides=(1,8) backward
    %r0 = reload.start %o1 : f32[4,8] backward stream=copy_in
    %r1 = reload.done %r0 : f32[4,8] backward
    %gw = aten.mm.default(self=%xt, mat2=%r1) : f32[8,8] backward in "net"
    square_sum %row, %gw, %hyperparameters (param=0, shard=64, elements=64, whole=1) update
    %m0 = reload.start %m : f32[8,8] update stream=copy_in
    %m1 = reload.done %m0 : f32[8,8] update
    adamw %w, %m1, %v, %gw, %scalars, %hyperparameters (param=0, group=0, clip=0) update
    %m2 = offload_into.start %m, %m1 : f32[8,8] update stream=copy_out
    %m3 = offload_into.done %m2 : f32[8,8] update
    output loss %loss
  }
}
)";

// One rank; a bf16 parameter is updated and rounded on the host.
inline constexpr const char* kOnHost = R"(step @tiny stage=scheduled mesh=<dp=1> {
  input "x" : bf16[4,8]
  parameter "w" : bf16[8,8] shard=64
  state "w" : bf16[8,8] parameter="w"
  state "master.w" : f32[8,8] role=master parameter="w" at host
  state "exp_avg.w" : f32[8,8] role=moment1 parameter="w" at host
  state "exp_avg_sq.w" : f32[8,8] role=moment2 parameter="w" at host
  state "hyperparameters" : f64[16] role=hyperparameters
  state "scalars" : f64[9] role=scalars
  state "norm_table" : f64[1,3] role=norm_table
  state "norm_row" : f64[3] role=norm_table range_of="norm_table"
  state "loss_sum" : f64[1] role=loss_sum
  state "rng" : i64[4] role=random
  streams "compute" "copy_out" "copy_in" "host"
  program @step {
    %x = input(name="x") : bf16[4,8]
    %w = state(entry="w") : bf16[8,8]
    %p = state(entry="master.w") : f32[8,8]
    %m = state(entry="exp_avg.w") : f32[8,8]
    %v = state(entry="exp_avg_sq.w") : f32[8,8]
    %hyperparameters = state(entry="hyperparameters") : f64[16]
    %scalars = state(entry="scalars") : f64[9]
    %row = state(entry="norm_row") : f64[3]
    %h = aten.mm.default(self=%x, mat2=%w) : bf16[4,8] in "net"
    %loss = aten.mean.default(self=%h) : bf16[]
    %xt = aten.t.default(self=%x) : bf16[8,4] strides=(1,8) backward
    %gw = aten.mm.default(self=%xt, mat2=%h) : bf16[8,8] backward in "net"
    square_sum %row, %gw, %hyperparameters (param=0, shard=64, elements=64, whole=1) update
    %g0 = offload.start %gw : bf16[8,8] at host update stream=copy_out
    %s0 = offload.start %scalars : f64[9] at host update stream=copy_out
    %h0 = offload.start %hyperparameters : f64[16] at host update stream=copy_out
    %g1 = offload.done %g0 : bf16[8,8] update
    %s1 = offload.done %s0 : f64[9] update
    %h1 = offload.done %h0 : f64[16] update
    adamw %p, %m, %v, %g1, %s1, %h1 (param=0, group=0, clip=0) update stream=host
    %r = cast %p : bf16[8,8] at host update stream=host
    %r0 = reload.start %r : bf16[8,8] update stream=copy_in
    %r1 = reload.done %r0 : bf16[8,8] update
    copy %w, %r1 update
    output loss %loss
  }
}
)";

// An output layer and its loss as one kernel.
inline constexpr const char* kOutputLayer = R"(step @tiny stage=normalized {
  input "x" : f32[8,4]
  input "labels" : i64[8] role=labels
  input "scale" : f32[] role=loss_scale
  parameter "w" : f32[16,4]
  state "w" : f32[16,4] role=parameter parameter="w"
  program @micro_batch {
    %x = input(name="x") : f32[8,4]
    %labels = input(name="labels") : i64[8]
    %scale = input(name="scale") : f32[]
    %w = state(entry="w") : f32[16,4]
    %loss, %total, %gx, %gw = linear_cross_entropy %x, %w, %labels, %scale (reduction=1, ignored=-100, rows=8, classes=5) : f32[], f32[], f32[8,4], f32[16,4] backward
    output loss %loss
    output gradient "w" %gw
  }
}
)";

// ZeRO-3 inside each of two hosts, replicated across them.
inline constexpr const char* kHosts = R"(step @tiny stage=scheduled mesh=<host=2, dp=2> {
  input "x" : f32[4,8]
  parameter "w" : f32[8,8] placement=gathered_per_use gradient=sharded_each_micro_batch state=sharded shard=32
  state "w" : f32[32] flat_shard<dp> role=shard parameter="w"
  state "exp_avg.w" : f32[32] flat_shard<dp> role=moment1 parameter="w"
  state "exp_avg_sq.w" : f32[32] flat_shard<dp> role=moment2 parameter="w"
  state "rng" : i64[4] role=random
  state "hyperparameters" : f64[16] role=hyperparameters
  state "scalars" : f64[9] role=scalars
  state "loss_sum" : f64[1] role=loss_sum
  state "norm_table" : f64[4,3] role=norm_table
  state "norm_row" : f64[3] role=norm_table range_of="norm_table"
  streams "compute" "comm" "hosts"
  program @step {
    %x = input(name="x") : f32[4,8] varying<host> varying<dp>
    %w = state(entry="w") : f32[32] flat_shard<dp>
    %hyperparameters = state(entry="hyperparameters") : f64[16]
    %scalars = state(entry="scalars") : f64[9]
    %norm_table = state(entry="norm_table") : f64[4,3]
    %norm_row = state(entry="norm_row") : f64[3]
    %loss_sum = state(entry="loss_sum") : f64[1]
    %exp_avg.w = state(entry="exp_avg.w") : f32[32] flat_shard<dp>
    %exp_avg_sq.w = state(entry="exp_avg_sq.w") : f32[32] flat_shard<dp>
    %gather.w = all_gather.start %w (elements=64, shard=32, group=[1]) : f32[8,8] in "net" stream=comm
    %whole.w = all_gather.done %gather.w : f32[8,8] in "net"
    %h = aten.mm.default(self=%x, mat2=%whole.w) : f32[4,8] varying<host> varying<dp> in "net"
    release %whole.w in "net"
    %loss = aten.mean.default(self=%h) : f32[] varying<host> varying<dp>
    add_loss %loss_sum, %loss
    %xt = aten.t.default(self=%x) : f32[8,4] strides=(1,8) varying<host> varying<dp> backward
    %g = aten.mm.default(self=%xt, mat2=%h) : f32[8,8] partial<host> partial<dp> backward in "net"
    %reduce.w = reduce_scatter.start %g (elements=64, shard=32, group=[1]) : f32[32] partial<host> flat_shard<dp> backward in "net" stream=comm
    %reduced.w = reduce_scatter.done %reduce.w : f32[32] partial<host> flat_shard<dp> backward in "net"
    %reduce.w_1 = all_reduce_in_place.start %reduced.w (elements=32, shard=32, group=[0]) : f32[32] flat_shard<dp> backward in "net" stream=hosts
    %reduced.w_1 = all_reduce_in_place.done %reduce.w_1 : f32[32] flat_shard<dp> backward in "net"
    square_sum %norm_row, %reduced.w_1, %hyperparameters (param=0, shard=32, elements=64, whole=0, axes=[1], part=32) update in "net"
    %loss_cell = aten.slice.Tensor(self=%norm_row, dim=0, start=1, end=2) : f64[1] offset=1 update
    copy %loss_cell, %loss_sum update
    %gather.norm_table = all_gather_into.start %norm_table, %norm_row (elements=12, shard=3) : f64[4,3] update stream=comm
    %gathered.norm_table = all_gather_into.done %gather.norm_table : f64[4,3] update
    clip_and_check %scalars, %norm_table, %hyperparameters (clip=0) update
    adamw %w, %exp_avg.w, %exp_avg_sq.w, %reduced.w_1, %scalars, %hyperparameters (param=0, group=0, clip=0) update
    output loss %loss
  }
}
)";

}  // namespace dc::ir
