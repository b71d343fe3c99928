"""What a forward does in PyTorch besides computing, and a trace leaves out: noticed while the module is traced.

Hooks on the tensors that autograd saves, dispatch modes around the export, seeds, questions to torch.distributed, autocast for GPUs, and what is done to the
parameters themselves.
What is noticed is refused here, or judged in `as_traced.py`.
"""

import contextlib
import dataclasses
import os
import sys

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from .errors import ExportError

_PUSH = "_push_saved_tensors_default_hooks"
_SEEDS = ("manual_seed", "seed", "set_rng_state")
_RANKS = ("is_initialized", "get_world_size", "get_rank")
HOOK_CURE = "write the change of the gradient into the forward, with a torch.autograd.Function or a hook on parameter * 1"
_TORCH = os.path.dirname(torch.__file__) + os.sep


@dataclasses.dataclass
class LeftOut:
    """What was noticed. Names and places in code are for people."""

    saving: set = dataclasses.field(default_factory=set)  # hooks on saved tensors that are not PyTorch's own
    written_again: set = dataclasses.field(default_factory=set)  # buffers that are written under torch.utils.checkpoint
    replaced: set = dataclasses.field(default_factory=set)  # buffers in whose place it puts other tensors
    seeds: set = dataclasses.field(default_factory=set)  # functions that set the state of random numbers
    ranks: set = dataclasses.field(default_factory=set)  # where the forward asks torch.distributed for ranks
    deciding: set = dataclasses.field(default_factory=set)  # buffers whose values decide a shape or a choice
    autocasts: set = dataclasses.field(default_factory=set)  # for which devices it enters an autocast that may be enabled there


@contextlib.contextmanager
def noticed(left_out):
    """While open, what a forward does is added to `left_out`."""

    def push(own, pack, unpack):
        note_hooks(left_out, pack)
        own(pack, unpack)

    def seed(own, *args, **kwargs):
        left_out.seeds.add(f"torch.{own.__name__}")
        return own(*args, **kwargs)

    def ask(own, *args, **kwargs):
        caller = sys._getframe(2)  # of the function that stands in the place of `own`
        if not caller.f_code.co_filename.startswith(_TORCH):
            left_out.ranks.add(f"{os.path.basename(caller.f_code.co_filename)}:{caller.f_lineno}")
        return own(*args, **kwargs)

    made = {}  # id of an autocast -> (autocast, whether the forward enables it)

    def make(own, autocast, device_type, dtype=None, enabled=True, cache_enabled=None):
        made[id(autocast)] = autocast, enabled
        own(autocast, device_type, dtype, enabled, cache_enabled)

    def enter(own, autocast):
        if autocast.device != "cpu":
            _, enabled = made.get(id(autocast), (None, autocast._enabled))
            if enabled:
                raise ExportError(
                    f"the forward enters torch.autocast({autocast.device!r}), which has no effect on the CPU, where a step is exported; leave it out and give "
                    "autocast=torch.bfloat16 for the whole forward, or enter torch.autocast(x.device.type, torch.bfloat16) for a part"
                )
            if id(autocast) not in made:  # PyTorch has disabled it where no GPU is, whatever it was asked for
                left_out.autocasts.add(autocast.device)
        return own(autocast)

    in_force = torch._C._autograd._top_saved_tensors_default_hooks(True)
    if in_force is not None:
        note_hooks(left_out, in_force[0])
    with contextlib.ExitStack() as stack:
        stack.enter_context(pushed(push))
        for module in (torch, torch.random):
            stack.enter_context(_replaced(module, _SEEDS, seed))
        stack.enter_context(_replaced(torch.autocast, ("__init__",), make))
        stack.enter_context(_replaced(torch.autocast, ("__enter__",), enter))
        if torch.distributed.is_available():
            stack.enter_context(_replaced(torch.distributed, _RANKS, ask))
        yield


def note_hooks(left_out, pack):
    """PyTorch's own hooks, those of save_on_cpu and of checkpoints, give back what they were given."""
    module = getattr(pack, "__module__", None) or type(pack).__module__
    if not _is_of_torch(module):
        left_out.saving.add(f"{module}.{getattr(pack, '__qualname__', type(pack).__qualname__)}")


def require_no_dispatch_modes():
    """Raises ExportError inside of a mode that may compute something else than the operators that it is given. PyTorch's own count or imitate."""
    for mode in _get_current_dispatch_mode_stack():
        kind = type(mode)
        if not _is_of_torch(kind.__module__):
            raise ExportError(f"the export runs inside of a {kind.__name__}, a dispatch mode, which an exported step leaves out; enter it in the forward")


def _is_of_torch(module):
    return module.partition(".")[0] == "torch"


def pushed(push):
    """A context in which `push(own, pack, unpack)` is called for each pair of hooks that a `saved_tensors_hooks` puts in force; own: PyTorch's."""
    return _replaced(torch._C._autograd, (_PUSH,), push)


@contextlib.contextmanager
def _replaced(module, names, function):
    """While open, a call of one of `names` of `module` calls `function(own, ...)`; own: what the name meant."""
    before = {name: getattr(module, name) for name in names}
    try:
        for name, own in before.items():
            setattr(module, name, _bound(function, own))
        yield
    finally:
        for name, own in before.items():
            setattr(module, name, own)


def _bound(function, own):
    return lambda *args, **kwargs: function(own, *args, **kwargs)


def require_no_backward_hooks(name, module):
    """Raises ExportError if `module` itself has one."""
    if module._backward_hooks or module._backward_pre_hooks:
        raise ExportError(
            f"{name} has a backward hook, which is not part of an exported step; remove it "
            "(a gradient limit is clip_norm, a scale can be written into the loss)"
        )


class Untouched:
    """The parameters {name: tensor} before a forward: afterwards they must have the same hooks and requires_grad."""

    def __init__(self, tensors):
        self._before = {name: (tensor, _state(tensor)) for name, tensor in tensors.items()}

    def require(self):
        """Raises ExportError if the forward has changed one of them."""
        for name, (tensor, before) in self._before.items():
            for (what, cure), old, new in zip(_TOUCHED, before, _state(tensor), strict=True):
                if old != new:
                    raise ExportError(f"the forward {what} of parameter {name}, which is not part of an exported step; {cure}")


_TOUCHED = (
    ("changes requires_grad", "set it before the export"),
    ("registers a gradient hook", HOOK_CURE),
)


def _state(tensor):
    return tensor.requires_grad, len(tensor._backward_hooks or ())


def notes_of(left_out):
    """Sentences for the archive and its plans."""
    notes = []
    if left_out.ranks:
        notes.append(
            f"the forward asks torch.distributed for ranks ({', '.join(sorted(left_out.ranks)[:3])}): the step is that of one rank, and what PyTorch would "
            "exchange between ranks there, as losses over all ranks do, is not in it"
        )
    notes += [
        f"the values of buffer {name} decide a shape or a choice in the forward, and the step holds what they are now: with weights in which they differ, export again"
        for name in sorted(left_out.deciding)
    ]
    notes += [
        f"the forward enters a torch.autocast({device!r}) that was made before the export: if it is enabled on a GPU, the step is without it "
        "(autocast=torch.bfloat16 is the same for the whole forward)"
        for device in sorted(left_out.autocasts)
    ]
    return notes
