"""What changes how PyTorch computes a function and not its result: left out while a module is traced.

`torch.compile` of functions and of modules in place; `torch.utils.checkpoint` with use_reentrant=True, whose backward
cannot be traced (what is computed again in the backward phase is for dcc to decide); and the checks of arguments and
samples in torch.distributions, which read values.
"""

import contextlib
import sys

import torch.utils.checkpoint

from .recomputed import Called, marked_generator


@contextlib.contextmanager
def plain_calls():
    """While open, reentrant checkpoints call their function, and arguments of distributions count as valid."""
    module = torch.utils.checkpoint
    before = module.CheckpointFunction, module._checkpoint_without_reentrant_generator, torch._is_all_true
    module.CheckpointFunction, module._checkpoint_without_reentrant_generator = Called, marked_generator(before[1])
    torch._is_all_true = lambda valid: True
    try:
        yield
    finally:
        module.CheckpointFunction, module._checkpoint_without_reentrant_generator, torch._is_all_true = before


@contextlib.contextmanager
def uncompiled():
    """While open, `torch.compile` compiles nothing; without torch._dynamo there is nothing that it compiled."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    from torch._dynamo import config

    with config.patch(error_on_nested_fx_trace=False), torch.compiler.set_stance("force_eager"):
        yield
