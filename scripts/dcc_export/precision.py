"""Floats of 16 bits, and settings of a process with which PyTorch rounds the operands of float32 products: dcrun does not."""

import torch

REDUCED = (torch.bfloat16, torch.float16)
_KINDS = ("matmul", "conv", "rnn")
_NARROW = ("tf32", "bf16")


def precision_notes():
    """Sentences for the archive and its plans."""
    set_to = {kind: torch._C._get_fp32_precision_getter("mkldnn", kind) for kind in _KINDS}
    narrow = {kind: name for kind, name in set_to.items() if name in _NARROW}
    if not narrow:
        return []
    told = ", ".join(f"{kind} {name}" for kind, name in narrow.items())
    return [
        f"this process lets PyTorch round operands of float32 operators ({told}; torch.set_float32_matmul_precision or torch.backends.mkldnn): "
        "dcrun computes in float32, so its numbers are nearer to those of the setting 'highest'"
    ]
