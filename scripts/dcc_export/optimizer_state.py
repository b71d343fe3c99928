"""What a torch optimizer has beyond its hyperparameters: moments by parameter, and how many steps it has taken.

It is the same for a live optimizer and for a saved `state_dict()`; only the way to the names differs.
"""

import dataclasses

import torch

from .errors import ExportError
from .optimizer_kinds import TITLES


@dataclasses.dataclass
class OptimizerState:
    """`step` updates were made; they left `moments`, {parameter: {PyTorch's name: float32 tensor}}."""

    kind: str
    step: int
    moments: dict
    notes: list


@dataclasses.dataclass
class Saved:
    """What one parameter has in the optimizer: PyTorch's state of it, and the options of its group."""

    state: dict
    group: dict


def of_optimizer(optimizer, names):
    """{parameter: Saved} of a live optimizer. `names`: {id of a parameter: its name}."""
    return {names[id(p)]: Saved(optimizer.state.get(p, {}), group) for group in optimizer.param_groups for p in group["params"]}


def read_state(kind, saved, shapes, updated, steps_taken=None):
    """The state as dcrun goes on from it, or None if no step was taken.

    kind: an `OptimizerKind`. saved: {parameter: Saved}. shapes: {parameter: its shape}. updated: names of the parameters
    that the exported step updates. steps_taken: how many steps there were, for a kind that does not count them; the count
    of one that does must agree.
    """
    held = {name: one for name, one in saved.items() if any(_holds_something(v) for v in one.state.values())}
    if not held and not steps_taken:
        return None
    notes = _left_out(held, updated)
    held = {name: one for name, one in held.items() if name in updated}
    for name, one in held.items():
        _require_known(kind, name, one.state)
    step = _counted_step(held, updated, steps_taken) if kind.counts_steps else _given_step(kind, steps_taken, notes)
    moments = {}
    for name in updated:
        one = saved[name] if name in saved else Saved({}, {})
        found = {}
        for key in kind.moments if kind.keeps_moments(one.group) else ():
            value = one.state.get(key)
            if value is None and kind.moments_with is None:
                raise ExportError(f"the optimizer has no {key} for {name}, which has taken {step} steps; its state is not that of {kind.title}")
            found[key] = _zeros(name, one, shapes[name]) if value is None else _checked(name, key, value, shapes[name])
        moments[name] = found
    narrow = sorted({str(v.dtype).removeprefix("torch.") for one in held.values() for k, v in one.state.items() if k != "step" and v is not None} - {"float32"})
    if narrow:
        notes.append(f"moments of {', '.join(narrow)} go on in float32, with float32 masters of their parameters")
    return OptimizerState(kind.name, step, moments, notes)


def _holds_something(value):
    """Whether a value of a parameter's state differs from zero."""
    if isinstance(value, torch.Tensor):
        return bool(value.numel() and (value != 0).any())
    return bool(value)


def _left_out(held, updated):
    dropped = [name for name in held if name not in updated]
    if not dropped:
        return []
    return [f"the moments of {_some(dropped)} are left out: the exported step gives no gradient to them"]


def _require_known(kind, name, state):
    extra = sorted(k for k, v in state.items() if k not in ("step", *kind.moments) and v is not None)
    if extra:
        raise ExportError(f"the optimizer keeps {', '.join(extra)} for {name}, which dcrun does not have (amsgrad?); go on with a plain optimizer of {TITLES}")


def _counted_step(held, updated, steps_taken):
    """The one step count of all parameters."""
    counts = {}
    for name in updated:
        count = float(held[name].state.get("step", 0)) if name in held else 0.0
        counts.setdefault(count, []).append(name)
    if len(counts) > 1:
        told = "; ".join(f"{count:g} of {_some(names)}" for count, names in sorted(counts.items()))
        raise ExportError(
            f"the optimizer has taken different numbers of steps with its parameters ({told}), and dcrun counts one for all: "
            "bias correction would be wrong; update all of them in every step, or export with a new optimizer"
        )
    (count,) = counts
    if count != int(count) or count < 1:
        raise ExportError(f"the optimizer's step count is {count:g}, which is no number of steps; pass an optimizer as PyTorch leaves it")
    if steps_taken is not None and steps_taken != count:
        raise ExportError(f"steps_taken={steps_taken} is given, but the optimizer has counted {count:g} steps; leave steps_taken out")
    return int(count)


def _given_step(kind, steps_taken, notes):
    if steps_taken is not None:
        if steps_taken < 1:
            raise ExportError(f"steps_taken={steps_taken} is given, but the optimizer holds {kind.moments[0]}; give the number of its steps")
        return int(steps_taken)
    notes.append(
        f"{kind.title} does not count its steps, so the checkpoint is that of step 1; steps_taken says otherwise (a schedule and --steps count from there)"
    )
    return 1


def _zeros(name, one, shape):
    """Momentum of a parameter that has none yet. PyTorch's first buffer is the gradient itself, without dampening."""
    if one.group.get("dampening"):
        raise ExportError(
            f"parameter {name} has no momentum yet although others have, and its dampening is not 0: dcrun would dampen its first gradient, "
            "PyTorch does not; take one step with all parameters first"
        )
    return torch.zeros(shape, dtype=torch.float32)


def _checked(name, key, value, shape):
    if list(value.shape) != list(shape):
        raise ExportError(
            f"{key} of {name} has shape {list(value.shape)}, the parameter {list(shape)}: the optimizer is not of this model, or its parameters "
            "are in another order"
        )
    value = value.detach().to("cpu", torch.float32)
    if not bool(torch.isfinite(value).all()):
        raise ExportError(f"{key} of {name} is not finite; export from an earlier state")
    return value


def _some(names):
    names = list(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
