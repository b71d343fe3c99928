"""Samples of the ATen overloads behind losses, norms, softmax, convolutions, pooling and attention.

A sample takes a `Maker` and returns (args, kwargs), or None where it says nothing. It is made once per element type and layout;
what PyTorch itself does not compute in a type is left out.
"""

import torch

from aten_operands import aten, call, sample


def _losses():
    for reduction in (0, 1, 2):

        def gradient(m, reduction=reduction):
            return m.x(4, 6) if reduction == 0 else m.x()

        sample("mse_loss", lambda m, r=reduction: call(m.x(4, 6), m.x(4, 6), r))
        sample("mse_loss_backward", lambda m, r=reduction, g=gradient: call(g(m), m.x(4, 6), m.x(4, 6), r))
        for op in ("smooth_l1_loss", "huber_loss"):
            sample(op, lambda m, r=reduction: call(m.x(4, 6), m.x(4, 6), r, 0.5))
            sample(op + "_backward", lambda m, r=reduction, g=gradient: call(g(m), m.x(4, 6), m.x(4, 6), r, 0.5))
        sample("soft_margin_loss", lambda m, r=reduction: call(m.x(4, 6), m.x(4, 6), r))
        sample("soft_margin_loss_backward", lambda m, r=reduction, g=gradient: call(g(m), m.x(4, 6), m.x(4, 6), r))
        sample("binary_cross_entropy", lambda m, r=reduction: call(m.unit(4, 6), m.unit(4, 6), None, r))
        sample("binary_cross_entropy_backward", lambda m, r=reduction, g=gradient: call(g(m), m.unit(4, 6), m.unit(4, 6), None, r))
        sample("binary_cross_entropy_with_logits", lambda m, r=reduction: call(m.x(4, 6), m.unit(4, 6), None, None, r))
        sample("nll_loss_forward", lambda m, r=reduction: call(m.x(4, 6), m.index(6, 4), None, r, -100))
        sample("nll_loss_backward", lambda m, r=reduction: _nll_backward(m, r))
        sample("nll_loss2d_forward", lambda m, r=reduction: call(m.x(2, 5, 3, 4), m.index(5, 2, 3, 4), None, r, -100))
        sample("nll_loss2d_backward", lambda m, r=reduction: _nll2d_backward(m, r))
    sample("binary_cross_entropy", lambda m: call(m.unit(4, 6), m.unit(4, 6), m.positive(4, 6), 1))
    sample("binary_cross_entropy_backward", lambda m: call(m.x(), m.unit(4, 6), m.unit(4, 6), m.positive(4, 6), 1))
    sample("binary_cross_entropy_with_logits", lambda m: call(m.x(4, 6), m.unit(4, 6), m.positive(6), m.positive(6), 1))
    sample("nll_loss_forward", lambda m: call(m.x(4, 6), m.index(6, 4), m.positive(6), 1, 2))


def _nll_backward(m, reduction):
    x, target = m.x(4, 6), m.index(6, 4)
    total = aten.nll_loss_forward(x, target, None, reduction, -100)[1]
    return call(m.x(4) if reduction == 0 else m.x(), x, target, None, reduction, -100, total)


def _nll2d_backward(m, reduction):
    x, target = m.x(2, 5, 3, 4), m.index(5, 2, 3, 4)
    total = aten.nll_loss2d_forward(x, target, None, reduction, -100)[1]
    return call(m.x(2, 3, 4) if reduction == 0 else m.x(), x, target, None, reduction, -100, total)


def _mixed(m, *shape):
    """Weights as they are under autocast: f32 next to operands of 16 bits."""
    return torch.rand(shape, generator=m.generator) + 0.5


