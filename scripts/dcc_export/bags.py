"""torch.nn.EmbeddingBag as an embedding and a reduction, while a module is traced.

The fused operator returns workspace whose content is undefined.
"""

import contextlib
import math

import torch
from torch.nn import functional as F

from .errors import ExportError


@contextlib.contextmanager
def by_rows():
    """While open, torch.nn.functional.embedding_bag gathers rows and reduces them."""
    before = F.embedding_bag
    F.embedding_bag = _embedding_bag
    try:
        yield
    finally:
        F.embedding_bag = before


def _embedding_bag(
    input,
    weight,
    offsets=None,
    max_norm=None,
    norm_type=2.0,
    scale_grad_by_freq=False,
    mode="mean",
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=None,
):
    """As torch.nn.functional.embedding_bag, for bags of one length: input [bags, length]."""
    if input.dim() != 2 or offsets is not None:
        raise ExportError("an EmbeddingBag with offsets has bags whose lengths depend on data; give it a padded input [bags, length] and a padding_idx")
    if scale_grad_by_freq:
        raise ExportError("an EmbeddingBag with scale_grad_by_freq cannot be exported; use an Embedding with it, and sum or average its rows")
    rows = F.embedding(input, weight, None, max_norm, norm_type, False, sparse)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[..., None]
    if padding_idx is None:
        return {"sum": torch.sum, "mean": torch.mean, "max": _largest}[mode](rows, 1)
    kept = (input != padding_idx % weight.shape[0])[..., None]
    count = kept.sum(1)
    if mode == "max":
        largest = _largest(rows.masked_fill(~kept, -math.inf), 1)
        return largest.masked_fill(count == 0, 0.0)
    total = rows.masked_fill(~kept, 0.0).sum(1)
    return total if mode == "sum" else total / count.clamp(min=1)


def _largest(rows, dim):
    """Of equal elements the first one gets the gradient; amax would share it out."""
    return rows.max(dim).values
