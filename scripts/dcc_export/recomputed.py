"""What runs under torch.utils.checkpoint while a module is traced: its nodes are marked, so that buffers which it writes are found.

PyTorch computes such a part again in the backward phase, and then writes its buffers a second time.
"""

import contextlib

import torch
from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput
from torch.fx.traceback import annotate

_KEY = "dcc_checkpoint"
_FROM_FIRST = {"getitem", "clone", "_to_copy", "alias", "detach", "view", "reshape", "expand", "lift_fresh_copy"}  # values are those of the first operand
_FROM_SECOND = {"copy", "slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter"}  # new values are those of the second


def marked_generator(generator):
    """torch.utils.checkpoint's generator, whose nodes are marked between its first step and its last."""

    def run(*args, **kwargs):
        with annotate({_KEY: 1}):
            yield from generator(*args, **kwargs)

    return run


class Called:
    """In the place of torch.utils.checkpoint.CheckpointFunction, whose backward cannot be traced."""

    @staticmethod
    def apply(function, preserve_random_state, *arguments):
        """As PyTorch's, what it calls has no gradients, parameters included, if no argument has one."""
        needed = any(isinstance(a, torch.Tensor) and a.requires_grad for a in arguments)
        with annotate({_KEY: 1}), contextlib.nullcontext() if needed else torch.no_grad():
            return function(*arguments)


def written_again(joint, names):
    """The first names of the buffers and frozen parameters that were last written under a checkpoint. `names`: {what descriptors say: first name}."""
    (outputs,) = [n for n in joint.graph.nodes if n.op == "output"]
    written = [(value, d.mutated_input) for value, d in zip(outputs.args[0], outputs.meta["desc"], strict=True) if isinstance(d, InputMutationAOTOutput)]
    return {names[into.target] for value, into in written if hasattr(into, "target") and _KEY in (_writer(value).meta.get("custom") or {})}


def _writer(node):
    """The node that computed the values that `node` has."""
    while node.op == "call_function":
        name = getattr(node.target, "_opname", getattr(node.target, "__name__", ""))
        place = 0 if name in _FROM_FIRST else 1 if name in _FROM_SECOND else None
        if place is None or not isinstance(node.args[place], torch.fx.Node):
            break
        node = node.args[place]
    return node
