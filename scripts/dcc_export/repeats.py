"""Whether a forward is a function of its inputs, parameters, buffers and PyTorch's random numbers.

A trace holds what a counter in an attribute, or a number drawn by Python or NumPy, happened to be.
"""

import random

import numpy as np
import torch

from . import held_numbers
from .capture import strip
from .eager import run_by_pytorch
from .errors import ExportError
from .places import Places, copies

_RUNS = 8  # where Python or NumPy draw numbers: a decision is rarely the same each time
_TOLERANCE = 1e-4  # relative; sums of other orders stay below it


def require_repeatable(step, examples, root, seed):
    """Raises ExportError if the loss is another one when the module runs again; buffers stay as they are, attributes may not.

    Returns sentences about numbers in Python that each run changes: the loss may depend on them later.
    """
    places, first, counted = Places(step), None, {}
    for run in range(_RUNS):
        drawn = _draws()
        with run_by_pytorch(), torch.enable_grad(), torch.random.fork_rng(devices=[]), places.holding(copies(places.buffers)):
            torch.manual_seed(seed)
            loss = step(*[t.clone() for t in examples]).detach().double()
        first = loss if first is None else first
        draws = _draws() != drawn
        if not torch.allclose(loss, first, rtol=_TOLERANCE, atol=0.0, equal_nan=True):
            what = "draws numbers with Python's random or NumPy" if draws else "keeps something in Python between calls, as a counter does"
            raise ExportError(
                f"the forward {what}: run again on the same inputs, parameters and buffers its loss is {float(loss):g} instead of {float(first):g}, "
                "and an exported step would hold one of them; draw with torch, and keep what changes in a buffer"
            )
        before, counted = counted, _numbers(step, root)
        if run > 0 and not draws:
            break
    return _notes(name for name, number in counted.items() if before.get(name, number) != number)


class HeldByPython:
    """What Python holds before a trace: numbers of the modules, and the states of its random numbers and NumPy's."""

    def __init__(self, step, root):
        self._step, self._root = step, root
        self._numbers, self._draws = _numbers(step, root), _draws()

    def notes(self):
        """Sentences about what the trace has changed: the archive holds what it was."""
        now = _numbers(self._step, self._root)
        notes = _notes(name for name, number in now.items() if self._numbers.get(name, number) != number)
        if _draws() != self._draws:
            notes.append("the forward draws numbers with Python's random or NumPy, and the exported step holds those that were drawn: draw with torch")
        return notes


def _notes(names):
    return [
        f"each forward changes the number {name} in Python, and an exported step holds what it is now: keep it in a buffer if the loss depends on it"
        for name in sorted(names)
    ]


def _numbers(step, root):
    """{name: number} of all that Python holds for the user's module."""
    return held_numbers.find([(strip(fqn, root), module) for fqn, module in step.named_modules() if module is not step])


def _draws():
    """Something that changes when Python or NumPy draw a number."""
    name, keys, position, has_gauss, gauss = np.random.get_state()
    return random.getstate(), (name, keys.tobytes(), position, has_gauss, gauss)
