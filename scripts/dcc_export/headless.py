"""Archives without weights: the graph and shapes of a model too large to hold.

Parameters and persistent buffers are replaced by fake tensors while tracing. Small computed
buffers (rotary frequencies, position ids) are real and stored.
"""

import contextlib

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from .errors import ExportError


@contextlib.contextmanager
def faked(step, examples):
    """Inside, the tensors of `step` are fake; yields fake examples. Restores everything.

    Examples that are fake already (dims with symbols) stay as they are, and the rest joins their mode.
    """
    fakes = [t for t in examples if isinstance(t, FakeTensor)]
    mode = fakes[0].fake_mode if fakes else FakeTensorMode(allow_non_fake_inputs=True)
    undo = _replace_tensors(step, mode)
    try:
        with mode:
            yield fakes or [torch.empty(t.shape, dtype=t.dtype) for t in examples]
    finally:
        for table, name, original in undo:
            table[name] = original


def _replace_tensors(step, mode):
    replaced, undo = {}, []
    for prefix, module in step.named_modules():
        for table, persistent in ((module._parameters, True), (module._buffers, False)):
            for name, tensor in list(table.items()):
                if tensor is None:
                    continue
                if not persistent and name in module._non_persistent_buffers_set:
                    _require_real(tensor, f"{prefix}.{name}")
                    continue
                undo.append((table, name, tensor))
                if id(tensor) not in replaced:
                    replaced[id(tensor)] = _fake_like(tensor, mode)
                table[name] = replaced[id(tensor)]
    return undo


def _require_real(buffer, fqn):
    if buffer.device.type == "meta":
        raise ExportError(
            f"buffer {fqn} is on the meta device but is not saved with the model, so its values must be known; compute it on the CPU before exporting"
        )


def _fake_like(tensor, mode):
    with mode:
        fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
    return fake


def compute_buffers(model):
    """Gives the unsaved buffers of a transformers model on the meta device their values."""
    for module in model.modules():
        names = [n for n, b in module._buffers.items() if b is not None and b.device.type == "meta" and n in module._non_persistent_buffers_set]
        for name in names:
            module._buffers[name] = torch.full_like(module._buffers[name], -1, device="cpu")
        if names:
            with torch.no_grad():
                model._init_weights(module)
