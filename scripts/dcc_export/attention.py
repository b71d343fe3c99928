"""Our attention function for transformers models.

It is registered under its own name in the attention registry only. transformers then builds no
causal mask, so a causal model reaches the fused kernel with `is_causal` instead of a [S, S] mask.
"""

import torch

from .errors import ExportError

CPU = "dcc_cpu"
CUDA_FLASH = "dcc_cuda"  # a name with "flash" would be looked up among kernel packages
NAMES = {"cpu": CPU, "cuda-flash": CUDA_FLASH}

# Keywords that change the meaning of attention and that a fused call without mask cannot express.
_MEANINGFUL = ("softcap", "s_aux", "sinks", "head_mask")


def register():
    from transformers import AttentionInterface

    AttentionInterface.register(CPU, _cpu)
    AttentionInterface.register(CUDA_FLASH, _cuda_flash)


def _cpu(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None,
         position_bias=None, **kwargs):
    _refuse_unsupported(query, kwargs)
    causal = _is_causal(module, query, key, attention_mask, is_causal)
    if position_bias is not None:
        attention_mask = _with_causal(position_bias, attention_mask, causal)
        causal = False
    grouped = key.shape[1] != query.shape[1]
    if grouped and attention_mask is not None:
        key, value = (_repeated(t, query.shape[1] // key.shape[1]) for t in (key, value))
        grouped = False
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling,
        is_causal=causal, enable_gqa=grouped,
    )
    return out.transpose(1, 2).contiguous(), None


def _cuda_flash(module, query, key, value, attention_mask, dropout=0.0, scaling=None,
                is_causal=None, position_bias=None, **kwargs):
    """Calls the CUDA operator by name: its fake kernel and its derivative need no GPU."""
    _refuse_unsupported(query, kwargs)
    if attention_mask is not None or position_bias is not None:
        raise ExportError(
            "--attention cuda-flash takes no mask or position bias and this model has one; "
            "use --attention cpu"
        )
    causal = _is_causal(module, query, key, attention_mask, is_causal)
    out = torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value, dropout, causal, False, scale=scaling
    )[0]
    return out.transpose(1, 2).contiguous(), None


def _is_causal(module, query, key, mask, asked):
    causal = getattr(module, "is_causal", True) if asked is None else asked
    return bool(causal) and mask is None and query.shape[2] > 1 and key.shape[2] == query.shape[2]


def _with_causal(bias, mask, causal):
    """One additive mask from a learned bias, an optional mask and causality."""
    lowest = torch.finfo(bias.dtype).min
    if mask is not None:
        return torch.where(mask, bias, lowest) if mask.dtype == torch.bool else bias + mask
    if not causal:
        return bias
    rows, columns = (torch.arange(n, device=bias.device) for n in bias.shape[-2:])
    return torch.where(rows[:, None] >= columns[None, :], bias, lowest)


def _repeated(tensor, times):
    batch, heads, length, width = tensor.shape
    expanded = tensor[:, :, None].expand(batch, heads, times, length, width)
    return expanded.reshape(batch, heads * times, length, width)


def _refuse_unsupported(query, kwargs):
    window = kwargs.get("sliding_window")
    if window is not None and window < query.shape[2]:
        raise ExportError(
            f"the model's sliding window ({window}) is shorter than the sequence "
            f"({query.shape[2]}); use --seq {window} or less, or set sliding_window to null"
        )
    for name in _MEANINGFUL:
        if kwargs.get(name) is not None:
            raise ExportError(
                f"the model's attention uses {name!r}, which the fused attention cannot express; "
                f"turn it off in the config"
            )
