"""Samples of every ATen overload in src/ir/aten_ops.def but layers and losses, which are in aten_layer_samples.py.

A sample takes a `Maker` and returns (args, kwargs), or None where it says nothing. It is made once per element type and layout;
what PyTorch itself does not compute in a type is left out.
"""

import torch

from aten_operands import aten, call, sample


def _views():
    sample("alias detach lift_fresh t", lambda m: call(m.x(3, 4)))
    sample("as_strided", lambda m: call(m.plain(24), [3, 4], [4, 1], 2))
    sample("diagonal", lambda m: call(m.x(4, 5), 1, 0, 1))
    sample("expand", lambda m: call(m.x(3, 1), [2, 3, 4]))
    sample("permute", lambda m: call(m.x(2, 3, 4), [2, 0, 1]))
    sample("select.int", lambda m: call(m.x(3, 4), 0, 1))
    sample("slice.Tensor", lambda m: call(m.x(6, 4), 0, 1, 6, 2))
    sample("split.Tensor", lambda m: call(m.x(6, 5), 2, 1))
    sample("split_with_sizes", lambda m: call(m.x(6, 5), [1, 4], 1))
    sample("squeeze", lambda m: call(m.x(3, 1, 4)))
    sample("squeeze.dim", lambda m: call(m.x(3, 1, 4), 1))
    sample("squeeze.dims", lambda m: call(m.x(3, 1, 4), [1]))
    sample("transpose.int", lambda m: call(m.x(2, 3, 4), 0, 2))
    sample("unbind.int", lambda m: call(m.x(3, 4), 1))
    sample("unfold", lambda m: call(m.x(3, 8), 1, 3, 2))
    sample("unsqueeze", lambda m: call(m.x(3, 4), 1))
    sample("view _unsafe_view", lambda m: call(m.plain(3, 4), [2, 6]))
    sample("_reshape_alias", lambda m: call(m.plain(3, 4), [2, 6], [6, 1]))


def _checks():
    sample("_assert_async", lambda m: call(torch.tensor(True)))
    sample("_assert_async.msg", lambda m: call(torch.tensor(True), "text"))
    sample("_assert_scalar", lambda m: call(1, "text"))
    sample("_assert_tensor_metadata", lambda m: call(m.x(3)))


def _creation():
    sample("arange", lambda m: call(7, dtype=m.dtype))
    sample("arange.start", lambda m: call(2, 9, dtype=m.dtype))
    sample("arange.start_step", lambda m: call(2, 9, 3, dtype=m.dtype))
    sample("empty.memory_format", lambda m: call([2, 3], dtype=m.dtype))
    sample("empty_permuted", lambda m: call([2, 3, 4], [2, 0, 1], dtype=m.dtype))
    sample("empty_strided", lambda m: call([2, 3], [1, 2], dtype=m.dtype))
    sample("empty_like zeros_like ones_like", lambda m: call(m.x(3, 4)))
    sample("eye", lambda m: call(3, dtype=m.dtype))
    sample("eye.m", lambda m: call(3, 4, dtype=m.dtype))
    sample("full", lambda m: call([2, 3], 1, dtype=m.dtype))
    sample("full_like", lambda m: call(m.x(3, 4), 1))
    sample("linspace", lambda m: call(0, 6, 4, dtype=m.dtype))
    sample("new_empty new_zeros new_ones", lambda m: call(m.x(3, 4), [2, 5]))
    sample("new_empty_strided", lambda m: call(m.x(3, 4), [2, 5], [1, 2]))
    sample("new_full", lambda m: call(m.x(3, 4), [2, 5], 1))
    sample("ones zeros", lambda m: call([2, 3], dtype=m.dtype))
    sample("scalar_tensor", lambda m: call(1, dtype=m.dtype))
    sample("tril_indices triu_indices", lambda m: call(3, 4, 1, dtype=m.dtype))


