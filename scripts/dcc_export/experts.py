"""Mixture-of-experts layer with a fixed capacity per expert.

transformers' own expert loops have data-dependent shapes. Here every expert gets a table of a
fixed number of slots, so all shapes are static and the expert index is a batch dimension.
"""

import math

import torch

from .errors import ExportError

NAME = "dcc_static_capacity"
# Config attribute: slots = ceil(factor * tokens * k / experts). Absent: room for every token.
CAPACITY = "dcc_capacity_factor"


def register():
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    ALL_EXPERTS_FUNCTIONS.register(NAME, static_capacity_experts)


def static_capacity_experts(self, hidden, top_k_index, top_k_weights):
    """hidden [T, H], top_k_index and top_k_weights [T, k] -> [T, H]."""
    _refuse_layouts(self)
    tokens, width = hidden.shape
    experts, chosen = self.num_experts, top_k_index.shape[-1]
    capacity = _capacity(self, tokens, chosen, experts)
    slot, table = _assign(top_k_index, tokens, experts, chosen, capacity)

    nothing = hidden.new_zeros(1, width)  # read by empty slots and by dropped tokens
    rows = torch.cat([hidden, nothing])[table].view(experts, capacity, width)
    inner = self._apply_gate(torch.bmm(rows, self.gate_up_proj.transpose(1, 2)))
    results = torch.bmm(inner, self.down_proj.transpose(1, 2)).reshape(-1, width)
    picked = torch.cat([results, nothing])[slot]
    weighted = picked * top_k_weights.reshape(-1, 1)
    return weighted.view(tokens, chosen, width).sum(dim=1).to(hidden.dtype)


def _assign(top_k_index, tokens, experts, chosen, capacity):
    """slot [T*k]: where each choice goes; table [E*C]: which token each slot holds."""
    flat = top_k_index.reshape(-1)
    device = flat.device
    hits = (flat[:, None] == torch.arange(experts, device=device)).to(torch.int64)
    rank = ((hits.cumsum(0) - 1) * hits).sum(-1)
    slot = torch.where(rank < capacity, flat * capacity + rank, experts * capacity)
    token = torch.arange(tokens * chosen, device=device) // chosen
    empty = torch.full((experts * capacity + 1,), tokens, device=device, dtype=torch.int64)
    return slot, empty.scatter(0, slot, token)[:-1]


def _capacity(module, tokens, chosen, experts):
    factor = getattr(module.config, CAPACITY, None)
    if factor is None:
        return tokens
    return min(tokens, math.ceil(factor * tokens * chosen / experts))


def _refuse_layouts(module):
    for flag in ("is_transposed", "has_bias"):
        if getattr(module, flag, False):
            raise ExportError(
                f"{type(module).__name__} stores its experts with {flag}; only [E, out, in] "
                "weights without bias are supported (as in Mixtral and Qwen3-MoE)"
            )
