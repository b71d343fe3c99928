"""Whether PyTorch computes what was traced, where a trace leaves something out (`left_out.py`).

Hooks on saved tensors may give back other values, and a checkpoint that computes a forward again in the backward phase writes the
buffers of that forward again. Both are seen when PyTorch runs the step once; where the module cannot be run they are refused.
"""

import contextlib

import torch

from .capture import strip
from .errors import ExportError, first_line
from .left_out import LeftOut, note_hooks, pushed
from .places import Places, copies


def require_as_traced(step, examples, root, can_run, seed, graph):
    """Raises ExportError if `graph`, traced of `step`, is not what PyTorch computes, as far as `step.left_out` says."""
    found = step.left_out
    if found.seeds and any(_is_random(node) for node in graph.nodes):
        raise ExportError(
            f"the forward sets the state of random numbers ({_some(found.seeds)}), after which PyTorch draws the same in each step and dcrun "
            "does not; draw what is fixed once, into a buffer, and leave the seed out"
        )
    if not found.saving and not found.written_again:
        return
    if not can_run:
        raise ExportError(_refusal(found.saving, {strip(n, root) for n in found.written_again}))
    try:
        saving, written = _run(step, examples, seed)
    except RuntimeError as error:
        raise ExportError(f"the module itself fails in PyTorch: {first_line(error)}; correct the module, or leave its hooks and checkpoints out") from error
    if saving or written:
        raise ExportError(_refusal(saving, {strip(n, root) for n in written}))


def _refusal(saving, written):
    if saving:
        return (
            f"the forward saves tensors for its backward through hooks that may give back other values ({_some(saving)}), and an exported step "
            "saves them as they are; leave the hooks out: what is kept, computed again or moved elsewhere is for dcc compile to decide"
        )
    return (
        f"the forward writes {_some(written)} under torch.utils.checkpoint, and PyTorch writes it again when the backward phase computes that part "
        "again, which an exported step does not; leave the checkpoint out: what is computed again is for dcc compile to decide"
    )


def _run(step, examples, seed):
    """One step of PyTorch's: hooks on saved tensors that gave back other values, and buffers that the backward wrote. Copies of all tensors are used."""
    places, changing = Places(step), LeftOut()

    def push(own, pack, unpack):
        own(*_compared(pack, unpack, changing))

    ambient = torch._C._autograd._top_saved_tensors_default_hooks(True)
    lent = copies(places.tensors())
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(places.holding(lent))
        stack.enter_context(pushed(push))
        if ambient is not None:
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(*ambient))
        torch.manual_seed(seed)
        loss = step(*[t.clone() for t in examples])
        buffers = {name: lent[name] for name in places.buffers}
        buffers.update(places.replaced(buffers))
        before = {name: tensor.detach().clone() for name, tensor in buffers.items()}
        loss.backward()
        buffers.update(places.replaced({name: lent[name] for name in places.buffers}))
    return changing.saving, {name for name, tensor in buffers.items() if not _same(tensor, before[name])}


def _compared(pack, unpack, changing):
    """The hooks, which note in `changing` if a tensor comes back with other values."""

    def packed(tensor):
        return pack(tensor), tensor.detach().clone()

    def unpacked(pair):
        tensor = unpack(pair[0])
        if not _same(tensor, pair[1]):
            note_hooks(changing, pack)
        return tensor

    return packed, unpacked


def _same(tensor, other):
    if tensor.dtype != other.dtype or tensor.shape != other.shape:
        return False
    tensor = tensor.detach()
    return bool(((tensor == other) | ((tensor != tensor) & (other != other))).all())


def _is_random(node):
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def _some(names):
    return ", ".join(sorted(names)[:3])
