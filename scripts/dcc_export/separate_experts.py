"""Experts with separate tensors, as transformers had them before it stacked them: w1, w2 and w3 of each, 24 a layer for Mixtral.

A tensor is then gathered, kept and reduced expert by expert. Only for graphs without weights: no checkpoint of today has these names.
"""

import torch

from .errors import USAGE, ExportError

# Config attribute: true for separate tensors.
SEPARATE = "dcc_separate_experts"


def separate(model, headless):
    """Replaces the stacked weights of every experts module of `model` where its config asks for it."""
    if not getattr(model.config.get_text_config(), SEPARATE, False):
        return
    if not headless:
        raise ExportError(f"{SEPARATE} needs --headless: transformers' own model stacks its experts, so there is nothing to compare with", USAGE)
    modules = [module for module in model.modules() if "gate_up_proj" in module._parameters and "down_proj" in module._parameters]
    if not modules or any(module.is_transposed or module.has_bias for module in modules):
        raise ExportError(f"{SEPARATE}: {model.config.model_type!r} has no experts with gate_up_proj and down_proj, plain and without bias", USAGE)
    for module in modules:
        module.experts = torch.nn.ModuleList(_expert(module, number) for number in range(module.num_experts))
        del module.gate_up_proj, module.down_proj


def _expert(module, number):
    inner = module.gate_up_proj.shape[1] // 2
    expert = torch.nn.Module()
    expert.w1 = torch.nn.Parameter(module.gate_up_proj.detach()[number, :inner].clone())
    expert.w3 = torch.nn.Parameter(module.gate_up_proj.detach()[number, inner:].clone())
    expert.w2 = torch.nn.Parameter(module.down_proj.detach()[number].clone())
    return expert


def run(module, rows):
    """rows [E, C, H] -> [E * C, H]: each expert on its own rows."""
    linear = torch.nn.functional.linear
    results = []
    for expert, own in zip(module.experts, rows.unbind(0), strict=True):
        inner = module.act_fn(linear(own, expert.w1)) * linear(own, expert.w3)
        results.append(linear(inner, expert.w2))
    return torch.cat(results)