def _copies():
    sample("as_strided_scatter", lambda m: call(m.plain(24), m.plain(3, 4), [3, 4], [4, 1], 2))
    sample("cat", lambda m: call([m.x(3, 4), m.x(2, 4)], 0))
    sample("clone lift_fresh_copy", lambda m: call(m.x(3, 4)))
    sample("expand_copy", lambda m: call(m.x(3, 1), [3, 4]))
    sample("clone", lambda m: call(m.x(3, 1).expand(3, 4), memory_format=torch.contiguous_format))
    sample("block_diag", lambda m: call([m.x(3, 4), m.x(2, 3)]))
    sample("channel_shuffle", lambda m: call(m.x(2, 6, 3, 5), 2))
    sample("constant_pad_nd", lambda m: call(m.x(3, 4), [1, 2, 0, 1], 1))
    sample("copy", lambda m: call(m.x(3, 4), m.x(3, 4)))
    sample("diag_embed", lambda m: call(m.x(3, 4)))
    sample("diag_embed", lambda m: call(m.x(3, 4), -1, 0, 2))
    sample("diagonal_backward", lambda m: call(m.x(4), [4, 5], 0, 0, 1))
    sample("diagonal_backward", lambda m: call(m.x(3, 2), [4, 3, 3], -2, 0, 2))
    sample("diagonal_scatter", lambda m: call(m.x(4, 5), m.x(4)))
    sample("diagonal_scatter", lambda m: call(m.x(4, 5), m.x(2), 3))
    sample("flip", lambda m: call(m.x(3, 4), [1]))
    sample("flip", lambda m: call(m.x(3, 4, 5), [0, -1]))
    sample("pixel_shuffle", lambda m: call(m.x(2, 8, 3, 3), 2))
    sample("pixel_unshuffle", lambda m: call(m.x(2, 2, 6, 6), 2))
    sample("reflection_pad1d", lambda m: call(m.x(2, 3, 6), [1, 2]))
    sample("reflection_pad1d_backward", lambda m: call(m.x(2, 3, 9), m.x(2, 3, 6), [1, 2]))
    sample("replication_pad1d", lambda m: call(m.x(2, 3, 6), [1, 2]))
    sample("replication_pad1d_backward", lambda m: call(m.x(2, 3, 9), m.x(2, 3, 6), [1, 2]))
    sample("replication_pad2d", lambda m: call(m.x(2, 3, 5, 6), [1, 2, 2, 1]))
    sample("replication_pad2d_backward", lambda m: call(m.x(2, 3, 8, 9), m.x(2, 3, 5, 6), [1, 2, 2, 1]))
    for kind in ("reflection", "replication"):
        sample(f"{kind}_pad3d", lambda m: call(m.x(2, 3, 4, 5, 6), [1, 2, 2, 1, 0, 1]))
        sample(f"{kind}_pad3d_backward", lambda m: call(m.x(2, 3, 5, 8, 9), m.x(2, 3, 4, 5, 6), [1, 2, 2, 1, 0, 1]))
    sample("reflection_pad2d", lambda m: call(m.x(2, 3, 5, 6), [1, 2, 2, 1]))
    sample("reflection_pad2d_backward", lambda m: call(m.x(2, 3, 8, 9), m.x(2, 3, 5, 6), [1, 2, 2, 1]))
    sample("repeat", lambda m: call(m.x(3, 4), [2, 1, 2]))
    sample("repeat_interleave.self_int", lambda m: call(m.x(3, 4), 2, 1))
    sample("repeat_interleave.self_int", lambda m: call(m.x(3, 4, 2), 3))
    for shifts, dims in (([1], [1]), ([-2, 1], [0, -1]), ([2, 2], [1, 1]), ([-7], []), ([8], [0])):
        sample("roll", lambda m, shifts=shifts, dims=dims: call(m.x(3, 4), shifts, dims))
    sample("roll", lambda m: call(m.x(3, 4, 5), [33]))
    sample("roll", lambda m: call(m.x(2, 4, 6, 3), [-2, -3], [1, 2]))
    sample("select_backward", lambda m: call(m.x(4), [3, 4], 0, 1))
    sample("select_scatter", lambda m: call(m.x(3, 4), m.x(4), 0, 1))
    sample("slice_backward", lambda m: call(m.x(2, 4), [5, 4], 0, 1, 5, 2))
    sample("slice_scatter", lambda m: call(m.x(5, 4), m.x(2, 4), 0, 1, 5, 2))
    sample("stack", lambda m: call([m.x(3, 4), m.x(3, 4)], 1))
    sample("tril triu", lambda m: call(m.x(4, 5), 1))
    sample("unfold_backward", lambda m: call(m.x(3, 3, 3), [3, 8], 1, 3, 2))
    sample("_to_copy", lambda m: call(m.x(3, 4), dtype=torch.float32))
    sample("_to_copy", lambda m: call(m.x(3, 4), dtype=torch.bfloat16))
    sample("_unsafe_index.Tensor", lambda m: call(m.x(5, 6), [m.index(5, 3), None]))


