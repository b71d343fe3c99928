"""torch 2.11's own decompositions of softshrink and linear interpolations, which tracing uses whatever table it is given, made what
PyTorch's kernels compute: they leave a dim alone that keeps its size, whatever the scale, and do not round a threshold to 16 bits.
"""

import contextlib

import torch
from torch._decomp import decompositions
from torch.nn import functional as F


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
        narrow = input.dtype in (torch.bfloat16, torch.float16)
        return plain(input.float(), lambd).to(input.dtype) if narrow else plain(input, lambd)

    return softshrink
