"""Mixture-of-experts layer with a fixed capacity per expert.

transformers' own expert loops have data-dependent shapes. Here every expert gets a table of a
fixed number of slots, so all shapes are static and the expert index is a batch dimension.
"""

import contextlib
import math

import torch

from . import separate_experts

NAME = "dcc_static_capacity"
# Config attribute: slots = ceil(factor * tokens * k / experts). Absent: room for every token.
CAPACITY = "dcc_capacity_factor"


def register():
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    ALL_EXPERTS_FUNCTIONS.register(NAME, static_capacity_experts)


def static_capacity_experts(self, hidden, top_k_index, top_k_weights):
    """hidden [T, H], top_k_index and top_k_weights [T, k] -> [T, H].

    `self` holds its experts in one of transformers' layouts: `up_proj` [E, I, H], or with a gate
    `gate_up_proj` [E, 2I, H], and `down_proj` [E, H, I]; transposed if `is_transposed`; each with
    a bias [E, ...] if `has_bias`. Or they are separate (separate_experts.py).
    """
    tokens, width = hidden.shape
    experts, chosen = self.num_experts, top_k_index.shape[-1]
    capacity = _capacity(self, tokens, chosen, experts)
    slot, table = _assign(top_k_index, tokens, experts, capacity)

    nothing = hidden.new_zeros(1, width)  # read by empty slots and by dropped tokens
    rows = torch.cat([hidden, nothing])[table].view(experts, capacity, width)
    results = separate_experts.run(self, rows) if hasattr(self, "experts") else _run_stacked(self, rows).reshape(-1, width)
    picked = torch.cat([results, nothing.to(results.dtype)])[slot]
    weighted = picked * top_k_weights.reshape(-1, 1)
    return weighted.view(tokens, chosen, width).sum(dim=1).to(hidden.dtype)


def _run_stacked(module, rows):
    if module.has_gate:
        inner = module._apply_gate(_linear(module, rows, "gate_up_proj"))
    else:
        inner = module.act_fn(_linear(module, rows, "up_proj"))
    return _linear(module, inner, "down_proj")


def _linear(module, rows, name):
    """rows [E, C, in] -> [E, C, out], each expert with its own weights."""
    weight = getattr(module, name)
    result = torch.bmm(rows, weight if module.is_transposed else weight.transpose(1, 2))
    if not module.has_bias:
        return result
    return result + getattr(module, name + "_bias")[:, None, :]


def _assign(top_k_index, tokens, experts, capacity):
    """slot [T*k]: where each choice goes; table [E*C]: which token each slot holds.

    With room for every token a token's slot has its number: a token that chooses an expert twice,
    as routers that look experts up in a table may, has one row there and reads it twice.
    """
    chosen = top_k_index.shape[-1]
    flat = top_k_index.reshape(-1)
    device = flat.device
    token = torch.arange(tokens * chosen, device=device) // chosen
    if capacity == tokens:
        slot = flat * capacity + token
    else:
        hits = (flat[:, None] == torch.arange(experts, device=device)).to(torch.int64)
        rank = ((hits.cumsum(0) - 1) * hits).sum(-1)
        slot = torch.where(rank < capacity, flat * capacity + rank, experts * capacity)
    empty = torch.full((experts * capacity + 1,), tokens, device=device, dtype=torch.int64)
    return slot, empty.scatter(0, slot, token)[:-1]


_limited = True


@contextlib.contextmanager
def full_capacity():
    """Inside, every expert has room for every token."""
    global _limited
    before, _limited = _limited, False
    try:
        yield
    finally:
        _limited = before


def notes(config, tokens):
    """What a person must know of the capacity of a config's experts: a list of sentences."""
    factor = getattr(config.get_text_config(), CAPACITY, None)
    if factor is None:
        return []
    return [
        f"capacity: experts have room for {factor:g} times an even share of the {tokens} tokens of a micro-batch "
        f"({CAPACITY}); tokens beyond it are dropped, which the stock model does not do"
    ]


def _capacity(module, tokens, chosen, experts):
    factor = getattr(module.config, CAPACITY, None)
    if factor is None or not _limited:
        return tokens
    return min(tokens, math.ceil(factor * tokens * chosen / experts))
