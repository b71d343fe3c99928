"""What changes how PyTorch computes a function and not its result: left out while a module is traced.

`torch.compile` of functions and of modules, in place or not; `torch.utils.checkpoint` with use_reentrant=True, whose backward
cannot be traced (what is computed again in the backward phase is for dcc to decide); and the checks of arguments and
samples in torch.distributions, and of variances in gaussian_nll_loss, which read values.
"""

import contextlib
import functools
import sys

import torch.utils.checkpoint

from .errors import ExportError
from .recomputed import Called, marked_generator

_WRAPPED = "_orig_mod"  # under which torch.compile(module) has the module
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


@contextlib.contextmanager
def plain_calls():
    """While open, reentrant checkpoints call their function, and arguments of distributions and variances count as valid."""
    module, losses = torch.utils.checkpoint, torch.nn.functional
    before = module.CheckpointFunction, module._checkpoint_without_reentrant_generator, torch._is_all_true, losses.gaussian_nll_loss
    module.CheckpointFunction, module._checkpoint_without_reentrant_generator = Called, marked_generator(before[1])
    torch._is_all_true = lambda valid: True
    losses.gaussian_nll_loss = _of_valid_variances(before[3])
    try:
        yield
    finally:
        module.CheckpointFunction, module._checkpoint_without_reentrant_generator, torch._is_all_true, losses.gaussian_nll_loss = before


def _of_valid_variances(loss):
    """`gaussian_nll_loss` without its question whether any variance is negative, the only thing that it asks torch.any."""

    @functools.wraps(loss)
    def called(*args, **kwargs):
        before, torch.any = torch.any, lambda negative: False
        try:
            return loss(*args, **kwargs)
        finally:
            torch.any = before

    return called


@contextlib.contextmanager
def uncompiled():
    """While open, `torch.compile` compiles nothing; without torch._dynamo there is nothing that it compiled."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    from torch._dynamo import config

    with config.patch(error_on_nested_fx_trace=False), torch.compiler.set_stance("force_eager"):
        yield


def compiled_from(name, module):
    """The module that `torch.compile(module)` was made from; any other as it is. Hooks that only the wrapper has would be lost."""
    while _is_wrapper(module):
        if any(vars(module).get(hooks) for hooks in _HOOKS):
            raise ExportError(
                f"{name} has a hook on what torch.compile returned, which the module that was compiled does not have; register it there "
                f"(.{_WRAPPED}), or compile that module in place, with its compile()"
            )
        module = getattr(module, _WRAPPED)
    return module


@contextlib.contextmanager
def without_wrappers(module, name_of):
    """While open, `module` holds what `torch.compile` was given wherever it holds what that returned, so that no name has the wrapper in it.
    `name_of`: a submodule's name as the user knows it, of its name in `module`."""
    found = []
    try:
        for prefix, parent in list(module.named_modules()):
            for key, child in parent._modules.items():
                if _is_wrapper(child) and not _is_wrapper(parent):
                    inner = compiled_from(name_of(without_wrapper(f"{prefix}.{key}".lstrip("."))), child)
                    found.append((parent._modules, key, child))
                    parent._modules[key] = inner
        yield
    finally:
        for modules, key, child in reversed(found):
            modules[key] = child


def without_wrapper(name):
    """The name of a parameter or module as `without_wrappers` has it."""
    return ".".join(part for part in name.split(".") if part != _WRAPPED)


def _is_wrapper(module):
    if "torch._dynamo" not in sys.modules:
        return False
    from torch._dynamo import OptimizedModule

    return isinstance(module, OptimizedModule)
