"""multi_margin_loss and multilabel_margin_loss of torch.nn as plain operators, while a module is traced.

torch 2.11's own decompositions are not what its kernels compute: that of multilabel_margin_loss counts the classes behind the end of a
list of targets, and both have a gradient where a margin is kept exactly.
"""

import contextlib

import torch
from torch.nn import functional as F


@contextlib.contextmanager
def by_margins():
    """While open, both losses of torch.nn.functional are computed by the formulas of their documentation."""
    before = F.multi_margin_loss, F.multilabel_margin_loss
    F.multi_margin_loss, F.multilabel_margin_loss = _multi_margin_loss, _multilabel_margin_loss
    try:
        yield
    finally:
        F.multi_margin_loss, F.multilabel_margin_loss = before


def _multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    """As torch.nn.functional.multi_margin_loss."""
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    rows, classes = input.reshape(-1, input.shape[-1]), target.reshape(-1, 1)
    short = F.relu(margin - rows.gather(1, classes) + rows)
    short = short if p == 1 else short.square()
    short = short if weight is None else short * weight[classes]
    own = torch.arange(rows.shape[1], device=input.device) == classes
    return _reduced(short.masked_fill(own, 0.0).sum(1), input, (size_average, reduce, reduction))


def _multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """As torch.nn.functional.multilabel_margin_loss: a row's targets are the classes before its first -1."""
    rows, targets = input.reshape(-1, input.shape[-1]), target.reshape(-1, target.shape[-1])
    listed = (targets == -1).cumsum(1) == 0
    classes = targets.masked_fill(~listed, 0)
    of_list = (torch.arange(rows.shape[1], device=input.device) == classes[..., None]) & listed[..., None]
    short = F.relu(1 - rows.gather(1, classes)[..., None] + rows[:, None])  # [row, target, class]
    counts = listed[..., None] & ~of_list.any(1)[:, None]
    return _reduced(short.masked_fill(~counts, 0.0).sum((1, 2)), input, (size_average, reduce, reduction))


def _reduced(sums, input, how):
    """The loss of `sums`, one for each row of `input`."""
    size_average, reduce, reduction = how
    if size_average is not None or reduce is not None:
        reduction = F._Reduction.legacy_get_string(size_average, reduce)
    losses = sums / input.shape[-1]
    if reduction == "none":
        return losses.reshape(input.shape[:-1])
    return losses.mean() if reduction == "mean" else losses.sum()
