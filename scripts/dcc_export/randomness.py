"""Random decisions of a model: which of them a static graph can hold, and how to turn them off."""

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from .errors import ExportError

_DROPOUTS = {
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
    torch.dropout,
}


def set_rates(config, probability):
    """Gives every dropout of a transformers config, and of its parts, one probability.

    Rates that skip whole layers or paths become 0.
    """
    from transformers import PreTrainedConfig

    for name, value in list(vars(config).items()):
        if isinstance(value, PreTrainedConfig):
            set_rates(value, probability)
        elif "drop" in name and not isinstance(value, bool):
            _set(config, name, value, probability if _is_of_elements(name) else 0.0)


def dropout_rates(config):
    """{name: rate} of what `set_rates` gives a probability and has one above 0, in a transformers config and its parts."""
    from transformers import PreTrainedConfig

    found = {}
    for name, value in vars(config).items():
        if isinstance(value, PreTrainedConfig):
            found.update(dropout_rates(value))
        elif _is_of_elements(name):
            numbers = [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, (int, float)) and not isinstance(v, bool)]
            if max(numbers, default=0) > 0:
                found[name] = max(numbers)
    return found


def _is_of_elements(name):
    """Whether a key is the rate of a dropout: others that have "drop" in their name skip whole layers or paths."""
    return "dropout" in name or name.endswith("pdrop")


def _set(config, name, value, rate):
    if isinstance(value, (int, float)):
        new = rate if isinstance(value, float) or rate else 0
    elif isinstance(value, list) and all(isinstance(v, (int, float)) for v in value):
        new = [rate] * len(value)
    else:
        return
    try:
        setattr(config, name, new)
    except Exception as error:  # configs check their fields with many exceptions
        raise ExportError(f"{type(config).__name__}.{name} cannot be {new}; leave --dropout out") from error


class LayerDraws(TorchFunctionMode):
    """Replaces 0-d uniform draws, with which models decide in Python whether to skip a layer
    (LayerDrop). Such a draw can only be compared, and only with a rate of 0.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.rand and _is_scalar(args, kwargs):
            return _Draw()
        return func(*args, **kwargs)


class _Draw:
    """A number in [0, 1) that is not drawn yet."""

    def __lt__(self, rate):
        if rate <= 0:
            return False
        raise ExportError(f"the model skips layers at random (rate {rate:g}), which a fixed graph cannot do; set the rate to 0 in the config")


class RandomnessOff(TorchFunctionMode):
    """Inside, dropout is the identity and LayerDrop keeps every layer, whatever their rates."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        if func is functional.scaled_dot_product_attention:
            if len(args) > 4:  # query, key, value, attn_mask, dropout_p, is_causal
                args = args[:4] + (0.0,) + args[5:]
            else:
                kwargs = {**kwargs, "dropout_p": 0.0}
        elif func is torch.rand and _is_scalar(args, kwargs):
            return 1.0
        return func(*args, **kwargs)


def _is_scalar(args, kwargs):
    """torch.rand([]), torch.rand(()) or torch.rand(size=())."""
    size = args if args else (kwargs.get("size"),)
    return len(size) == 1 and isinstance(size[0], (list, tuple)) and len(size[0]) == 0
