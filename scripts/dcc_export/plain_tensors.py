"""Tensors that are numbers in memory and nothing else. What operators mean for others, a trace would drop."""

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .errors import ExportError

_OVERRIDES = ("__torch_function__", "__torch_dispatch__")


def require_plain_tensor(what, tensor):
    """Raises ExportError for sparse, nested and quantized tensors and for classes with operators of their own. `what`: the tensor, for people."""
    if tensor.layout is not torch.strided:
        raise ExportError(f"{what} is {tensor.layout}; dcc needs dense tensors: use .to_dense()")
    if tensor.is_nested:
        raise ExportError(f"{what} is a nested tensor; give a padded one, as torch.nested.to_padded_tensor makes it, and a mask")
    if tensor.is_quantized:
        raise ExportError(f"{what} is quantized; use .dequantize()")
    if not _is_plain(type(tensor)) and not isinstance(tensor, FakeTensor):
        raise ExportError(
            f"{what} is a {type(tensor).__name__}, a subclass that overrides PyTorch's operators; give a plain tensor (of data: .as_subclass(torch.Tensor))"
        )


def _is_plain(kind):
    """Subclasses that override nothing are."""
    return all(_function(kind, name) in (_function(torch.Tensor, name), _function(torch.nn.Parameter, name)) for name in _OVERRIDES)


def _function(kind, name):
    found = getattr(kind, name)
    return getattr(found, "__func__", found)
