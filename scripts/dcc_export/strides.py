"""Strides that torch's shape functions get wrong.

Some operators are traced through a decomposition whose operands come in another order than the
kernel's. The kernel's result then has other strides than recorded (softplus_backward), and a
`view` that was legal while tracing fails when the file is run.
"""

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily


def are_misjudged(node):
    """True if a kernel whose operands all have its result's shape orders the result's dimensions
    otherwise than recorded. Tried on the CPU with tensors of two elements per dimension. Asks
    nothing of symbolic sizes, so that none of them is bound by a condition."""
    value = node.meta["val"]
    operands = [n.meta["val"] for n in node.all_input_nodes]
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.is_view:
        return False
    if torch.Tag.nondeterministic_seeded in node.target.tags:
        return False
    if not all(isinstance(t, torch.Tensor) for t in [value, *operands]):
        return False
    if any(_expressions(t) != _expressions(value) for t in operands):
        return False
    if all(_concrete(t).is_contiguous() for t in operands):
        return False
    args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: _small(n.meta["val"]))
    try:
        with unset_fake_temporarily():
            return node.target(*args, **kwargs).stride() != _small(value).stride()
    except Exception:  # an argument that fits the real shape only: nothing is known
        return False


def _expressions(tensor):
    return [s.node.expr if isinstance(s, torch.SymInt) else s for s in tensor.shape]


def _concrete(tensor):
    """Sizes and strides of `tensor`; where they are symbolic, those of the example."""
    sizes, strides = ([s.node.hint if isinstance(s, torch.SymInt) else s for s in extents] for extents in (tensor.shape, tensor.stride()))
    with unset_fake_temporarily():
        return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device="meta")


def _small(tensor):
    """A real tensor of at most two elements per dimension, dimensions in the order of `tensor`'s and
    expanded where it is."""
    tensor = _concrete(tensor)
    order = sorted(range(tensor.dim()), key=lambda d: -tensor.stride(d))
    sizes = [min(size, 2) for size in tensor.shape]
    with unset_fake_temporarily():
        dense = torch.ones([sizes[d] if tensor.stride(d) else 1 for d in order], dtype=tensor.dtype)
    return dense.permute([order.index(d) for d in range(tensor.dim())]).expand(sizes)