def _arithmetic():
    sample("abs atan ceil cos cosh erf erfc exp exp2 expm1 floor frac neg round sgn sign sin sinh tan tanh trunc", lambda m: call(m.x(3, 5)))
    sample("acos asin erfinv", lambda m: call(m.x(3, 5, low=-0.9, high=0.9)))
    sample("log log10 log1p log2 reciprocal rsqrt sqrt", lambda m: call(m.positive(3, 5)))
    sample("nan_to_num", lambda m: call(m.x(3, 5)))
    sample("round.decimals", lambda m: call(m.x(3, 5), decimals=1))
    sample("add.Scalar sub.Scalar mul.Scalar rsub.Scalar", lambda m: call(m.x(3, 5), 2))
    sample("add.Tensor sub.Tensor mul.Tensor div.Tensor rsub.Scalar", lambda m: call(m.x(9, 5), 0.3))
    sample("add.Tensor sub.Tensor rsub.Scalar", lambda m: call(m.x(9, 5), 0.3, alpha=0.7))
    sample("add.Tensor sub.Tensor mul.Tensor div.Tensor", lambda m: call(m.x(9, 5), torch.tensor(0.3)))
    sample("add.Tensor sub.Tensor mul.Tensor div.Tensor", lambda m: call(torch.tensor(0.3), m.positive(9, 5)))
    sample("div.Scalar", lambda m: call(m.x(3, 5), 2))
    sample("div.Scalar_mode", lambda m: call(m.x(3, 5), 2, rounding_mode="floor"))
    sample("fmod.Scalar remainder.Scalar floor_divide.Scalar", lambda m: call(m.x(3, 5), 2))
    sample("remainder.Scalar_Tensor", lambda m: call(3, m.positive(3, 5)))
    sample("add.Tensor sub.Tensor mul.Tensor rsub.Tensor maximum minimum hypot logaddexp atan2", lambda m: call(m.x(3, 5), m.x(3, 5)))
    sample("add.Tensor mul.Tensor", lambda m: call(m.x(3, 5), m.x(5)))
    sample("div.Tensor fmod.Tensor remainder.Tensor floor_divide", lambda m: call(m.x(3, 5), m.positive(3, 5)))
    sample("div.Tensor_mode", lambda m: call(m.x(3, 5), m.positive(3, 5), rounding_mode="trunc"))
    sample("xlogy.Tensor pow.Tensor_Tensor", lambda m: call(m.positive(3, 5), m.positive(3, 5)))
    sample("add.Tensor mul.Tensor", lambda m: call(m.x(3, 5), torch.tensor(0.1, dtype=torch.float64)))
    sample("pow.Scalar", lambda m: call(2, m.positive(3, 5)))
    sample("pow.Tensor_Scalar", lambda m: call(m.x(3, 5), 3))
    sample("addcdiv addcmul", lambda m: call(m.x(3, 5), m.x(3, 5), m.positive(3, 5), value=2))
    sample("clamp", lambda m: call(m.x(3, 5), -1, 1))
    sample("clamp_max clamp_min", lambda m: call(m.x(3, 5), 1))
    sample("clamp.Tensor", lambda m: call(m.x(3, 5), m.x(5, low=-2, high=-1), m.x(5, low=0, high=1)))
    sample("clamp_max.Tensor clamp_min.Tensor", lambda m: call(m.x(3, 5), m.x(5)))
    sample("lerp.Scalar", lambda m: call(m.x(3, 5), m.x(3, 5), 0.25))
    sample("lerp.Tensor", lambda m: call(m.x(3, 5), m.x(3, 5), m.unit(3, 5)))
    sample("asinh deg2rad i0 rad2deg sinc special_i0e special_i1 special_i1e special_log_ndtr", lambda m: call(m.x(3, 5)))
    sample("acosh digamma lgamma special_entr", lambda m: call(m.positive(3, 5) + 1))
    sample("atanh special_ndtri", lambda m: call(m.unit(3, 5)))
    sample("copysign.Tensor fmax fmin heaviside logaddexp2", lambda m: call(m.x(3, 5), m.x(3, 5)))
    sample("copysign.Scalar", lambda m: call(m.x(3, 5), -1))
    sample("ldexp.Tensor", lambda m: call(m.x(3, 5), m.index(4, 3, 5)))
    sample("polygamma", lambda m: call(1, m.positive(3, 5)))
    sample("special_xlog1py", lambda m: call(m.x(3, 5), m.positive(3, 5)))
    sample("xlogy.Scalar_Other", lambda m: call(m.x(3, 5), 2))
    sample("xlogy.Scalar_Self", lambda m: call(2, m.positive(3, 5)))
    sample("tanh_backward sigmoid_backward", lambda m: call(m.x(3, 5), m.unit(3, 5)))


