"""What transformers' attention and masks need in order to be traced.

Our models keep the attention that transformers chooses for them, with its own masks: "sdpa", the
fused call, or "eager", the model's own code.
"""

import contextlib
import inspect
import sys

import torch
from torch.overrides import TorchFunctionMode

from .errors import ExportError


class DroppedKeyword(ExportError):
    """transformers' fused attention ignores something that the model's own attention applies."""

    def __init__(self, keyword):
        super().__init__(f"transformers' fused attention ignores {keyword!r}, which this model's attention has; use the model's eager attention")
        self.keyword = keyword


@contextlib.contextmanager
def traceable():
    """Inside, transformers builds masks without reading values, and fused attention ignores nothing. Steps give no positions."""
    from transformers import modeling_utils

    functions = modeling_utils.ALL_ATTENTION_FUNCTIONS
    with masks_without_values(positions=False), _patched(type(functions)._global_mapping, "sdpa", _refusing(functions["sdpa"])):
        yield


@contextlib.contextmanager
def masks_without_values(positions):
    """Inside, a padding mask that is a tensor always becomes a 4-D mask, whatever its values, and so do positions that are given.

    positions: whether they are; else no row holds several packed sequences. No token is read to warn of padding without a mask.
    """
    from transformers import masking_utils, modeling_utils

    with contextlib.ExitStack() as stack:
        stack.enter_context(_patched(vars(masking_utils), "is_tracing", lambda tensor=None: tensor is not None))
        stack.enter_context(_patched(vars(modeling_utils), "is_tracing", lambda tensor=None: True))
        if not positions:
            stack.enter_context(_patched(vars(masking_utils), "find_packed_sequence_indices", lambda positions: None))
        yield


@contextlib.contextmanager
def _patched(table, name, value):
    original = table[name]
    table[name] = value
    try:
        yield
    finally:
        table[name] = original


def _refusing(sdpa):
    """`sdpa` that raises DroppedKeyword where the model's eager attention would compute more."""

    def guarded(module, *args, **kwargs):
        eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        known = inspect.signature(eager).parameters if eager is not None else ()
        ignored = set(known) - set(inspect.signature(sdpa).parameters)
        for name in sorted(ignored):
            if kwargs.get(name) is not None:
                raise DroppedKeyword(name)
        return sdpa(module, *args, **kwargs)

    return guarded


class CudaFlash(TorchFunctionMode):
    """Inside, fused attention is CUDA's flash operator, called by name: tracing needs no GPU."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        self.calls += 1
        return _cuda_flash(*args, **(kwargs or {}))


def _cuda_flash(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if attn_mask is not None:
        raise ExportError("--attention cuda-flash takes no mask or position bias and this model has one; use --attention cpu")
    if is_causal and query.shape[2] != key.shape[2]:
        raise ExportError(
            "--attention cuda-flash aligns a causal mask at the end, and this model attends "
            f"causally from {query.shape[2]} to {key.shape[2]} positions; use --attention cpu"
        )
    return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
