"""Strides that torch's shape functions get wrong.

Some operators are traced through a decomposition whose operands come in another order than the
kernel's. The kernel's result then has other strides than recorded (softplus_backward), and a
`view` that was legal while tracing fails when the file is run.
"""

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily


def are_misjudged(node):
    """True if a kernel whose operands all have its result's shape orders the result's dimensions
    otherwise than recorded. Tried on the CPU with tensors of two elements per dimension."""
    value = node.meta["val"]
    operands = [n.meta["val"] for n in node.all_input_nodes]
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.is_view:
        return False
    if torch.Tag.nondeterministic_seeded in node.target.tags:
        return False
    if not all(isinstance(t, torch.Tensor) and t.shape == value.shape for t in [value, *operands]):
        return False
    if all(t.is_contiguous() for t in operands):
        return False
    args, kwargs = torch.fx.node.map_arg(
        (node.args, dict(node.kwargs)), lambda n: _small(n.meta["val"])
    )
    try:
        with unset_fake_temporarily():
            return node.target(*args, **kwargs).stride() != _small(value).stride()
    except Exception:  # an argument that fits the real shape only: nothing is known
        return False


def _small(tensor):
    """A real tensor of at most two elements per dimension, dimensions in the order of `tensor`'s."""
    order = sorted(range(tensor.dim()), key=lambda d: -tensor.stride(d))
    with unset_fake_temporarily():
        dense = torch.ones([min(tensor.shape[d], 2) for d in order], dtype=tensor.dtype)
    return dense.permute([order.index(d) for d in range(tensor.dim())])
