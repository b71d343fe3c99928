"""Functions whose result has a shape that depends on values, where models need only a fixed one."""

import torch
from torch.overrides import TorchFunctionMode


class StaticShapes(TorchFunctionMode):
    """Inside, torch.bincount(values, minlength=n) counts the values below n, and has n elements."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (torch.bincount, torch.Tensor.bincount):
            if len(args) == 1 and list(kwargs) == ["minlength"]:
                return _counts(args[0], kwargs["minlength"])
        return func(*args, **kwargs)


def _counts(values, bins):
    numbers = torch.arange(bins, device=values.device)
    return (values[:, None] == numbers).sum(dim=0)
