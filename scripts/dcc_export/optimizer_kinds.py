"""The optimizers that dcc has: torch's class of each, what it keeps of a parameter, and how its options are named."""

import dataclasses

import torch

from .errors import ExportError


@dataclasses.dataclass(frozen=True)
class OptimizerKind:
    """One row of `KINDS`."""

    name: str  # as in train.json and in a checkpoint's index
    title: str
    type: type
    same: tuple  # other classes of torch with its formulas, where their options say so
    moments: tuple  # PyTorch's names of a parameter's tensors; those of a checkpoint too (runtime/checkpoint/piece.h)
    moments_with: str | None  # the option without which it keeps no moments; None: it always does
    counts_steps: bool  # its state has "step"
    marker: str  # an option that only groups of this kind have
    options: dict  # {PyTorch's option: its name, or the names of its numbers, in the groups of a plan}

    def torch_options(self, group):
        """Keyword arguments of `type`, from a group of a plan or of a checkpoint's configuration."""
        return {option: group[at] if isinstance(at, str) else tuple(group[one] for one in at) for option, at in self.options.items()}

    def keeps_moments(self, group):
        """`group`: PyTorch's, whose options may be missing."""
        return self.moments_with is None or bool(group.get(self.moments_with))


KINDS = {
    kind.name: kind
    for kind in (
        OptimizerKind(
            name="adamw",
            title="AdamW",
            type=torch.optim.AdamW,
            same=(torch.optim.Adam,),  # without weight decay, or with AdamW's: see decays_gradients
            moments=("exp_avg", "exp_avg_sq"),
            moments_with=None,
            counts_steps=True,
            marker="betas",
            options={"lr": "lr", "betas": ("beta1", "beta2"), "eps": "eps", "weight_decay": "weight_decay"},
        ),
        OptimizerKind(
            name="sgd",
            title="SGD",
            type=torch.optim.SGD,
            same=(),
            moments=("momentum_buffer",),
            moments_with="momentum",
            counts_steps=False,
            marker="dampening",
            options={key: key for key in ("lr", "momentum", "dampening", "weight_decay", "nesterov")},
        ),
    )
}
TITLES = " or ".join(kind.title for kind in KINDS.values())


def kind_named(name, where):
    """ExportError for a name that is not one of `KINDS`; `where` is what has it."""
    if name not in KINDS:
        raise ExportError(f"{where} is of the optimizer {name!r}, which is not known here; there are {', '.join(KINDS)}")
    return KINDS[name]


def kind_of(optimizer):
    """That of a live optimizer. ExportError for one that dcc does not have."""
    for kind in KINDS.values():
        if type(optimizer) in (kind.type, *kind.same):
            return kind
    raise ExportError(f"optimizer {type(optimizer).__name__} is not supported; use torch.optim.{TITLES}")


def decays_gradients(group):
    """Whether weight decay is added to the gradients, as Adam's is; AdamW's, and dcc's, goes past the moments."""
    return bool(group.get("weight_decay")) and group.get("decoupled_weight_decay") is False


def kind_of_groups(groups):
    """That of a saved optimizer's `param_groups`; None if they are of none, or of several."""
    found = {next((kind.name for kind in KINDS.values() if kind.marker in group), None) for group in groups}
    name = found.pop() if len(found) == 1 else None
    return KINDS.get(name)
