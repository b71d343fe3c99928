"""Tensors of a module that lie in the same memory without being one tensor.

In PyTorch each of them follows the updates of the others; in an exported step every parameter and buffer has its own memory.
"""

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from .errors import ExportError


def require_own_memory(tensors):
    """Raises ExportError if a trained parameter shares elements with another of `tensors` {name: tensor}."""
    spans = sorted(((*_span(t), n) for n, t in tensors.items() if t.device.type != "meta" and t.numel() > 0), key=lambda span: span[:2])
    order = {name: (not _trained(tensor), place) for place, (name, tensor) in enumerate(tensors.items())}
    open_spans = []
    for begin, end, name in spans:
        open_spans = [span for span in open_spans if span[1] > begin]
        for _, _, other in open_spans:
            pair = sorted((other, name), key=order.get)
            if _trained(tensors[pair[0]]) and _overlap(*(tensors[n] for n in pair)):
                raise ExportError(_sentence(tensors, *pair))
        open_spans.append((begin, end, name))


def with_values(tensors):
    """{where a storage begins: [(name, tensor)]} of `tensors` {name: tensor}, without those that have no values. They stay where they are though .data is set."""
    found = {}
    for name, tensor in tensors.items():
        if tensor.device.type != "meta" and not isinstance(tensor, FakeTensor) and tensor.numel() > 0:
            found.setdefault(tensor.untyped_storage().data_ptr(), []).append((name, tensor.detach()))
    return found


def names_of(tensor, found):
    """The names in `found` (`with_values`) of the tensors that share elements with `tensor`."""
    return [name for name, other in found.get(tensor.untyped_storage().data_ptr(), ()) if _overlap(tensor, other)]


def share_elements(a, b):
    """Whether two tensors of one storage, which may be traced, share elements."""
    with _disable_current_modes():
        return _overlap(a, b, lambda tensor: tensor.storage_offset() * tensor.element_size())


def _trained(tensor):
    return isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad


def _span(tensor, begin=torch.Tensor.data_ptr):
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return begin(tensor), begin(tensor) + (reach + 1) * tensor.element_size()


def _overlap(a, b, begin=torch.Tensor.data_ptr):
    """Whether an element of one is an element of the other. `begin`: where a tensor's first element lies, in bytes."""
    (first, end), (other_first, other_end) = _span(a, begin), _span(b, begin)
    if end <= other_first or other_end <= first:
        return False
    if a.element_size() != b.element_size() or all(_is_dense(t, begin) for t in (a, b)):
        return True
    return bool(torch.isin(_addresses(a, begin), _addresses(b, begin)).any())


def _is_dense(tensor, begin):
    first, end = _span(tensor, begin)
    return end - first == tensor.numel() * tensor.element_size()


def _addresses(tensor, begin):
    at = torch.tensor(begin(tensor))
    for size, stride in zip(tensor.shape, tensor.stride()):
        at = at[..., None] + torch.arange(size) * (stride * tensor.element_size())
    return at.flatten()


def _sentence(tensors, parameter, other):
    if _trained(tensors[other]):
        cure = f"make them one parameter, as in module.{other} = module.{parameter}, or give each its own values with .clone()"
        return f"parameters {parameter} and {other} lie in the same memory but are two tensors, so that an optimizer would update it twice; {cure}"
    what = "parameter" if isinstance(tensors[other], torch.nn.Parameter) else "buffer"
    return (
        f"{what} {other} lies in the memory of parameter {parameter}, whose updates it would follow; read the parameter itself in forward, "
        f"or give {other} its own values with .clone()"
    )
