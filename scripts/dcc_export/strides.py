"""Strides that torch's shape functions get wrong.

Some operators are traced through a decomposition whose operands come in another order than the
kernel's, or whose result lies as its operand does where the kernel's is contiguous. The result then
has other strides than recorded (softplus_backward, norms of transposed tensors), and a `view` that
was legal while tracing fails when the file is run.
"""

import operator

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily


def are_misjudged(node):
    """True if a kernel orders the dimensions of its result, or of this one of its results, otherwise than recorded.

    Asked of kernels whose operands have the result's shape; of those with several results (norms) also where weights and statistics have others: of
    fewer dimensions, or of size 1 in some. Tried on the CPU with tensors of two elements per dimension. Asks nothing of symbolic sizes, so that none of
    them is bound by a condition."""
    value, place = node.meta["val"], None
    if node.target is operator.getitem:
        node, place = node.args
    operands = [n.meta["val"] for n in node.all_input_nodes]
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.is_view:
        return False
    if torch.Tag.nondeterministic_seeded in node.target.tags:
        return False
    if not all(isinstance(t, torch.Tensor) for t in [value, *operands]):
        return False
    if not all(_goes_with(t, value, place is not None) for t in operands):
        return False
    if all(_concrete(t).is_contiguous() for t in operands):
        return False
    args, kwargs = torch.fx.node.map_arg((_small_sizes(node), dict(node.kwargs)), lambda n: _small(n.meta["val"]))
    try:
        with unset_fake_temporarily():
            result = node.target(*args, **kwargs)
        return (result if place is None else result[place]).stride() != _small(value).stride()
    except Exception:  # an argument that fits the real shape only: nothing is known
        return False


def _small_sizes(node):
    """The arguments of a node with the sizes in them as `_small` makes tensors (the shape that a layer norm is of)."""
    names = [argument.name for argument in node.target._schema.arguments]
    return tuple([1 if size == 1 else 2 for size in value] if name == "normalized_shape" else value for name, value in zip(names, node.args))


def _goes_with(operand, result, is_one_of_several):
    sizes, of_result = _expressions(operand), _expressions(result)
    if not is_one_of_several:
        return sizes == of_result
    return len(sizes) < len(of_result) or (len(sizes) == len(of_result) and all(a in (b, 1) for a, b in zip(sizes, of_result)))


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
