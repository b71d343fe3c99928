"""Operators that are traced as others.

`table()`: decompositions of a few that dcc has no kernels for, by the steps of PyTorch's own kernels. torch 2.11's own ones of softshrink
and linear interpolations, which tracing uses whatever table it is given, are made what PyTorch's kernels compute: they leave a dim alone
that keeps its size, whatever the scale, and do not round a threshold to 16 bits.
"""

import contextlib
import math

import torch
from torch._decomp import decompositions, get_decompositions
from torch.nn import functional as F

from .precision import REDUCED

aten = torch.ops.aten


def table():
    """{operator: function} for tracing."""
    return {
        **get_decompositions([aten.diagonal_copy, aten.rot90, aten.rrelu_with_noise_backward]),
        aten.mvlgamma.default: _mvlgamma,
        aten.rrelu_with_noise_functional.default: _rrelu,
    }


def _mvlgamma(input, p):
    kind = input.dtype if input.is_floating_point() else torch.get_default_dtype()
    halves = torch.arange(0.5 - p / 2, 0.5, 0.5, dtype=kind, device=input.device)
    return (halves + input.unsqueeze(-1)).lgamma().sum(-1) + p * (p - 1) * math.log(math.pi) / 4


def _rrelu(input, noise, lower=1 / 8, upper=1 / 3, training=False, generator=None):
    return NotImplemented if training else (F.leaky_relu(input, (lower + upper) / 2), noise.clone())


@contextlib.contextmanager
def as_kernels():
    """While open, softshrink and linear interpolations are traced as PyTorch's kernels compute them."""
    before = decompositions._upsample_linear, F.softshrink
    decompositions._upsample_linear, F.softshrink = _upsample_linear(before[0]), _softshrink(before[1])
    try:
        yield
    finally:
        decompositions._upsample_linear, F.softshrink = before


def _upsample_linear(decomposed):
    def upsample(input, output_size, align_corners, scales):
        kept = [None if old == new else scale for old, new, scale in zip(input.shape[2:], output_size, scales, strict=True)]
        return decomposed(input, output_size, align_corners, kept)

    return upsample


def _softshrink(plain):
    def softshrink(input, lambd=0.5):
        narrow = input.dtype in REDUCED
        return plain(input.float(), lambd).to(input.dtype) if narrow else plain(input, lambd)

    return softshrink
