"""Wrappers that turn a transformers model into a module returning only its loss.

The wrapped model is always the child `model`; its names are the user's names.
"""

import torch

ROOT = "model"


class CausalLmLoss(torch.nn.Module):
    """Next-token loss. Labels are the same window as the tokens; the model shifts them."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, labels):
        return self.model(input_ids=input_ids, labels=labels, use_cache=False).loss


class MaskedLmLoss(torch.nn.Module):
    """Masked-token loss with a padding mask [B, S]: nonzero marks real tokens.

    The mask becomes a ready 4-D boolean mask here, because transformers would otherwise look at
    its values while tracing.
    """

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, mask, labels):
        batch, length = input_ids.shape
        allowed = (mask != 0)[:, None, None, :].expand(batch, 1, length, length)
        return self.model(input_ids=input_ids, attention_mask=allowed, labels=labels).loss


class Seq2SeqLoss(torch.nn.Module):
    """Encoder-decoder loss; the model shifts the labels right to make decoder inputs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, labels):
        return self.model(input_ids=input_ids, labels=labels, use_cache=False).loss


class ImageClassificationLoss(torch.nn.Module):
    """Cross-entropy over classes from pixels."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pixel_values, labels):
        return self.model(pixel_values=pixel_values, labels=labels).loss


class ClassifierLoss(torch.nn.Module):
    """Cross-entropy on top of a module that returns class scores."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, labels):
        return torch.nn.functional.cross_entropy(self.model(x), labels)


class MaskedCausalLmLoss(torch.nn.Module):
    """Next-token loss for models whose attention only adds a mask: hands them a causal one."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, labels):
        length, dtype = input_ids.shape[1], self.model.dtype
        lowest = torch.finfo(dtype).min
        future = torch.ones(length, length, dtype=torch.bool, device=input_ids.device).triu(1)
        mask = torch.zeros(length, length, dtype=dtype, device=input_ids.device)
        mask = mask.masked_fill(future, lowest)[None, None]
        return self.model(
            input_ids=input_ids, attention_mask=mask, labels=labels, use_cache=False
        ).loss