def _activations():
    sample("celu elu gelu hardsigmoid hardswish hardtanh leaky_relu log_sigmoid_forward mish relu relu6 sigmoid silu softplus", lambda m: call(m.x(3, 6)))
    sample("gelu", lambda m: call(m.x(3, 6), approximate="tanh"))
    sample("sigmoid silu", lambda m: call(_far_below(m)))
    sample("silu_backward", lambda m: call(m.positive(5), _far_below(m)))
    sample("glu", lambda m: call(m.x(3, 6), 1))
    sample("glu_backward", lambda m: call(m.x(3, 3), m.x(3, 6), 1))
    sample("logit", lambda m: call(m.unit(3, 6), 1e-3))
    sample("logit_backward", lambda m: call(m.x(3, 6), m.unit(3, 6), 1e-3))
    sample("threshold", lambda m: call(m.x(3, 6), 0, 0))
    sample("elu_backward", lambda m: call(m.x(3, 6), 1.0, 1.0, 1.0, False, m.x(3, 6)))
    sample("gelu_backward hardsigmoid_backward hardswish_backward mish_backward silu_backward", lambda m: call(m.x(3, 6), m.x(3, 6)))
    sample("gelu_backward", lambda m: call(m.x(3, 6), m.x(3, 6), approximate="tanh"))
    sample("hardtanh_backward", lambda m: call(m.x(3, 6), m.x(3, 6), -1, 1))
    sample("_prelu_kernel", lambda m: call(m.x(3, 6), m.x(3, 6)))
    sample("_prelu_kernel_backward", lambda m: call(m.x(3, 6), m.x(3, 6), m.x(3, 6)))
    sample("leaky_relu_backward", lambda m: call(m.x(3, 6), m.x(3, 6), 0.01, False))
    sample("log_sigmoid_backward", lambda m: _log_sigmoid_backward(m))
    sample("softplus_backward", lambda m: call(m.x(3, 6), m.x(3, 6), 1, 20))
    sample("threshold_backward", lambda m: call(m.x(3, 6), m.x(3, 6), 0))


def _around_a_tenth(m):
    """0.1, which no type holds exactly, and its neighbours in the element type."""
    tenth = torch.tensor(0.1).to(m.dtype)
    if not m.dtype.is_floating_point:
        return tenth.expand(2, 3)
    above, below = (torch.nextafter(tenth, torch.tensor(float(end)).to(m.dtype)) for end in (1, 0))
    return torch.stack([tenth, above, below]).expand(2, 3)


