#include "tests/fuzz/kernel_instructions.h"

namespace dc::fuzz {
namespace {

constexpr std::string_view kOne = "self=f32[4,8] -> f32[4,8]";
constexpr std::string_view kTwo = "self=f32[4,8] other=f32[8] -> f32[4,8]";
constexpr std::string_view kScalar = "self=f32[4,8] other=1.5 -> f32[4,8]";
constexpr std::string_view kTest = "self=f32[4,8] other=bf16[4,1] -> bool[4,8]";
constexpr std::string_view kScalarTest = "self=i64[4,8] other=3 -> bool[4,8]";
constexpr std::string_view kBits = "self=i64[4,8] other=i32[8] -> i64[4,8]";
constexpr std::string_view kScalarBits = "self=u8[4,8] other=5 -> u8[4,8]";
constexpr std::string_view kFold = "self=f32[4,8] -> f32[]";
constexpr std::string_view kFoldDim = "self=f32[4,8,3] dim=[1] keepdim=false -> f32[4,3]";
constexpr std::string_view kIndex = "self=f32[5,6,7] indices={i64[4,1];-;i32[3]} -> f32[4,3,6]";
constexpr std::string_view kIndexPut =
    "self=f32[5,6,7] indices={-;i64[3]} values=f32[5,3,7] accumulate=true -> f32[5,6,7]";
constexpr std::string_view kSoftmaxBackward =
    "grad_output=f32[4,8] output=f32[4,8] dim=1 -> f32[4,8]";
constexpr std::string_view kRow = "self=f32[4,8] dim=1 half_to_float=false -> f32[4,8]";
constexpr std::string_view kNew = "size=[4,8] -> f32[4,8]";
constexpr std::string_view kLike = "self=f32[4,8] -> f32[4,8]";

constexpr KernelRow kRows[] = {
    {"dc.accumulate", "sum=f32[37] g=bf16[37] ->"},
    {"dc.adamw",
     "p=f32[37] m=f32[37] v=f32[37] g=f32[37] s=f64[11] h=f64[24] param=1 group=1 clip=true ->"},
    {"dc.adamw",
     "p=f32[1100] m=f32[1100] v=f32[1100] g=bf16[1100] s=f64[11] h=f64[24] copy=bf16[1100] param=1 "
     "group=1 clip=true ->"},
    {"dc.add_loss", "sum=f64[1] loss=f32[1] ->"},
    {"dc.add_product", "sum=bf16[6,9] left=bf16[6,4] right=bf16[4,9] -> @0"},
    {"dc.cast", "x=f32[37] -> bf16[37]"},
    {"dc.copy", "to=f32[37] from=f32[37] ->"},
    {"dc.cross_entropy",
     "logits=f32[4,8] target=i64[4] reduction=1 ignored=-100 -> f32[] f32[] f32[4] f32[4]"},
    {"dc.cross_entropy_backward",
     "logits=bf16[4,8] target=i64[4] g=f32[] total=f32[] largest=f32[4] log_of_sum=f32[4] "
     "reduction=2 ignored=3 -> @0"},
    {"dc.dropout", "x=f32[37] rng=i64[4] p=0.5 op_id=3 -> f32[37] bool[37]"},
    {"dc.linear_cross_entropy",
     "hidden=f32[6,4] weight=f32[9,4] target=i64[6] g=f32[] reduction=1 ignored=-100 rows=2 "
     "classes=9 -> f32[] f32[] f32[6,4] f32[9,4]"},
    {"dc.linear_cross_entropy",
     "hidden=bf16[6,4] weight=bf16[9,4] target=i64[6] g=f32[] reduction=2 ignored=3 rows=6 "
     "classes=4 -> f32[] f32[] bf16[6,4] bf16[9,4]"},
    {"dc.two_products",
     "left=f32[6,4] right=f32[4,9] left2=f32[6,4] right2=f32[4,9] -> f32[6,9] f32[6,9]"},
    {"dc.fused",
     "a0=f32[4,8] a1=bf16[8] "
     "body='t0:f32=silu.default(self=a0);t1:f32=mul.Tensor(self=t0,other=a1);->t1' -> f32[4,8]"},
    {"dc.fused",
     "a0=bf16[3,600] a1=f32[3,1] a2=bool[600] "
     "body='t0:f32=_to_copy.default(self=a0);t1:f32=sub.Tensor(self=t0,other=a1,alpha=2);"
     "t2:f32=where.self(condition=a2,self=t1,other=t0);t3:bf16=_to_copy.default(self=t2);->t2,t3' "
     "-> f32[3,600] bf16[3,600]"},
    {"dc.fused",
     "a0=i64[5,7] a1=i32[7] "
     "body='t0:i64=add.Tensor(self=a0,other=a1);t1:bool=gt.Scalar(self=t0,other=2);"
     "t2:f16=_to_copy.default(self=t1);->t0,t2' -> i64[5,7] f16[5,7]"},
    {"dc.fused",
     "a0=bf16[3,600] a1=f32[600] "
     "body='t0:f32=mul.Tensor(self=a0,other=a1);t1:f32=sum.dim_IntList(self=t0,dim=[1]);"
     "t2:f32=amax.default(self=a0,dim=[1]);->t0,t1,t2' -> f32[3,600] f32[3,1] f32[3]"},
    {"dc.fused",
     "a0=f32[70,2,9] a1=f32[9] a2=i32[2,9] "
     "body='t0:f32=mul.Tensor(self=a0,other=a1);t1:f64=mean.dim(self=t0,dim=[0,1]);"
     "t2:i64=sum.dim_IntList(self=a2,dim=[0,1]);->t1,t2' -> f64[9] i64[1,1,9]"},
    {"dc.clip_and_check", "s=f64[11] table=f64[2,5] h=f64[24] clip=true ->"},
    {"dc.check_finite", "s=f64[11] row=f64[5] losses=f64[2] param=1 ->"},
    {"dc.sgd",
     "p=f32[37] b=f32[37] g=f32[37] s=f64[11] h=f64[24] param=1 group=1 clip=true momentum=0.9 "
     "nesterov=false ->"},
    {"dc.square_sum",
     "row=f64[5] g=f32[37] h=f64[24] param=1 shard=37 elements=74 whole=false axes=[0] part=20 "
     "decides=true ->"},
    {"dc.square_sum", "row=f64[5] g=bf16[80] h=f64[24] param=0 shard=20 elements=74 whole=true ->"},
    {"dc.zero", "x=f32[37] ->"},

    {"aten.addmm.default", "self=f32[7] mat1=f32[5,6] mat2=f32[6,7] -> f32[5,7]"},
    {"aten.addmm.default",
     "self=bf16[5,1] mat1=bf16[5,6] mat2=bf16[6,7] alpha=2 beta=0.5 -> bf16[5,7]"},
    {"aten.baddbmm.default",
     "self=f32[2,1,7] batch1=f32[2,5,6] batch2=f32[2,6,7] beta=3 -> f32[2,5,7]"},
    {"aten.bmm.default", "self=f32[2,5,6] mat2=f32[2,6,7] -> f32[2,5,7]"},
    {"aten.mm.default", "self=f32[5,6] mat2=f32[6,7] -> f32[5,7]"},
    {"aten.mm.default", "self=bf16[17,64] mat2=bf16[64,33] -> bf16[17,33]"},

    {"aten.linalg_solve_triangular.default",
     "self=f32[2,1,5,5] B=f32[3,5,7] upper=true left=true unitriangular=false -> f32[2,3,5,7]"},
    {"aten.linalg_solve_triangular.default",
     "self=f64[4,4] B=f64[65,4] upper=false left=false unitriangular=true -> f64[65,4]"},

    {"aten.convolution.default",
     "input=f32[2,4,7,6] weight=f32[6,2,3,2] bias=f32[6] stride=[2,1] padding=[1,0] "
     "dilation=[1,2] transposed=false output_padding=[0,0] groups=2 -> f32[2,6,4,4]"},
    {"aten.convolution.default",
     "input=bf16[1,3,5,4] weight=bf16[3,4,3,3] stride=[2,2] padding=[1,1] dilation=[1,1] "
     "transposed=true output_padding=[1,0] groups=1 -> bf16[1,4,10,7]"},
    {"aten.convolution_backward.default",
     "grad_output=f32[2,6,4,4] input=f32[2,4,7,6] weight=f32[6,2,3,2] bias_sizes=[6] "
     "stride=[2,1] padding=[1,0] dilation=[1,2] transposed=false output_padding=[0,0] groups=2 "
     "-> f32[2,4,7,6] f32[6,2,3,2] f32[6]"},
    {"aten.convolution_backward.default",
     "grad_output=bf16[2,5,9] input=bf16[2,3,9] weight=bf16[5,3,3] stride=[1] padding=[1] "
     "dilation=[1] transposed=false output_padding=[0] groups=1 -> - bf16[5,3,3] -"},

    {"aten._scaled_dot_product_flash_attention.default",
     "query=bf16[1,4,9,16] key=bf16[1,2,9,16] value=bf16[1,2,9,16] dropout_p=0.0 is_causal=true "
     "return_debug_mask=false scale=0.5 -> bf16[1,4,9,16] f32[1,4,9]"},
    {"aten._scaled_dot_product_flash_attention_backward.default",
     "grad_out=bf16[1,4,9,16] query=bf16[1,4,9,16] key=bf16[1,2,9,16] value=bf16[1,2,9,16] "
     "out=bf16[1,4,9,16] logsumexp=f32[1,4,9] max_q=9 max_k=9 dropout_p=0.0 is_causal=true "
     "philox_seed=i64[2] philox_offset=i64[] -> bf16[1,4,9,16] bf16[1,2,9,16] bf16[1,2,9,16]"},
    {"aten._scaled_dot_product_flash_attention_for_cpu.default",
     "query=f32[2,4,5,8] key=f32[2,2,9,8] value=f32[2,2,9,8] dropout_p=0.0 is_causal=false "
     "attn_mask=f32[1,1,5,9] -> f32[2,4,5,8] f32[2,4,5]"},
    {"aten._scaled_dot_product_flash_attention_for_cpu.default",
     "query=bf16[1,2,97,16] key=bf16[1,2,97,16] value=bf16[1,2,97,16] is_causal=true "
     "-> bf16[1,2,97,16] f32[1,2,97]"},
    {"aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
     "grad_out=f32[2,4,5,8] query=f32[2,4,5,8] key=f32[2,2,9,8] value=f32[2,2,9,8] "
     "out=f32[2,4,5,8] logsumexp=f32[2,4,5] dropout_p=0.0 is_causal=false scale=0.5 "
     "attn_mask=f32[5,9] -> f32[2,4,5,8] f32[2,2,9,8] f32[2,2,9,8]"},

    {"aten.abs.default", kOne},
    {"aten.add.Scalar", kScalar},
    {"aten.add.Tensor", "self=f32[4,8] other=f32[8] alpha=2 -> f32[4,8]"},
    {"aten.add.Tensor", "self=i64[4,8] other=i32[4,1] -> i64[4,8]"},
    {"aten.addcdiv.default", "self=f32[4,8] tensor1=f32[8] tensor2=f32[4,1] value=2 -> f32[4,8]"},
    {"aten.addcmul.default", "self=f32[4,8] tensor1=f32[8] tensor2=f32[4,1] value=2 -> f32[4,8]"},
    {"aten.bitwise_and.Scalar", kScalarBits},
    {"aten.bitwise_and.Tensor", kBits},
    {"aten.bitwise_not.default", "self=bool[4,8] -> bool[4,8]"},
    {"aten.bitwise_or.Scalar", kScalarBits},
    {"aten.bitwise_or.Tensor", kBits},
    {"aten.bitwise_xor.Scalar", kScalarBits},
    {"aten.bitwise_xor.Tensor", kBits},
    {"aten.ceil.default", kOne},
    {"aten.clamp.default", "self=f32[4,8] min=-1 max=1.5 -> f32[4,8]"},
    {"aten.clamp_max.Tensor", "self=f32[4,8] max=f32[8] -> f32[4,8]"},
    {"aten.clamp_max.default", "self=i32[4,8] max=2 -> i32[4,8]"},
    {"aten.clamp_min.Tensor", "self=f32[4,8] min=f32[8] -> f32[4,8]"},
    {"aten.clamp_min.default", "self=f32[4,8] min=2 -> f32[4,8]"},
    {"aten.cos.default", kOne},
    {"aten.div.Scalar", kScalar},
    {"aten.div.Scalar_mode", "self=i64[4,8] other=3 rounding_mode='floor' -> i64[4,8]"},
    {"aten.div.Tensor", kTwo},
    {"aten.div.Tensor_mode", "self=i64[4,8] other=i64[8] rounding_mode='trunc' -> i64[4,8]"},
    {"aten.eq.Scalar", kScalarTest},
    {"aten.eq.Tensor", kTest},
    {"aten.erf.default", kOne},
    {"aten.exp.default", "self=f64[4,8] -> f64[4,8]"},
    {"aten.floor.default", kOne},
    {"aten.floor_divide.Scalar", "self=i64[4,8] other=3 -> i64[4,8]"},
    {"aten.floor_divide.default", "self=i64[4,8] other=i64[8] -> i64[4,8]"},
    {"aten.ge.Scalar", kScalarTest},
    {"aten.ge.Tensor", kTest},
    {"aten.gelu.default", "self=f32[4,8] approximate='tanh' -> f32[4,8]"},
    {"aten.gelu_backward.default", "grad_output=f32[4,8] self=f32[4,8] -> f32[4,8]"},
    {"aten.gt.Scalar", kScalarTest},
    {"aten.gt.Tensor", kTest},
    {"aten.hardtanh.default", kOne},
    {"aten.hardtanh_backward.default",
     "grad_output=f32[4,8] self=f32[4,8] min_val=-1 max_val=1 -> f32[4,8]"},
    {"aten.isfinite.default", "self=f32[4,8] -> bool[4,8]"},
    {"aten.isinf.default", "self=f32[4,8] -> bool[4,8]"},
    {"aten.isnan.default", "self=f32[4,8] -> bool[4,8]"},
    {"aten.le.Scalar", kScalarTest},
    {"aten.le.Tensor", kTest},
    {"aten.leaky_relu.default", "self=f32[4,8] negative_slope=0.1 -> f32[4,8]"},
    {"aten.leaky_relu_backward.default",
     "grad_output=f32[4,8] self=f32[4,8] negative_slope=0.1 -> f32[4,8]"},
    {"aten.log.default", kOne},
    {"aten.log_sigmoid_backward.default",
     "grad_output=bf16[4,8] self=bf16[4,8] buffer=bf16[4,8] -> bf16[4,8]"},
    {"aten.log_sigmoid_forward.default", "self=f32[4,8] -> f32[4,8] f32[4,8]"},
    {"aten.log_sigmoid_backward.default",
     "grad_output=f32[4,8] self=f32[4,8] buffer=f32[0] -> f32[4,8]"},
    {"aten.log_sigmoid_forward.default", "self=f32[4,8] -> f32[4,8] f32[0]"},
    {"aten.logical_and.default", kTest},
    {"aten.logical_not.default", "self=f32[4,8] -> bool[4,8]"},
    {"aten.logical_or.default", kTest},
    {"aten.logical_xor.default", kTest},
    {"aten.lt.Scalar", kScalarTest},
    {"aten.lt.Tensor", kTest},
    {"aten.masked_fill.Scalar", "self=f32[4,8] mask=bool[8] value=1.5 -> f32[4,8]"},
    {"aten.masked_fill.Tensor", "self=f32[4,8] mask=bool[4,1] value=f32[] -> f32[4,8]"},
    {"aten.maximum.default", kTwo},
    {"aten.minimum.default", kTwo},
    {"aten.mul.Scalar", kScalar},
    {"aten.mul.Tensor", "self=bf16[4,8] other=f32[] -> bf16[4,8]"},
    {"aten.native_dropout_backward.default",
     "grad_output=f32[4,8] mask=bool[4,8] scale=2.0 -> f32[4,8]"},
    {"aten.ne.Scalar", kScalarTest},
    {"aten.ne.Tensor", kTest},
    {"aten.neg.default", "self=i64[4,8] -> i64[4,8]"},
    {"aten.neg.default", "self=bf16[3,40] -> bf16[3,40]"},
    {"aten.pow.Scalar", "self=2 exponent=f32[4,8] -> f32[4,8]"},
    {"aten.pow.Tensor_Scalar", "self=bf16[4,8] exponent=3 -> bf16[4,8]"},
    {"aten.pow.Tensor_Tensor", "self=i64[4,8] exponent=i64[8] -> i64[4,8]"},
    {"aten.reciprocal.default", kOne},
    {"aten.relu.default", "self=f16[4,600] -> f16[4,600]"},
    {"aten.round.default", kOne},
    {"aten.rsqrt.default", kOne},
    {"aten.rsub.Scalar", kScalar},
    {"aten.rsub.Tensor", kTwo},
    {"aten.sgn.default", kOne},
    {"aten.sigmoid.default", kOne},
    {"aten.sigmoid_backward.default", "grad_output=f32[4,8] output=f32[4,8] -> f32[4,8]"},
    {"aten.sign.default", kOne},
    {"aten.silu.default", kOne},
    {"aten.silu_backward.default", "grad_output=bf16[4,8] self=bf16[4,8] -> bf16[4,8]"},
    {"aten.sin.default", kOne},
    {"aten.softplus.default", kOne},
    {"aten.softplus_backward.default",
     "grad_output=f32[4,8] self=f32[4,8] beta=2.0 threshold=20.0 -> f32[4,8]"},
    {"aten.sqrt.default", kOne},
    {"aten.sub.Scalar", kScalar},
    {"aten.sub.Tensor", kTwo},
    {"aten.tanh.default", kOne},
    {"aten.tanh_backward.default", "grad_output=f32[4,8] output=f32[4,8] -> f32[4,8]"},
    {"aten.threshold_backward.default",
     "grad_output=f32[4,8] self=f32[4,8] threshold=0 -> f32[4,8]"},
    {"aten.trunc.default", kOne},
    {"aten.where.Scalar", "condition=bool[4,8] self=1.0 other=2.0 -> f32[4,8]"},
    {"aten.where.ScalarOther", "condition=bool[4,8] self=f32[8] other=2.0 -> f32[4,8]"},
    {"aten.where.ScalarSelf", "condition=bool[4,8] self=1.0 other=f32[8] -> f32[4,8]"},
    {"aten.where.self", "condition=bool[4,1] self=f32[4,8] other=f32[8] -> f32[4,8]"},

    {"aten._to_copy.default", "self=f32[4,8] -> bf16[4,8]"},
    {"aten.arange.default", "end=7 -> i64[7]"},
    {"aten.arange.start", "start=2 end=9 -> f32[7]"},
    {"aten.arange.start_step", "start=2 end=9 step=2 -> i32[4]"},
    {"aten.cat.default", "tensors={f32[2,3];f32[2,5];f32[0];f32[2,0]} dim=1 -> f32[2,8]"},
    {"aten.clone.default", kOne},
    {"aten.clone.default", "self=bf16[9,20] -> bf16[9,20]"},
    {"aten.constant_pad_nd.default", "self=f32[4,8] pad=[1,-2,0,3] value=1.5 -> f32[7,7]"},
    {"aten.copy.default", "self=f32[4,8] src=i64[8] -> f32[4,8]"},
    {"aten.diag_embed.default", "self=f32[4,8] offset=-1 dim1=0 dim2=-1 -> f32[9,4,9]"},
    {"aten.diagonal_backward.default", "grad_output=f32[3,4] offset=1 dim1=2 dim2=0 -> f32[5,3,4]"},
    {"aten.diagonal_scatter.default",
     "self=f32[4,8] src=f32[3] offset=-1 dim1=0 dim2=1 -> f32[4,8]"},
    {"aten.empty.memory_format", kNew},
    {"aten.empty_like.default", kLike},
    {"aten.empty_permuted.default", kNew},
    {"aten.empty_strided.default", kNew},
    {"aten.eye.default", "n=5 -> f32[5,5]"},
    {"aten.eye.m", "n=5 m=3 -> bf16[5,3]"},
    {"aten.expand_copy.default", "self=f32[8] size=[4,8] -> f32[4,8]"},
    {"aten.fill.Scalar", "self=f32[4,8] value=2.5 -> f32[4,8]"},
    {"aten.fill.Tensor", "self=f32[4,8] value=f32[] -> f32[4,8]"},
    {"aten.zero.default", "self=f32[4,8] -> f32[4,8]"},
    {"aten.flip.default", "self=f32[2,5,6] dims=[0,-1] -> f32[2,5,6]"},
    {"aten.full.default", "size=[4,8] fill_value=3 -> i64[4,8]"},
    {"aten.full_like.default", "self=f32[4,8] fill_value=3 -> f32[4,8]"},
    {"aten.new_empty.default", kLike},
    {"aten.new_empty_strided.default", kLike},
    {"aten.new_full.default", "self=f32[4,8] size=[4,8] fill_value=3 -> f32[4,8]"},
    {"aten.new_ones.default", kLike},
    {"aten.new_zeros.default", kLike},
    {"aten.ones.default", kNew},
    {"aten.ones_like.default", kLike},
    {"aten.repeat.default", "self=f32[2,3] repeats=[4,2,1] -> f32[4,4,3]"},
    {"aten.repeat_interleave.self_int", "self=f32[2,3,4] repeats=3 dim=-2 -> f32[2,9,4]"},
    {"aten.repeat_interleave.self_int", "self=bf16[2,3] repeats=2 -> bf16[12]"},
    {"aten.roll.default", "self=f32[2,5,6] shifts=[-2,9] dims=[0,-1] -> f32[2,5,6]"},
    {"aten.roll.default", "self=f32[2,5,6] shifts=[13] -> f32[2,5,6]"},
    {"aten.scalar_tensor.default", "s=3.5 -> f32[]"},
    {"aten.select_backward.default", "grad_output=f32[4,3] dim=1 index=-2 -> f32[4,8,3]"},
    {"aten.select_scatter.default", "self=f32[4,8] src=f32[8] dim=0 index=2 -> f32[4,8]"},
    {"aten.slice_backward.default", "grad_output=f32[4,3] dim=1 start=2 end=5 step=1 -> f32[4,8]"},
    {"aten.slice_scatter.default",
     "self=f32[4,8] src=f32[4,3] dim=1 start=1 end=8 step=3 -> f32[4,8]"},
    {"aten.stack.default", "tensors={f32[2,3];f32[2,3]} dim=-1 -> f32[2,3,2]"},
    {"aten.tril.default", "self=f32[2,5,6] diagonal=-1 -> f32[2,5,6]"},
    {"aten.triu.default", "self=f32[5,6] diagonal=2 -> f32[5,6]"},
    {"aten.zeros.default", kNew},
    {"aten.zeros_like.default", kLike},

    {"aten.all.default", "self=bool[4,8] -> bool[]"},
    {"aten.all.dim", "self=bool[4,8] dim=1 keepdim=true -> bool[4,1]"},
    {"aten.amax.default", kFoldDim},
    {"aten.amin.default", kFoldDim},
    {"aten.any.default", "self=bool[4,8] -> bool[]"},
    {"aten.any.dim", "self=f32[4,8] dim=0 -> bool[8]"},
    {"aten.any.dims", "self=i64[4,8,3] dim=[0,-1] -> bool[8]"},
    {"aten.argmax.default", "self=f32[4,8] dim=1 -> i64[4]"},
    {"aten.argmax.default", "self=f32[0,8] dim=1 -> i64[0]"},
    {"aten.argmin.default", "self=i32[4,8] -> i64[]"},
    {"aten.cumsum.default", "self=f32[4,8] dim=0 -> f32[4,8]"},
    {"aten.linalg_vector_norm.default", "self=bf16[4,600] ord=2 dim=[1] keepdim=true -> bf16[4,1]"},
    {"aten.linalg_vector_norm.default", "self=f32[4,8,3] ord=1.5 dim=[0,2] -> f32[8]"},
    {"aten.logsumexp.default", "self=f32[4,600] dim=[1] keepdim=false -> f32[4]"},
    {"aten.max.default", kFold},
    {"aten.max.dim", "self=f32[4,8] dim=1 keepdim=true -> f32[4,1] i64[4,1]"},
    {"aten.max.dim", "self=f32[0,8] dim=1 -> f32[0] i64[0]"},
    {"aten.mean.default", kFold},
    {"aten.mean.dim", kFoldDim},
    {"aten.min.default", kFold},
    {"aten.min.dim", "self=f32[4,8] dim=0 -> f32[8] i64[8]"},
    {"aten.norm.Scalar", "self=f32[4,8] p=1 -> f32[]"},
    {"aten.norm.ScalarOpt_dim", "self=f64[4,8] p=0 dim=[0] -> f64[8]"},
    {"aten.prod.default", "self=i64[4,8] -> i64[]"},
    {"aten.prod.dim_int", "self=f64[4,8] dim=0 -> f64[8]"},
    {"aten.sum.default", kFold},
    {"aten.sum.dim_IntList", "self=bf16[2,70,65] dim=[1] keepdim=true -> f32[2,1,65]"},
    {"aten.sum.dim_IntList", kFoldDim},
    {"aten.std.correction", "self=f32[4,600] dim=[-1] correction=0 keepdim=true -> f32[4,1]"},
    {"aten.var.correction", "self=bf16[2,70,65] dim=[1] -> bf16[2,65]"},
    {"aten.var_mean.correction", "self=f32[4,8,3] dim=[0,2] correction=1 -> f32[8] f32[8]"},

    {"aten._fused_rms_norm.default",
     "input=f32[4,8] normalized_shape=[8] weight=f32[8] eps=0.001 -> f32[4,8] f32[4,1]"},
    {"aten._fused_rms_norm_backward.default",
     "grad_out=f32[4,8] input=f32[4,8] normalized_shape=[8] rstd=f32[4,1] weight=f32[8] "
     "-> f32[4,8] f32[8]"},
    {"aten._log_softmax.default", kRow},
    {"aten._log_softmax_backward_data.default", kSoftmaxBackward},
    {"aten._safe_softmax.default", kRow},
    {"aten._softmax.default", "self=bf16[3,600] dim=1 -> f32[3,600]"},
    {"aten._softmax_backward_data.default", kSoftmaxBackward},
    {"aten._softmax_backward_data.default",
     "grad_output=f32[4,8] output=f32[4,8] dim=1 -> f16[4,8]"},
    {"aten.native_layer_norm.default",
     "input=f32[4,8] normalized_shape=[8] weight=f32[8] bias=f32[8] eps=0.001 "
     "-> f32[4,8] f32[4,1] f32[4,1]"},
    {"aten.native_layer_norm_backward.default",
     "grad_out=f32[4,8] input=f32[4,8] normalized_shape=[8] mean=f32[4,1] rstd=f32[4,1] "
     "weight=f32[8] bias=f32[8] -> f32[4,8] f32[8] f32[8]"},
    {"aten.nll_loss2d_backward.default",
     "grad_output=f32[] self=f32[2,5,3,4] target=i64[2,3,4] reduction=1 total_weight=f32[] -> "
     "f32[2,5,3,4]"},
    {"aten.nll_loss2d_forward.default",
     "self=f32[2,5,3,4] target=i64[2,3,4] reduction=1 -> f32[] f32[]"},
    {"aten.nll_loss2d_forward.default",
     "self=f32[2,5,3,4] target=i64[2,3,4] reduction=0 -> f32[2,3,4] f32[]"},
    {"aten.nll_loss_backward.default",
     "grad_output=f32[] self=f32[4,8] target=i64[4] weight=f32[8] reduction=1 ignore_index=-100 "
     "total_weight=f32[] -> f32[4,8]"},
    {"aten.nll_loss_forward.default",
     "self=f32[4,8] target=i64[4] weight=f32[8] reduction=1 ignore_index=-100 -> f32[] f32[]"},
    {"aten.nll_loss_forward.default", "self=f32[4,8] target=i64[4] reduction=0 -> f32[4] f32[]"},

    {"aten._batch_norm_no_update.default",
     "input=f32[3,4,5] weight=f32[4] bias=f32[4] running_mean=f32[4] running_var=f32[4] "
     "momentum=0.1 eps=0.001 -> f32[3,4,5] f32[0] f32[0] u8[0]"},
    {"aten._native_batch_norm_legit.no_stats",
     "input=bf16[3,4,5] weight=f32[4] bias=f32[4] training=true momentum=0.1 eps=0.001 "
     "-> bf16[3,4,5] f32[4] f32[4]"},
    {"aten._native_batch_norm_legit_functional.default",
     "input=f32[3,4,5,2] weight=f32[4] bias=f32[4] running_mean=f32[4] running_var=f32[4] "
     "training=true momentum=0.1 eps=0.001 -> f32[3,4,5,2] f32[4] f32[4] f32[4] f32[4]"},
    {"aten._native_batch_norm_legit_no_training.default",
     "input=f64[3,4] running_mean=f64[4] running_var=f64[4] momentum=0.1 eps=0.001 "
     "-> f64[3,4] f64[0] f64[0]"},
    {"aten.batch_norm_backward.default",
     "grad_out=f32[3,4,5] input=f32[3,4,5] weight=f32[4] running_mean=f32[4] running_var=f32[4] "
     "save_mean=f32[4] save_var=f32[4] update=true eps=0.001 reserve=u8[0] "
     "-> f32[3,4,5] f32[4] f32[4]"},
    {"aten.native_batch_norm_backward.default",
     "grad_out=f32[3,4,5] input=f32[3,4,5] weight=f32[4] running_mean=f32[4] running_var=f32[4] "
     "save_mean=f32[4] save_invstd=f32[4] train=false eps=0.001 -> f32[3,4,5] f32[4] f32[4]"},

    {"aten._adaptive_avg_pool2d.default", "self=f32[2,3,7,6] output_size=[3,2] -> f32[2,3,3,2]"},
    {"aten._adaptive_avg_pool2d_backward.default",
     "grad_output=bf16[2,3,3,2] self=bf16[2,3,7,6] -> bf16[2,3,7,6]"},
    {"aten.adaptive_max_pool2d.default",
     "self=f32[3,7,6] output_size=[3,2] -> f32[3,3,2] i64[3,3,2]"},
    {"aten.adaptive_max_pool2d_backward.default",
     "grad_output=f32[2,3,3,2] self=f32[2,3,7,6] indices=i64[2,3,3,2] -> f32[2,3,7,6]"},
    {"aten.avg_pool2d.default",
     "self=f32[2,3,7,6] kernel_size=[3,2] stride=[2,2] padding=[1,0] ceil_mode=false "
     "count_include_pad=false divisor_override=3 -> f32[2,3,4,3]"},
    {"aten.avg_pool2d_backward.default",
     "grad_output=f32[2,3,4,3] self=f32[2,3,7,6] kernel_size=[3,2] stride=[2,2] padding=[1,0] "
     "ceil_mode=false count_include_pad=true -> f32[2,3,7,6]"},
    {"aten.avg_pool3d.default",
     "self=f64[2,3,4,5,6] kernel_size=[2,2,2] stride=[1,2,2] -> f64[2,3,3,2,3]"},
    {"aten.avg_pool3d_backward.default",
     "grad_output=f32[2,3,3,2,3] self=f32[2,3,4,5,6] kernel_size=[2,2,2] stride=[1,2,2] "
     "padding=[0,0,0] -> f32[2,3,4,5,6]"},
    {"aten.max_pool2d_with_indices.default",
     "self=f32[2,3,7,6] kernel_size=[3,3] stride=[2,2] padding=[1,1] dilation=[1,1] "
     "-> f32[2,3,4,3] i64[2,3,4,3]"},
    {"aten.max_pool2d_with_indices_backward.default",
     "grad_output=bf16[2,3,4,3] self=bf16[2,3,7,6] kernel_size=[3,3] stride=[2,2] padding=[1,1] "
     "dilation=[1,1] ceil_mode=false indices=i64[2,3,4,3] -> bf16[2,3,7,6]"},
    {"aten.max_pool3d_with_indices.default",
     "self=f16[2,3,4,5,6] kernel_size=[2,2,2] stride=[2,2,2] -> f16[2,3,2,2,3] i64[2,3,2,2,3]"},
    {"aten.max_pool3d_with_indices_backward.default",
     "grad_output=f32[2,3,2,2,3] self=f32[2,3,4,5,6] kernel_size=[2,2,2] stride=[2,2,2] "
     "padding=[0,0,0] dilation=[1,1,1] ceil_mode=false indices=i64[2,3,2,2,3] -> f32[2,3,4,5,6]"},

    {"aten._unsafe_index.Tensor", kIndex},
    {"aten._unsafe_index_put.default", kIndexPut},
    {"aten.embedding.default", "weight=f32[5,8] indices=i64[2,3] -> f32[2,3,8]"},
    {"aten.embedding_dense_backward.default",
     "grad_output=bf16[2,3,8] indices=i64[2,3] num_weights=5 padding_idx=1 "
     "scale_grad_by_freq=true -> f32[5,8]"},
    {"aten.gather.default", "self=f32[4,8] dim=1 index=i64[4,3] -> f32[4,3]"},
    {"aten.histc.default", "self=f32[20] bins=5 min=-1 max=2 -> f32[5]"},
    {"aten.index.Tensor", kIndex},
    {"aten.index_add.default",
     "self=f32[4,8] dim=1 index=i64[3] source=f32[4,3] alpha=2.0 -> f32[4,8]"},
    {"aten.index_put.default", kIndexPut},
    {"aten.index_select.default", "self=f32[4,8] dim=1 index=i32[3] -> f32[4,3]"},
    {"aten.scatter.src", "self=f32[4,8] dim=1 index=i64[3,3] src=f32[4,3] -> f32[4,8]"},
    {"aten.scatter.value", "self=i64[4,8] dim=0 index=i64[2,8] value=7 -> i64[4,8]"},
    {"aten.scatter_add.default", "self=bf16[4,8] dim=1 index=i64[4,3] src=bf16[4,3] -> bf16[4,8]"},
    {"aten.sort.default", "self=f32[4,8] dim=0 descending=true -> f32[4,8] i64[4,8]"},
    {"aten.sort.stable", "self=i64[4,8] stable=true dim=-1 -> i64[4,8] i64[4,8]"},
    {"aten.topk.default", "self=f64[4,8] k=3 dim=1 -> f64[4,3] i64[4,3]"},
};

}  // namespace

std::span<const KernelRow> kernel_rows() { return kRows; }

}  // namespace dc::fuzz
