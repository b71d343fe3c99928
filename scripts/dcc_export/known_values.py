"""Functions of torch whose kernels look at values that are known before: quantiles, covariances, combinations and logarithmic ranges.

PyTorch's own code computes the first two; a trace only lacks the answer to one question. Combinations are taken by number, ranges are constants.
"""

import contextlib
import functools
import itertools

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes


@contextlib.contextmanager
def known_values():
    """While open, these functions can be traced."""
    before = {name: getattr(torch, name) for name in ("quantile", "nanquantile", "cov", "corrcoef", "combinations", "logspace")}
    functions = {name: functools.partial(_quantile, before[name]) for name in ("quantile", "nanquantile")}
    functions |= {name: functools.partial(_covariance, before[name]) for name in ("cov", "corrcoef")}
    methods = {name: functools.partialmethod(function) for name, function in functions.items()}
    try:
        vars(torch).update(functions, combinations=_combinations, logspace=functools.partial(_logspace, before["logspace"]))
        for name, method in methods.items():
            setattr(torch.Tensor, name, method)
        yield
    finally:
        vars(torch).update(before)
        for name in methods:
            delattr(torch.Tensor, name)


class _Equal(TorchDispatchMode):
    """Inside, torch.equal gives `answer`."""

    def __init__(self, answer):
        super().__init__()
        self._answer = answer

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self._answer if func is torch.ops.aten.equal.default else func(*args, **(kwargs or {}))


def _quantile(function, *args, **kwargs):
    """Asks whether all shares are in [0, 1]. Of one that is not, the rank is no element's."""
    with _Equal(True):
        return function(*args, **kwargs)


def _covariance(function, input, *, correction=1, fweights=None, aweights=None):
    """Asks whether there are no more observations than `correction`. Of weighted ones it is not known."""
    rows = input.shape[-1] if input.dim() > 0 else 1
    options = {"correction": correction, "fweights": fweights, "aweights": aweights} if function.__name__ == "cov" else {}
    with _Equal(rows <= correction) if fweights is None and aweights is None else contextlib.nullcontext():
        return function(input, **options)


def _combinations(input, r=2, with_replacement=False):
    """As torch.combinations, which takes those elements of r grids that a mask chooses."""
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    size = len(input)
    places = torch.tensor([functools.reduce(lambda place, i: place * size + i, chosen, 0) for chosen in choose(range(size), r)], dtype=torch.long)
    return torch.stack([grid.flatten()[places] for grid in torch.meshgrid([input] * r, indexing="ij")], 1)


def _logspace(function, *args, **kwargs):
    """Of tensors it is no constant."""
    if any(isinstance(value, torch.Tensor) for value in (*args, *kwargs.values())):
        return function(*args, **kwargs)
    with _disable_current_modes():
        values = function(*args, **kwargs)
    return torch.tensor(values.tolist(), dtype=values.dtype)