def _norms():
    mixes = (lambda m, *shape: m.positive(*shape), _mixed)
    for mixed, weights in enumerate(mixes):
        only_half = lambda m: m.dtype in (torch.bfloat16, torch.float16)

        def add(name, make, mixed=mixed, only_half=only_half):
            sample(name, lambda m: make(m) if not mixed or only_half(m) else None)

        add("native_layer_norm", lambda m, w=weights: call(m.x(4, 6), [6], w(m, 6), w(m, 6), 1e-5))
        add("native_layer_norm_backward", lambda m, w=weights: _layer_norm_backward(m, w))
        add("native_group_norm", lambda m, w=weights: call(m.x(2, 4, 6), w(m, 4), w(m, 4), 2, 4, 6, 2, 1e-5))
        add("native_group_norm_backward", lambda m, w=weights: _group_norm_backward(m, w))
        add("_fused_rms_norm", lambda m, w=weights: call(m.x(4, 6), [6], w(m, 6), 1e-5))
        add("_fused_rms_norm_backward", lambda m, w=weights: _rms_norm_backward(m, w))
        add("_batch_norm_no_update", lambda m, w=weights: call(m.x(3, 4, 5, 5), w(m, 4), w(m, 4), w(m, 4), w(m, 4), 0.1, 1e-5))
        add("_native_batch_norm_legit.no_stats", lambda m, w=weights: call(m.x(3, 4, 5, 5), w(m, 4), w(m, 4), True, 0.1, 1e-5))
        add("_native_batch_norm_legit_functional", lambda m, w=weights: call(m.x(3, 4, 5, 5), w(m, 4), w(m, 4), w(m, 4), w(m, 4), True, 0.1, 1e-5))
        add("_native_batch_norm_legit_no_training", lambda m, w=weights: call(m.x(3, 4, 5, 5), w(m, 4), w(m, 4), w(m, 4), w(m, 4), 0.1, 1e-5))
        add("native_batch_norm_backward", lambda m, w=weights: _batch_norm_backward(m, w, False))
        add("batch_norm_backward", lambda m, w=weights: _batch_norm_backward(m, w, True))
    sample("native_layer_norm", lambda m: call(m.x(4, 6), [6], None, None, 1e-5))
    sample("_weight_norm_interface", lambda m: call(m.plain(4, 6), m.plain(4, 1), 0))
    sample("_weight_norm_interface_backward", lambda m: _weight_norm_backward(m))


def _weight_norm_backward(m):
    v, g = m.plain(4, 6), m.plain(4, 1)
    return call(m.plain(4, 6), v, g, aten._weight_norm_interface(v, g, 0)[1], 0)


def _layer_norm_backward(m, w):
    # Equal elements, which an expanded row has, would be normalized to what roundings leave.
    x = m.plain(4, 6) if m.layout == "expanded" else m.x(4, 6)
    weight, bias = w(m, 6), w(m, 6)
    y, mean, rstd = aten.native_layer_norm(x, [6], weight, bias, 1e-5)
    return call(m.x(4, 6), x, [6], mean, rstd, weight, bias, [True, True, True])


def _group_norm_backward(m, w):
    x, weight, bias = m.plain(2, 4, 6), w(m, 4), w(m, 4)
    y, mean, rstd = aten.native_group_norm(x, weight, bias, 2, 4, 6, 2, 1e-5)
    return call(m.like(y), x, mean, rstd, weight, 2, 4, 6, 2, [True, True, True])


def _rms_norm_backward(m, w):
    x, weight = m.x(4, 6), w(m, 6)
    y, rstd = aten._fused_rms_norm(x, [6], weight, 1e-5)
    return call(m.like(y), x, [6], rstd, weight, [True, True])


def _batch_norm_backward(m, w, with_reserve):
    x, weight, bias, mean, var = m.x(3, 4, 5, 5), w(m, 4), w(m, 4), w(m, 4), w(m, 4)
    y, saved, rstd = aten._native_batch_norm_legit_functional(x, weight, bias, mean, var, True, 0.1, 1e-5)[:3]
    if with_reserve:
        reserve = torch.empty(0, dtype=torch.uint8)
        return call(m.like(y), x, weight, mean, var, saved, rstd, True, 1e-5, [True, True, True], reserve)
    return call(m.like(y), x, weight, mean, var, saved, rstd, True, 1e-5, [True, True, True])


def _masked_rows(m):
    """Rows of -inf alone, of -inf and NaN in any order, and of numbers with -inf."""
    x = m.plain(4, 3)
    x[:3] = -float("inf")
    x[1, 0] = x[2, 2] = float("nan")
    x[3, 0] = -float("inf")
    return x


