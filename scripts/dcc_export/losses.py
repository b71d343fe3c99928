"""Wrappers that turn a model into a module returning only its loss.

The wrapped model is always the child `model`; its names are the user's names.
"""

import contextlib

import torch

from .attention import CudaFlash, traceable
from .errors import ExportError
from .expert_loops import static_loops
from .randomness import LayerDraws
from .static_shapes import StaticShapes, frequencies_kept

ROOT = "model"


class TransformersLoss(torch.nn.Module):
    """What the losses of transformers models share: one traceable call."""

    def __init__(self, model, cuda_flash=False):
        super().__init__()
        self.model = model
        self.cuda_flash = cuda_flash

    def loss(self, **inputs):
        flash = CudaFlash() if self.cuda_flash else contextlib.nullcontext()
        with traceable(), LayerDraws(), StaticShapes(), static_loops(self.model), frequencies_kept(self.model), flash:
            loss = self.model(**inputs).loss
        if self.cuda_flash and flash.calls == 0:
            raise ExportError("--attention cuda-flash has nothing to do: this model computes attention by its own code; use --attention cpu")
        return loss


class CausalLmLoss(TransformersLoss):
    """Next-token loss. Labels are the same window as the tokens; the model shifts them."""

    def forward(self, input_ids, labels):
        return self.loss(input_ids=input_ids, labels=labels, use_cache=False)


class MaskedLmLoss(TransformersLoss):
    """Masked-token loss with a padding mask [B, S]: nonzero marks real tokens."""

    def forward(self, input_ids, mask, labels):
        return self.loss(input_ids=input_ids, attention_mask=mask, labels=labels)


class Seq2SeqLoss(TransformersLoss):
    """Encoder-decoder loss; the model shifts the labels right to make decoder inputs."""

    def forward(self, input_ids, labels):
        return self.loss(input_ids=input_ids, labels=labels, use_cache=False)


class ImageClassificationLoss(TransformersLoss):
    """Cross-entropy over classes from pixels."""

    def forward(self, pixel_values, labels):
        return self.loss(pixel_values=pixel_values, labels=labels)


class ClassifierLoss(torch.nn.Module):
    """Cross-entropy on top of a module that returns class scores."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, labels):
        return torch.nn.functional.cross_entropy(self.model(x), labels)
