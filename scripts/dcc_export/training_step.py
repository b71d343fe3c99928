"""A training step before it is exported: what every way to make one gives."""

import dataclasses

import torch

from . import losses


@dataclasses.dataclass
class Workload:
    """A module that returns its loss, with inputs to trace it on."""

    module: torch.nn.Module
    inputs: dict
    roles: dict
    root: str = losses.ROOT
    initializers: dict = None
    notes: list = dataclasses.field(default_factory=list)  # sentences for the archive and the plan
    stock: object = None  # of a transformers config: how to build the stock model (stock.Stock)


@dataclasses.dataclass
class Options:
    """What the command line says about the shape of the step."""

    batch: int = 2
    seq: int = 32
    dtype: str = "float32"
    seed: int = 0
    attention: str = "cpu"
    dropout: float = 0.0
    headless: bool = False
    image_size: int = None  # pixels of a picture's side; None: the config's
    labels: str = None  # which tokens a causal model's labels are, "same" or "next"; None: found out
    evaluates: bool = False  # the archive also holds the forward in eval mode
    dynamic: str = ""  # dims whose size is given when the plan is compiled: batch, seq, or both by a comma


def to_dtype(workload, options):
    """The workload in the type of the options; autocast changes no parameter."""
    if options.dtype == "bfloat16":
        _to_bfloat16(workload)
    return workload


def autocast_dtype(options):
    return torch.bfloat16 if options.dtype == "autocast-bfloat16" else None


def _to_bfloat16(workload):
    """Everything that is saved, and float inputs. Computed buffers (rotary) keep fp32."""
    kept = []
    for module in workload.module.modules():
        for name in module._non_persistent_buffers_set:
            if module._buffers.get(name) is not None:
                kept.append((module._buffers, name, module._buffers[name]))
    workload.module.to(torch.bfloat16)
    for table, name, buffer in kept:
        table[name] = buffer
    for name, value in workload.inputs.items():
        if value.is_floating_point():
            workload.inputs[name] = value.to(torch.bfloat16)