def _softmaxes():
    sample("_softmax _log_softmax", lambda m: call(m.x(4, 7), -1, False))
    sample("_softmax _log_softmax", lambda m: call(m.x(2, 4, 7), 1, False))
    sample("_safe_softmax", lambda m: call(m.x(4, 7), -1))
    sample("_softmax _log_softmax", lambda m: call(_masked_rows(m), -1, False))
    sample("_safe_softmax", lambda m: call(_masked_rows(m), -1))
    sample("_softmax_backward_data", lambda m: call(m.x(4, 7), m.unit(4, 7), -1, m.dtype))
    sample("_log_softmax_backward_data", lambda m: call(m.x(4, 7), m.x(4, 7), -1, m.dtype))


def _convolutions():
    sample("_adaptive_avg_pool2d", lambda m: call(m.x(2, 3, 7, 6), [3, 2]))
    sample("_adaptive_avg_pool2d_backward", lambda m: call(m.x(2, 3, 3, 2), m.x(2, 3, 7, 6)))
    sample("adaptive_max_pool2d", lambda m: call(m.x(2, 3, 7, 6), [3, 2]))
    sample("adaptive_max_pool2d_backward", lambda m: _adaptive_max_pool_backward(m))
    sample("_adaptive_avg_pool3d adaptive_max_pool3d", lambda m: call(m.x(2, 3, 4, 5, 6), [3, 2, 2]))
    sample("_adaptive_avg_pool3d_backward", lambda m: call(m.x(2, 3, 3, 2, 2), m.x(2, 3, 4, 5, 6)))
    sample("adaptive_max_pool3d_backward", lambda m: _adaptive_max_pool3d_backward(m))
    sample("affine_grid_generator", lambda m: call(m.x(2, 2, 3), [2, 3, 4, 5], False))
    sample("affine_grid_generator", lambda m: call(m.x(2, 3, 4), [2, 3, 4, 5, 6], True))
    for mode, padding in ((0, 0), (1, 1), (2, 2)):  # bilinear, nearest, bicubic; zeros, border, reflection
        sample("grid_sampler_2d", lambda m, a=(mode, padding, False): call(m.x(2, 3, 4, 5), m.x(2, 6, 7, 2), *a))
        sample("grid_sampler_2d_backward", lambda m, a=(mode, padding, False): call(m.x(2, 3, 6, 7), m.x(2, 3, 4, 5), m.x(2, 6, 7, 2), *a, [True, True]))
    for mode, padding in ((0, 0), (1, 1)):
        sample("grid_sampler_3d", lambda m, a=(mode, padding, True): call(m.x(2, 3, 4, 5, 6), m.x(2, 3, 2, 4, 3), *a))
        sample(
            "grid_sampler_3d_backward", lambda m, a=(mode, padding, True): call(m.x(2, 3, 3, 2, 4), m.x(2, 3, 4, 5, 6), m.x(2, 3, 2, 4, 3), *a, [True, True])
        )
    sample("max_unpool2d", lambda m: _unpool(m, (2, 3, 8, 6), aten.max_pool2d_with_indices, [2, 2]))
    sample("max_unpool3d", lambda m: _unpool(m, (2, 3, 4, 6, 8), aten.max_pool3d_with_indices, [2, 2, 2], [2, 2, 2], [0, 0, 0]))
    sample("avg_pool3d", lambda m: call(m.x(2, 3, 4, 5, 6), [2, 2, 2], [1, 2, 2]))
    sample("avg_pool3d_backward", lambda m: call(m.x(2, 3, 3, 2, 3), m.x(2, 3, 4, 5, 6), [2, 2, 2], [1, 2, 2], [0, 0, 0], False, True, None))
    sample("max_pool3d_with_indices", lambda m: call(m.x(2, 3, 4, 5, 6), [2, 2, 2], [2, 2, 2]))
    sample("max_pool3d_with_indices_backward", lambda m: _max_pool3d_backward(m))
    sample("avg_pool2d", lambda m: call(m.x(2, 3, 7, 6), [2, 2], [2, 2], [1, 0]))
    sample("avg_pool2d_backward", lambda m: call(m.x(2, 3, 4, 3), m.x(2, 3, 7, 6), [2, 2], [2, 2], [1, 0], False, True, None))
    sample("max_pool2d_with_indices", lambda m: call(m.x(2, 3, 7, 6), [2, 2], [2, 2]))
    sample("max_pool2d_with_indices_backward", lambda m: _max_pool_backward(m))
    sample("im2col", lambda m: call(m.x(2, 3, 5, 6), [2, 2], [1, 1], [0, 0], [1, 1]))
    sample("col2im", lambda m: call(m.x(2, 12, 20), [5, 6], [2, 2], [1, 1], [0, 0], [1, 1]))
    for stride, groups, transposed in ((1, 1, False), (2, 1, False), (1, 3, False), (2, 1, True)):
        settings = ([stride] * 2, [1, 1], [1, 1], transposed, [0, 0], groups)
        shape = (3, 6, 3, 3) if transposed else (6, 3 // groups, 3, 3)
        sample("convolution", lambda m, s=shape, a=settings: call(m.x(2, 3, 8, 7), m.x(*s), m.x(6), *a))
        sample("convolution_backward", lambda m, s=shape, a=settings: _convolution_backward(m, s, a))
    one = ([1], [1], [1], False, [0], 1)
    sample("convolution", lambda m: call(m.x(2, 3, 9), m.x(4, 3, 3), None, *one))
    sample("convolution_backward", lambda m: _convolution_backward(m, (4, 3, 3), one, (2, 3, 9)))
    for op in ("upsample_bicubic2d", "upsample_bilinear2d"):
        sample(op, lambda m: call(m.x(2, 3, 4, 5), [8, 7], False))
        sample(op + "_backward", lambda m: call(m.x(2, 3, 8, 7), [8, 7], [2, 3, 4, 5], False))
    for op in ("_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa"):
        sample(op, lambda m: call(m.x(2, 3, 8, 7), [4, 5], False))
        sample(op + "_backward", lambda m: call(m.x(2, 3, 4, 5), [4, 5], [2, 3, 8, 7], False))
    sample("upsample_nearest2d", lambda m: call(m.x(2, 3, 4, 5), [8, 7]))
    sample("upsample_nearest2d_backward", lambda m: call(m.x(2, 3, 8, 7), [8, 7], [2, 3, 4, 5]))


def _adaptive_max_pool_backward(m):
    x = m.x(2, 3, 7, 6)
    y, where = aten.adaptive_max_pool2d(x, [3, 2])
    return call(m.like(y), x, where)


def _adaptive_max_pool3d_backward(m):
    x = m.x(2, 3, 4, 5, 6)
    y, where = aten.adaptive_max_pool3d(x, [3, 2, 2])
    return call(m.like(y), x, where)


def _unpool(m, shape, pool, window, *settings):
    y, where = pool(m.plain(*shape), window, window)
    return call(m.like(y), where, list(shape[2:]), *settings)


def _max_pool3d_backward(m):
    x = m.x(2, 3, 4, 5, 6)
    y, where = aten.max_pool3d_with_indices(x, [2, 2, 2], [2, 2, 2])
    return call(m.like(y), x, [2, 2, 2], [2, 2, 2], [0, 0, 0], [1, 1, 1], False, where)


def _max_pool_backward(m):
    x = m.x(2, 3, 7, 6)
    y, where = aten.max_pool2d_with_indices(x, [2, 2], [2, 2])
    return call(m.like(y), x, [2, 2], [2, 2], [0, 0], [1, 1], False, where)


def _convolution_backward(m, shape, settings, image=(2, 3, 8, 7)):
    x, weight = m.x(*image), m.x(*shape)
    y = aten.convolution(x, weight, None, *settings)
    return call(m.like(y), x, weight, [y.shape[1]], *settings, [True, True, True])


def _attention():
    flash = "_scaled_dot_product_flash_attention_for_cpu"

    def heads(m):
        return [m.plain(2, 12, 4, 8).transpose(1, 2) if m.layout == "transposed" else m.plain(2, 4, 12, 8) for _ in range(3)]

    def backward(m, causal):
        q, k, v = heads(m)
        out, lse = getattr(aten, flash)(q, k, v, 0.0, causal)
        return call(m.like(out), q, k, v, out, lse, 0.0, causal)

    for causal in (False, True):
        sample(flash, lambda m, c=causal: call(*heads(m), 0.0, c))
        sample(flash + "_backward", lambda m, c=causal: backward(m, c))
    sample(flash, lambda m: call(*heads(m), 0.0, False, attn_mask=m.x(2, 1, 12, 12)))


def add_all():
    for group in (_losses, _norms, _softmaxes, _convolutions, _attention):
        group()
