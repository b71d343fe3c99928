"""transformers models inside of a user's own module: what they need in order to be traced, as the wrappers of `losses.py` give it to theirs.

Their attention and positions stay as they are: the archive is compared with that module itself. Experts have room for every token (`experts.py`).
"""

import contextlib
import functools
import inspect
import sys

from . import experts
from .attention import masks_without_values
from .expert_loops import static_loops
from .forwards import replaced_forwards
from .losses import TransformersLoss
from .randomness import LayerDraws
from .static_shapes import StaticShapes


@contextlib.contextmanager
def traceable_parts(step):
    """While open, each transformers model in `step` can be traced where it is called."""
    models, running = _models(step), []
    for model in models:
        if model._can_set_experts_implementation():
            experts.register()
            model.set_experts_implementation(experts.NAME)  # in its config, which the guard puts back
    with replaced_forwards((model, _traceable(model, model.forward, running)) for model in models):
        yield


def _models(step):
    if "transformers" not in sys.modules or any(isinstance(module, TransformersLoss) for module in step.modules()):
        return []
    from transformers import PreTrainedModel

    return [module for module in step.modules() if isinstance(module, PreTrainedModel)]


def _traceable(model, forward, running):
    """`forward` of a model; `running` holds the outermost one that is being called."""

    @functools.wraps(forward)
    def traceable(*args, **kwargs):
        if running:
            return forward(*args, **kwargs)
        running.append(model)
        try:
            given = _gives_positions(forward, args, kwargs)
            with masks_without_values(given), LayerDraws(), StaticShapes(counted=not given), static_loops(model):
                return forward(*args, **kwargs)
        finally:
            running.clear()

    return traceable


def _gives_positions(forward, args, kwargs):
    given = {**dict(zip(inspect.signature(forward).parameters, args)), **kwargs}
    return given.get("position_ids") is not None
