"""Reads a live torch optimizer into the form of train.json; its moments are for `optimizer_state.py`."""

import math
import re

from torch.optim import optimizer as of_torch

from .errors import ExportError
from .optimizer_kinds import decays_gradients, kind_of

_UNSUPPORTED = ("amsgrad", "maximize")
_UNSAID = {"nesterov": False, "dampening": 0.0}  # not written where they have these values


def describe_optimizer(optimizer, named, clip_norm=None):
    """`named`: {fqn: parameter}. Group 0 gives the defaults, differences become groups."""
    _require_plain(optimizer)
    groups = optimizer.param_groups
    names = {id(parameter): fqn for fqn, parameter in named.items()}
    _require_all(groups, named, names)
    described = [_hyperparameters(optimizer, group) for group in groups]
    base = described[0]
    result = {"optimizer": {key: value for key, value in base.items() if _UNSAID.get(key) != value}}
    overrides = []
    for group, own in zip(groups[1:], described[1:]):
        changed = {k: v for k, v in own.items() if base.get(k) != v}
        rejected = sorted(set(changed) - {"lr", "weight_decay"})
        if rejected:
            raise ExportError(f"optimizer groups differ in {rejected}; only lr and weight_decay may differ")
        if not changed:
            continue
        for parameter in group["params"]:
            overrides.append({"match": _exactly(_fqn(parameter, names)), **changed})
    if overrides:
        result["groups"] = overrides
    if clip_norm is not None:
        result["clip_norm"] = limit_of_norm(clip_norm)
    return result


def limit_of_norm(clip_norm):
    """As train.json has it: 0 is no clipping."""
    limit = float(clip_norm)
    if not math.isfinite(limit) or limit < 0:
        raise ExportError(f"clip_norm is {limit:g}; give a positive number, or None for no clipping (dcrun prints the norm either way)")
    return limit


def _exactly(name):
    """The pattern that matches this name and no other: `*`, `?` and the backslash are escaped."""
    return re.sub(r"([*?\\])", r"\\\1", name)


def parameter_order(optimizer, names):
    """The names of each group's parameters, in the optimizer's order. `names`: {id of a parameter: its name}."""
    return [[_fqn(parameter, names) for parameter in group["params"]] for group in optimizer.param_groups]


def _require_plain(optimizer):
    """What an optimizer has beyond hyperparameters and moments would be dropped without a trace."""
    kind = type(optimizer).__name__
    if any("initial_lr" in group for group in optimizer.param_groups):
        raise ExportError(
            f"a learning-rate scheduler is attached to the {kind} optimizer and would be dropped; pass an "
            'optimizer without one and give "schedule" in the --config of dcc compile'
        )
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise ExportError(f"the {kind} optimizer has step hooks, which would be dropped; remove them")
    if of_torch._global_optimizer_pre_hooks or of_torch._global_optimizer_post_hooks:
        raise ExportError("every optimizer has step hooks (register_optimizer_step_pre_hook or _post_hook), which would be dropped; remove them")
    own = vars(optimizer).get("step")
    if own is not None and not hasattr(own, "_wrapped_by_lr_sched"):
        raise ExportError(f"the {kind} optimizer has another step() than its class, which would be dropped; take it out")


def _fqn(parameter, names):
    if id(parameter) not in names:
        raise ExportError(
            f"the optimizer holds a parameter of shape {list(parameter.shape)} that the module "
            "does not have; build the optimizer from this module's parameters()"
        )
    return names[id(parameter)]


def _require_all(groups, named, names):
    held = [p for group in groups for p in group["params"]]
    seen = set()
    for parameter in held:
        fqn = _fqn(parameter, names)
        if fqn in seen:
            raise ExportError(f"the optimizer holds parameter {fqn} twice, and would update it twice in each step; give it once")
        seen.add(fqn)
    ids = {id(parameter) for parameter in held}
    forgotten = [f for f, p in named.items() if p.requires_grad and id(p) not in ids]
    if forgotten:
        raise ExportError(f"parameter {forgotten[0]} is trainable but not in the optimizer; add it, or set requires_grad_(False) on it")


def _hyperparameters(optimizer, group):
    for key in _UNSUPPORTED:
        if group.get(key):
            raise ExportError(f"optimizer option {key}={group[key]} is not supported; turn it off")
    kind = kind_of(optimizer)
    if decays_gradients(group):
        raise ExportError("weight decay of Adam is added to the gradients, which dcc does not do; use torch.optim.AdamW, or weight_decay=0")
    return {"kind": kind.name} | {option: _number(group[option]) for option in kind.options}


def _number(value):
    """As train.json has it: of betas a list."""
    if isinstance(value, bool):
        return value
    return [float(one) for one in value] if isinstance(value, (list, tuple)) else float(value)
