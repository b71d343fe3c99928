"""The mode that the fake tensors of a traced graph live in; new values are computed in it."""

import torch

from .errors import ExportError


def of(joint):
    """The FakeTensorMode of the GraphModule `joint`'s inputs."""
    for node in joint.graph.nodes:
        if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor):
            return node.meta["val"].fake_mode
    raise ExportError("the traced graph has no tensor inputs")
