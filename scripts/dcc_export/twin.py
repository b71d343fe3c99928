"""A twin: a small model of a config, to check what is too large to run or needs a GPU.

The twin keeps the flags of the architecture, and whether attention windows are shorter than the
sequence; it has fewer layers, heads and experts, and smaller widths.
"""

import dataclasses

from .errors import ExportError
from .shrink import RECIPES, shrink
from .shrink_kinds import kind_of

SEQUENCE = 32


def twin_options(values, options):
    """`options` for the twin: weights, CPU, a short sequence."""
    seq = None if options.seq is None else min(options.seq, SEQUENCE)
    return dataclasses.replace(options, seq=seq, attention="cpu", headless=False)


def twins(values, options, seq):
    """Returns a function(attention) that builds the twin's Workload with the first recipe that
    works. values: the config dict. options: the twin's. seq: of the model itself."""
    from . import hf
    from .training_step import to_dtype

    whole = {**hf.make_config(values).to_dict(), "model_type": values["model_type"]}
    masked = seq is not None and any(w < seq for w in _windows(whole))
    shown = {}

    def build(attention):
        for recipe in RECIPES:
            if not masked and seq is not None:
                recipe = dataclasses.replace(recipe, window=options.seq)
            try:
                small = shrink(whole, recipe)
                return to_dtype(hf.build(small, options, attention), options)
            except Exception as error:  # a recipe may break any rule of the config or the model
                shown.setdefault("first", error)
        raise ExportError(f"cannot be shrunk: {' '.join(str(shown['first']).split())[:200]}; give --no-check to export without a check")

    return build


def _windows(values):
    """The attention windows of a config and its parts."""
    found = []
    for key, value in values.items():
        if isinstance(value, dict):
            found += _windows(value)
        elif isinstance(value, int) and value > 0 and kind_of(str(key)) == "window":
            found.append(value)
    return found
