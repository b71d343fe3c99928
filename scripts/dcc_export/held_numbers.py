"""The numbers that Python holds for modules: in their attributes and classes, in plain objects, containers and closures, and in generators of their own.

The walk goes where that of `guard.py` goes.
"""

import collections
import contextlib
import functools
import numbers
import random
import types

import numpy as np
import torch

from .guard import is_foreign


def find(modules):
    """{path: value} of all numbers, NumPy arrays and states of generators. modules: [(path, module)]; what they hold has the path of its place."""
    found, seen = {}, {}
    queue = collections.deque(modules)
    kinds = {kind: None for _, module in modules for kind in type(module).__mro__ if not is_foreign(kind)}
    queue.extend((f"{kind.__name__}.{key}", value) for kind in kinds for key, value in vars(kind).items() if _is_kept(key, value))
    while queue:
        path, held = queue.popleft()
        value = _value(held)
        if value is not None:
            found.setdefault(path, value)
        elif not isinstance(held, numbers.Number) and id(held) not in seen:
            seen[id(held)] = held  # alive, so that its id is not used again
            queue.extend(_parts(path, held))
    return found


def _is_kept(key, value):
    return not key.startswith("__") and isinstance(value, (numbers.Number, dict, list))


def _value(held):
    """Something that changes when a number, an array or a generator does; None of anything else, and of what equals nothing."""
    if isinstance(held, numbers.Number):
        return held if held == held else None
    if isinstance(held, np.ndarray):
        return held.tobytes()
    if isinstance(held, random.Random):
        return held.getstate()
    return str(held.bit_generator.state) if isinstance(held, np.random.Generator) else None


def _parts(path, held):
    """[(path, object)] of what an object holds."""
    if isinstance(held, torch.nn.Module):
        return _attributes(path, vars(held))
    if isinstance(held, dict):
        return [(f"{path}[{key!r}]", value) for key, value in held.items() if isinstance(key, (str, int))]
    if isinstance(held, (list, tuple, collections.deque)):
        return [(f"{path}[{index}]", value) for index, value in enumerate(held)]
    if isinstance(held, types.FunctionType):
        return [*_attributes(path, vars(held)), *_cells(path, held)]
    if isinstance(held, types.MethodType):
        return [(path, held.__self__), (path, held.__func__)]
    if isinstance(held, functools.partial):
        return [(path, held.func), (path, held.args), (path, held.keywords)]
    if is_foreign(type(held)):
        return []
    slots = [name for kind in type(held).__mro__ for name in getattr(kind, "__slots__", ()) if isinstance(name, str) and hasattr(held, name)]
    return [*_attributes(path, getattr(held, "__dict__", {})), *((f"{path}.{name}", getattr(held, name)) for name in slots)]


def _attributes(path, attributes):
    return [(f"{path}.{key}" if path else str(key), value) for key, value in attributes.items()]


def _cells(path, function):
    found = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # an empty cell
            found.append((f"{path}.{name}", cell.cell_contents))
    return found
