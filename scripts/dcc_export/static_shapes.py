"""Functions whose result, or whose shape, depends on values, where models need only a fixed one."""

import contextlib
import sys

import torch
from torch.overrides import TorchFunctionMode


class StaticShapes(TorchFunctionMode):
    """Inside, torch.bincount(values, minlength=n) counts the values below n, and has n elements.

    counted: the positions are those that transformers counts, 0, 1, ... along the last dim, since none are given. The largest of them,
    by which rotary embeddings choose frequencies (dynamic, longrope), then is known.
    """

    def __init__(self, counted=True):
        super().__init__()
        self._counted = counted

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (torch.bincount, torch.Tensor.bincount):
            if len(args) == 1 and list(kwargs) == ["minlength"]:
                return _counts(args[0], kwargs["minlength"])
        if func is torch.max and len(args) == 1 and not kwargs and self._counted and sys._getframe(1).f_locals.get("position_ids") is args[0]:
            return args[0].shape[-1] - 1
        return func(*args, **kwargs)


@contextlib.contextmanager
def frequencies_kept(model):
    """Afterwards the rotary embeddings of `model` are as before: those that choose frequencies by the length of a row keep the last ones in a buffer."""
    found = [(module, dict(vars(module)), dict(module._buffers)) for module in model.modules() if hasattr(module, "original_inv_freq")]
    try:
        yield
    finally:
        for module, attributes, buffers in found:
            for there, before in ((vars(module), attributes), (module._buffers, buffers)):
                there.clear()
                there.update(before)


def _counts(values, bins):
    numbers = torch.arange(bins, device=values.device)
    return (values[:, None] == numbers).sum(dim=0)
