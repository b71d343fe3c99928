"""`tensor.data = other` while a module is traced: torch 2.11 would leave it out. In PyTorch the tensor then has the memory of `other`, and what was
saved of it for the backward stays as it was.
"""

import contextlib

import torch
from torch._subclasses.functional_tensor import FunctionalTensor

from .errors import ExportError


@contextlib.contextmanager
def assignable_data():
    """While open, traced tensors whose .data is set have the values of the other one. Yields {id: (tensor, the traced value that it had before)}."""
    own, before = torch._C.TensorBase.data, {}

    def assign(tensor, other):
        if not isinstance(tensor, FunctionalTensor):
            own.__set__(tensor, other)
            return
        if not isinstance(other, FunctionalTensor) or other.shape != tensor.shape or other.dtype != tensor.dtype:
            raise ExportError(
                "the forward sets .data of a tensor to one of another shape or type, or to one that it does not compute; write its values with copy_()"
            )
        before.setdefault(id(tensor), (tensor, tensor.elem))
        tensor.elem = other.detach().elem

    torch.Tensor.data = property(own.__get__, assign)
    try:
        yield before
    finally:
        del torch.Tensor.data


def take_back(tensor, before):
    """The values that `tensor` was given, as another tensor; `tensor` has its former ones again. None if it was given none."""
    if id(tensor) not in before:
        return None
    now = tensor.detach()
    _, tensor.elem = before.pop(id(tensor))
    return now
