"""The module that is traced: the user's module behind a flat list of tensor arguments.

Whatever the user passes (positional tensors, keyword tensors, None), the traced function takes
one flat list of tensors, in a fixed order, with a name for each.
"""

import contextlib
import inspect

import torch

from .errors import ExportError
from .left_out import LeftOut
from .plain_tensors import require_plain_tensor

# The attribute under which StepModule keeps the user's module; stripped from every name.
CHILD = "step"


class StepModule(torch.nn.Module):
    """Calls `module` with flat tensors, optionally under autocast, and checks what it returns."""

    def __init__(self, module, positional, keywords, autocast):
        super().__init__()
        self.step = module
        self.positional = positional
        self.keywords = keywords
        self.autocast = autocast
        self.written_parameters = []  # names of frozen parameters that the forward writes to; known once it is traced
        self.left_out = LeftOut()  # what its last trace left out
        self.evaluates = False  # in eval mode the loss needs no gradient
        self.registered = []  # where its tensors lie in memory: `with_values`, before and after they are put in the order of their dims

    def forward(self, *tensors):
        args = tensors[: self.positional]
        kwargs = dict(zip(self.keywords, tensors[self.positional :]))
        with autocast_context(self.autocast):
            loss = self.step(*args, **kwargs)
        if not isinstance(loss, torch.Tensor):
            raise ExportError(
                f"{type(self.step).__name__}.forward returns {type(loss).__name__}; return the "
                "scalar loss tensor alone (wrap the module, for example `return model(...).loss`)"
            )
        if loss.dim() != 0:
            raise ExportError(
                f"{type(self.step).__name__}.forward returns a tensor of shape {list(loss.shape)}; return a scalar loss (shape []), for example its mean()"
            )
        if not loss.requires_grad and self.evaluates:
            return _Evaluated.apply(loss, next(p for p in self.parameters() if p.requires_grad))
        if not loss.requires_grad:
            raise ExportError("the loss does not depend on any trainable parameter; check requires_grad and that the forward is not run under torch.no_grad()")
        return loss


class _Evaluated(torch.autograd.Function):
    """A loss without a gradient, such as a share of wrong answers, as one that has a trained parameter behind it: only such can be traced."""

    @staticmethod
    def forward(ctx, loss, parameter):
        return loss.clone()

    @staticmethod
    def backward(ctx, gradient):
        return None, None


def autocast_context(dtype):
    return torch.autocast("cpu", dtype) if dtype is not None else contextlib.nullcontext()


def flatten_inputs(module, example_inputs, input_names):
    """Returns (positional tensors, {keyword: tensor}, names of all, in call order)."""
    args, kwargs = _split(example_inputs)
    kwargs = {k: v for k, v in kwargs.items() if v is not None}
    for name, value in list(enumerate(args)) + list(kwargs.items()):
        if not isinstance(value, torch.Tensor):
            raise ExportError(
                f"example input {name!r} is {type(value).__name__}, not a tensor; pass tensors "
                "only and bind everything else inside the module that returns the loss"
            )
        require_plain_tensor(f"example input {name!r}", value)
    names = list(input_names) if input_names else _argument_names(module, len(args)) + list(kwargs)
    if len(names) != len(args) + len(kwargs):
        raise ExportError(f"{len(names)} input names for {len(args) + len(kwargs)} inputs; give one per tensor")
    if len(set(names)) != len(names) or not all(n.isidentifier() for n in names):
        raise ExportError(f"input names must be distinct identifiers, got {names}")
    if "loss_scale" in names:
        raise ExportError("the input name 'loss_scale' is taken by the exporter; rename the input")
    # Clones: an input passed twice must stay two inputs; nothing flows back into the data. Data files hold rows in order.
    fresh = [t.detach().clone(memory_format=torch.contiguous_format) for t in list(args) + list(kwargs.values())]
    return fresh[: len(args)], dict(zip(kwargs, fresh[len(args) :])), names


def _split(example_inputs):
    if isinstance(example_inputs, torch.Tensor):
        return (example_inputs,), {}
    if isinstance(example_inputs, dict):
        return (), dict(example_inputs)
    inputs = tuple(example_inputs)
    if len(inputs) == 2 and isinstance(inputs[0], (tuple, list)) and isinstance(inputs[1], dict):
        return tuple(inputs[0]), dict(inputs[1])
    return inputs, {}


def _argument_names(module, count):
    names = []
    for parameter in inspect.signature(module.forward).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind == parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{i}" for i in range(count - len(names))]
    if len(names) < count:
        raise ExportError(f"{type(module).__name__}.forward takes {len(names)} positional arguments, {count} example inputs were given")
    return names[:count]
