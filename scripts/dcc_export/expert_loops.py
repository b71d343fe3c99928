"""Experts that a model runs by a loop outside transformers' experts interface (DBRX, LongCat).

Such a loop asks which experts were chosen (nonzero) and which tokens chose one (where): shapes that depend on values. Here the loop is
called once per expert and finds that one chosen by every token, with the share that a token gives it, which is 0 where it did not choose it.
"""

import contextlib
import inspect

import torch
from torch.overrides import TorchFunctionMode

from .forwards import replaced_forwards

_INPUTS = ("hidden_states", "top_k_index", "top_k_weights")


@contextlib.contextmanager
def static_loops(model):
    """Inside, every such module of the model runs each expert on every token."""
    counts = ((module, _count(module)) for module in model.modules())
    with replaced_forwards((module, _on_every_token(module.forward, count)) for module, count in counts if count):
        yield


def _count(module):
    """How many experts a module loops over; None for other modules, and for those of the experts interface (they know `has_gate`)."""
    if hasattr(module, "has_gate") or tuple(inspect.signature(type(module).forward).parameters)[1:] != _INPUTS:
        return None
    return getattr(module, "total_experts", None) or getattr(module, "num_experts", None)


def _on_every_token(own, count):
    """A forward like `own`: top_k_index and top_k_weights [T, k]; the loop gets two choices, of which it finds the first."""

    def forward(hidden_states, top_k_index, top_k_weights):
        total = None
        for expert in range(count):
            share = (top_k_weights * (top_k_index == expert)).sum(-1, keepdim=True).expand(-1, 2)
            with _Chosen(expert, top_k_index):
                result = own(hidden_states, torch.full_like(top_k_index[:, :1], expert).expand(-1, 2), share)
            total = result if total is None else total + result
        return total

    return forward


class _Hit:
    """A row of nonzero's result whose number is known."""

    def __init__(self, expert):
        self.expert = expert

    def __getitem__(self, index):
        return self.expert

    def item(self):
        return self.expert


class _Chosen(TorchFunctionMode):
    """Inside, nonzero finds one expert, and where finds all tokens with their first choice."""

    def __init__(self, expert, top_k_index):
        super().__init__()
        self.expert, self.like = expert, top_k_index

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (torch.Tensor.nonzero, torch.nonzero):
            return [_Hit(self.expert)]
        if func is torch.where and len(args) == 1:
            tokens = torch.arange(self.like.shape[0], device=self.like.device)
            return torch.zeros_like(tokens), tokens
        return func(*args, **(kwargs or {}))
