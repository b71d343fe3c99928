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
    rows = F.embedding(input, weight, None, max_norm, norm_type, scale_grad_by_freq, sparse)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[..., None]
    if padding_idx is None:
        return {"sum": torch.sum, "mean": torch.mean, "max": torch.amax}[mode](rows, 1)
    kept = (input != padding_idx % weight.shape[0])[..., None]
    count = kept.sum(1)
    if mode == "max":
        largest = rows.masked_fill(~kept, -math.inf).amax(1)
        return largest.masked_fill(count == 0, 0.0)
    total = rows.masked_fill(~kept, 0.0).sum(1)
    return total if mode == "sum" else total / count.clamp(min=1)