def _far_below(m):
    """Where exp(-x) is infinite, or nearly."""
    return torch.tensor([-3e38, -1e30, -100.0, -90.0, -88.5]).to(m.dtype)


def _log_sigmoid_backward(m):
    x = m.x(3, 6)
    return call(m.x(3, 6), x, aten.log_sigmoid_forward(x)[1])


def _choices():
    for op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        sample(f"{op}.Scalar", lambda m: call(m.x(3, 5), 1))
        sample(f"{op}.Tensor", lambda m: call(m.x(3, 5), m.x(3, 5)))
    for op in ("bitwise_left_shift", "bitwise_right_shift"):
        sample(f"{op}.Tensor", lambda m: call(m.positive(3, 5), m.positive(3, 5)))
        sample(f"{op}.Tensor_Scalar", lambda m: call(m.positive(3, 5), 1))
    for op in ("__lshift__", "__rshift__"):
        sample(f"{op}.Tensor", lambda m: call(m.positive(3, 5), m.positive(3, 5)))
        sample(f"{op}.Scalar", lambda m: call(m.positive(3, 5), 1))
    sample("isin.Tensor_Tensor", lambda m: call(m.x(3, 5), m.x(4)))
    sample("isin.Tensor_Scalar", lambda m: call(m.index(4, 3, 5), 2))
    sample("isneginf isposinf signbit", lambda m: call(m.x(3, 5)))
    sample("bitwise_not isfinite isinf isnan logical_not", lambda m: call(m.x(3, 5)))
    for op in ("eq", "ge", "gt", "le", "lt", "ne"):
        sample(f"{op}.Scalar", lambda m: call(m.x(3, 5), 1))
        sample(f"{op}.Tensor", lambda m: call(m.x(3, 5), m.x(5)))
        # PyTorch compares in the tensors' type: a number, or a tensor without dims, is rounded to it.
        sample(f"{op}.Scalar", lambda m: call(_around_a_tenth(m), 0.1))
        sample(f"{op}.Tensor", lambda m: call(_around_a_tenth(m), torch.tensor(0.1)))
        sample(f"{op}.Tensor", lambda m: call(torch.tensor(0.1, dtype=torch.float64), _around_a_tenth(m)))
        sample(f"{op}.Tensor", lambda m: call(m.x(3, 5) * 0 + 256, torch.tensor(257)))
    sample("fill.Scalar", lambda m: call(m.x(3, 5), 1))
    sample("fill.Tensor", lambda m: call(m.x(3, 5), m.x()))
    sample("logical_and logical_or logical_xor", lambda m: call(m.x(3, 5), m.x(3, 5)))
    sample("zero", lambda m: call(m.x(3, 5)))
    sample("masked_fill.Scalar", lambda m: call(m.x(3, 5), m.mask(3, 5), 1))
    sample("masked_fill.Tensor", lambda m: call(m.x(3, 5), m.mask(5), m.x()))
    sample("where.Scalar", lambda m: call(m.mask(3, 5), 1, 2))
    sample("where.ScalarOther", lambda m: call(m.mask(3, 5), m.x(3, 5), 2))
    sample("where.ScalarSelf", lambda m: call(m.mask(3, 5), 2, m.x(3, 5)))
    sample("where.self", lambda m: call(m.mask(3, 5), m.x(3, 5), m.x(3, 5)))
    sample("where.self", lambda m: call(m.mask(3, 5), m.x(3, 5), m.x()))


