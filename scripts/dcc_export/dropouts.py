"""Dropout of whole channels, of self-normalizing networks, and in place, while a module is traced.

torch draws the masks of these by an operator that plans cannot replay. Dropout in place is written as plain dropout and a copy. The others are dropout
of ones: one for each channel, or for each element. The formulas are those of torch.nn.Dropout2d and torch.nn.AlphaDropout, roundings included.
"""

import contextlib
import math

import torch

_ALPHA = 1.7580993408473766  # -SELU(-infinity): what alpha dropout puts in place of what it drops, before it scales and shifts
_NAMES = ("feature_dropout", "alpha_dropout", "feature_alpha_dropout")


@contextlib.contextmanager
def by_elements():
    """While open, these dropouts draw one number for each channel or element."""
    tables = vars(torch._VF), vars(torch)
    before = [{name: table[name] for name in _functions() if name in table} for table in tables]
    for table in tables:
        table.update(_functions())
    try:
        yield
    finally:
        for table, old in zip(tables, before):
            for name in _functions():
                del table[name]
            table.update(old)


def _functions():
    made = {name: _dropout("feature" in name, "alpha" in name) for name in _NAMES}
    return {**made, **{name + "_": _in_place(function) for name, function in {**made, "dropout": torch.dropout}.items()}}


def _dropout(by_channel, is_alpha):
    def dropout(input, p, train):
        if p == 0 or not train or input.numel() == 0:
            return input
        if p == 1:
            return input * 0
        shape = (*input.shape[:2], *(1 for _ in input.shape[2:])) if by_channel else input.shape
        noise = torch.native_dropout(torch.ones(shape, dtype=input.dtype, device=input.device), p, True)[1].to(input.dtype)
        if not is_alpha:
            return input * (noise / (1 - p))
        scale = 1 / math.sqrt((_ALPHA * _ALPHA * p + 1) * (1 - p))
        return input * (noise * scale) + ((noise - 1) * (_ALPHA * scale) + _ALPHA * scale * p)

    return dropout


def _in_place(dropout):
    def in_place(input, p, train):
        return input.copy_(dropout(input, p, train)) if p > 0 and train and input.numel() > 0 else input

    return in_place
