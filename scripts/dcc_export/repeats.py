"""Whether a forward is a function of its inputs, parameters, buffers and PyTorch's random numbers.

A trace holds what a counter in an attribute, or a number drawn by Python or NumPy, happened to be.
"""

import random

import numpy as np
import torch

from .errors import ExportError
from .places import Places, copies

_RUNS = 8  # where Python or NumPy draw numbers: a decision is rarely the same each time
_TOLERANCE = 1e-4  # relative; sums of other orders stay below it


def require_repeatable(step, examples, seed):
    """Raises ExportError if the loss is another one when the module runs again; buffers stay as they are, attributes may not."""
    places, first = Places(step), None
    for run in range(_RUNS):
        before = _draws()
        with torch.enable_grad(), torch.random.fork_rng(devices=[]), places.holding(copies(places.buffers)):
            torch.manual_seed(seed)
            loss = step(*[t.clone() for t in examples]).detach().double()
        first = loss if first is None else first
        draws = _draws() != before
        if not torch.allclose(loss, first, rtol=_TOLERANCE, atol=0.0, equal_nan=True):
            what = "draws numbers with Python's random or NumPy" if draws else "keeps something in Python between calls, as a counter does"
            raise ExportError(
                f"the forward {what}: run again on the same inputs, parameters and buffers its loss is {float(loss):g} instead of {float(first):g}, "
                "and an exported step would hold one of them; draw with torch, and keep what changes in a buffer"
            )
        if run > 0 and not draws:
            return


def _draws():
    """Something that changes when Python or NumPy draw a number."""
    name, keys, position, has_gauss, gauss = np.random.get_state()
    return random.getstate(), (name, keys.tobytes(), position, has_gauss, gauss)