def _reductions():
    sample("all any max min mean prod sum argmax argmin", lambda m: call(m.x(3, 5)))
    sample("all.dim any.dim max.dim min.dim prod.dim_int cumsum cumprod cummax logcumsumexp argmax argmin", lambda m: call(m.x(3, 5), 1))
    sample("aminmax count_nonzero median nanmedian nansum", lambda m: call(m.x(3, 5)))
    sample("median.dim mode nanmedian.dim cummin", lambda m: call(m.x(3, 5), 1))
    sample("all.dims count_nonzero.dim_IntList nansum", lambda m: call(m.x(3, 5), [0]))
    sample("kthvalue", lambda m: call(m.x(3, 5), 2, 1))
    sample("trace", lambda m: call(m.x(3, 5)))
    sample("renorm", lambda m: call(m.x(3, 5), 2, 0, 1))
    sample("linalg_cross", lambda m: call(m.x(4, 3), m.x(4, 3)))
    sample("dist", lambda m: call(m.x(3, 5), m.x(3, 5), 2))
    for power in (1, 2, 3, float("inf")):
        sample("_cdist_forward", lambda m, p=power: call(m.x(2, 4, 5), m.x(2, 3, 5), p, 2))
        sample("_cdist_backward", lambda m, p=power: _cdist_backward(m, p))
        sample("_pdist_forward", lambda m, p=power: call(m.x(4, 5), p))
        sample("_pdist_backward", lambda m, p=power: _pdist_backward(m, p))
    sample("logsumexp", lambda m: call(m.x(3, 5, 600), [0, 2], True))
    sample("any.dims amax amin logsumexp mean.dim sum.dim_IntList", lambda m: call(m.x(3, 5), [0]))
    sample("mean.dim sum.dim_IntList", lambda m: call(m.x(2, 3, 5), [0, 2], True))
    sample("mean.dim sum.dim_IntList", lambda m: call(m.x(2, 3, 5), [-1], dtype=torch.float32))
    for dtype in (torch.int64, torch.int32, torch.bool):  # elements are converted before they are folded
        sample("sum prod", lambda m, d=dtype: call(m.x(3, 5), dtype=d))
        sample("sum.dim_IntList", lambda m, d=dtype: call(m.x(3, 5), [0], dtype=d))
        sample("sum.dim_IntList", lambda m, d=dtype: call(m.x(3, 700), [1], dtype=d))
        sample("sum.dim_IntList", lambda m, d=dtype: call(m.x(700, 3), [0], dtype=d))
        sample("prod.dim_int cumsum", lambda m, d=dtype: call(m.x(3, 5), 1, dtype=d))
    for power in (0, 1, 2, 3.5, float("inf"), -float("inf")):
        sample("linalg_vector_norm", lambda m, p=power: call(m.x(3, 5), p, [1], True))
        sample("linalg_vector_norm", lambda m, p=power: call(m.x(3, 5, 4), p, [0, -1]))
    sample("linalg_vector_norm", lambda m: call(m.x(3, 5), 2, [1], dtype=torch.float64))
    sample("linalg_vector_norm", lambda m: call(m.x(3, 5)))
    sample("norm.Scalar", lambda m: call(m.x(3, 5), 2))
    sample("norm.ScalarOpt_dim", lambda m: call(m.x(3, 5), 2, [1]))
    sample("norm.ScalarOpt_dim", lambda m: call(m.x(3, 5), None, [0]))
    variances = "std.correction std_mean.correction var.correction var_mean.correction"
    sample(variances, lambda m: call(m.x(3, 5), [1], correction=1))
    sample(variances, lambda m: call(m.x(3, 5, 4), [0, 2], correction=0, keepdim=True))
    sample(variances, lambda m: call(m.x(3, 5)))


def _cdist_backward(m, power):
    x, y = m.x(2, 4, 5), m.x(2, 3, 5)
    z = aten._cdist_forward(x, y, power, 2)
    return call(m.plain(*z.shape), x, y, power, z)


def _pdist_backward(m, power):
    x = m.x(4, 5)
    z = aten._pdist_forward(x, power)
    return call(m.plain(*z.shape), x, power, z)


def _definite(m, *shape):
    """A positive definite matrix, laid out as `m` says."""
    x = m.plain(*shape)
    return m.like(x).copy_(x @ x.mT + torch.eye(shape[-1], dtype=m.dtype)) if m.dtype.is_floating_point else x


def _factored(m):
    lu, pivots, _ = aten.linalg_lu_factor_ex(_definite(m, 2, 4, 4))
    return call(lu, pivots, m.x(2, 4, 3))


def _decompositions():
    sample("linalg_lu_solve", _factored)
    for shape in ((4, 4), (2, 4, 4)):
        names = "linalg_cholesky_ex linalg_inv_ex linalg_lu_factor_ex linalg_matrix_exp _linalg_det _linalg_eigh _linalg_slogdet cholesky_inverse"
        sample(names, lambda m, s=shape: call(_definite(m, *s)))
        sample("_linalg_solve_ex", lambda m, s=shape: call(_definite(m, *s), m.x(*s[:-1], 3)))
        sample("cholesky_solve", lambda m, s=shape: call(m.x(*s[:-1], 3), _definite(m, *s)))
    for shape in ((5, 3), (2, 5, 3)):
        sample("linalg_qr _linalg_svd", lambda m, s=shape: call(m.x(*s)))
        sample("linalg_householder_product", lambda m, s=shape: call(m.x(*s), m.unit(*s[:-2], 3)))


def _products():
    sample("linalg_solve_triangular", lambda m: call(m.positive(4, 4), m.x(4, 3), upper=True))
    sample("linalg_solve_triangular", lambda m: call(m.positive(2, 3, 4, 4), m.x(2, 3, 4, 5), upper=False, unitriangular=True))
    sample("linalg_solve_triangular", lambda m: call(m.positive(2, 4, 4), m.x(2, 5, 4), upper=False, left=False))
    sample("linalg_solve_triangular", lambda m: call(m.positive(3, 1, 4, 4), m.x(2, 4, 70), upper=False))
    sample("linalg_solve_triangular", lambda m: call(m.positive(4, 4), m.x(2, 5, 4), upper=True, left=False))
    sample("mm", lambda m: call(m.x(5, 8), m.x(8, 6)))
    sample("bmm", lambda m: call(m.x(3, 5, 8), m.x(3, 8, 6)))
    sample("mv", lambda m: call(m.x(5, 8), m.x(8)))
    sample("dot vdot", lambda m: call(m.x(8), m.x(8)))
    sample("_trilinear", lambda m: call(m.x(4, 3), m.x(5, 3, 6), m.x(4, 6), [1, 3], [0], [1, 2], [2, 3]))
    sample("addmm", lambda m: call(m.x(6), m.x(5, 8), m.x(8, 6)))
    sample("addr", lambda m: call(m.x(5, 8), m.x(5), m.x(8)))
    sample("addmv", lambda m: call(m.x(5), m.x(5, 8), m.x(8)))
    sample("addbmm", lambda m: call(m.x(5, 6), m.x(3, 5, 8), m.x(3, 8, 6)))
    sample("baddbmm", lambda m: call(m.x(3, 5, 6), m.x(3, 5, 8), m.x(3, 8, 6), beta=1, alpha=0.5))
    sample("_grouped_mm", lambda m: call(m.plain(16, 16), m.plain(2, 16, 16), torch.tensor([8, 16], dtype=torch.int32)))


def _indexing():
    sample("bucketize.Tensor", lambda m: call(m.x(3, 5), m.plain(4).sort()[0]))
    sample("searchsorted.Tensor", lambda m: call(m.plain(4).sort()[0], m.x(3, 5)))
    sample("embedding", lambda m: call(m.x(8, 6), m.index(8, 3, 4)))
    sample("embedding_dense_backward", lambda m: call(m.x(3, 4, 6), m.index(8, 3, 4), 8, -1, False))
    sample("embedding_dense_backward", lambda m: call(m.x(3, 4, 6), m.index(8, 3, 4), 8, 0, True))
    sample("gather", lambda m: call(m.x(5, 6), 1, m.index(6, 5, 2)))
    sample("histc", lambda m: call(m.x(20), 5, -2, 2))
    # At the ends of parts rounding decides.
    sample("histc", lambda m: call((torch.arange(1, 10, dtype=torch.float64) / 10).to(m.dtype), 10, 0, 1))
    sample("histc", lambda m: call(m.x(200), 100, -0.3, 0.7))
    sample("histc", lambda m: call(m.x(20), 5))  # from the smallest to the largest
    sample("histc", lambda m: call(m.x(4, 5), 3, 1, 1))
    sample("histc", lambda m: call(m.x(1).expand(4), 3))
    sample("histc", lambda m: call(m.x(0), 3))
    sample("index.Tensor", lambda m: call(m.x(5, 6), [m.index(5, 3), None]))
    sample("index.Tensor", lambda m: call(m.x(5, 6, 3), [None, m.index(6, 4), m.index(3, 4)]))
    sample("index.Tensor", lambda m: call(m.x(5, 6, 3), [m.index(5, 4), None, m.index(3, 4)]))
    sample("index_add", lambda m: call(m.x(3, 5, 4), 1, torch.tensor([4, 0, 4]), m.x(3, 3, 4), alpha=2))
    sample("index_add index_copy", lambda m: call(m.x(5, 6), 0, torch.tensor([4, 0, 2]), m.x(3, 6)))
    sample("index_fill.int_Scalar", lambda m: call(m.x(5, 6), 0, torch.tensor([4, 0]), 1))
    sample("index_put _unsafe_index_put", lambda m: call(m.x(5, 6), [torch.tensor([4, 0, 2])], m.x(3, 6)))
    sample("index_put _unsafe_index_put", lambda m: call(m.x(5, 6), [torch.tensor([4, 0, 4])], m.x(3, 6), True))
    sample("index_fill.int_Tensor", lambda m: call(m.x(5, 6), 0, torch.tensor([4, 0]), m.x()))
    for how in ("prod", "mean", "amax", "amin"):
        sample("index_reduce", lambda m, h=how: call(m.x(5, 6), 0, torch.tensor([4, 0, 4]), m.x(3, 6), h))
    sample("index_select", lambda m: call(m.x(5, 6), 1, m.index(6, 4)))
    sample("index_select_backward", lambda m: call(m.x(5, 4), [5, 6], 1, m.index(6, 4)))
    sample("masked_scatter", lambda m: call(m.x(3, 5), m.mask(3, 5), m.x(3, 5)))
    sample("masked_scatter", lambda m: call(m.x(5), m.mask(3, 5), m.x(3, 5)))
    sample("masked_scatter_backward", lambda m: call(m.x(3, 5), m.mask(3, 5), [15]))
    sample("put", lambda m: call(m.x(5, 6), torch.tensor([4, 0, 11]), m.x(3)))
    sample("put", lambda m: call(m.x(5, 6), torch.tensor([4, 0, 4]), m.x(3), True))
    sample("take", lambda m: call(m.x(5, 6), m.index(30, 3, 4)))
    sample("scatter.src scatter_add", lambda m: call(m.x(5, 6), 1, torch.tensor([[4, 0], [1, 5], [2, 3]]), m.x(3, 2)))
    sample("scatter.value", lambda m: call(m.x(5, 6), 1, torch.tensor([[4, 0], [1, 5]]), 1))
    for how in ("sum", "amax", "mean", "prod"):
        sample("scatter_reduce.two", lambda m, h=how: call(m.x(5, 6), 1, torch.tensor([[4, 0], [1, 5]]), m.x(2, 2), h))
    sample("sort", lambda m: call(m.x(3, 7), 1, True))
    sample("sort.stable", lambda m: call(m.x(3, 7), stable=True, dim=1, descending=False))
    sample("topk", lambda m: call(m.x(3, 7), 2, 1))
    sample("value_selecting_reduction_backward", lambda m: call(m.x(3), 1, m.index(5, 3), [3, 5], False))


def _dropout():
    sample("native_dropout_backward", lambda m: call(m.x(3, 5), m.mask(3, 5), 2.0))


def add_all():
    for group in (_views, _checks, _creation, _copies, _arithmetic, _activations, _choices, _reductions, _decompositions, _products, _indexing, _dropout):
        group()
