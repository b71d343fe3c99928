"""How each parameter starts: the rule, so that a run can draw it without stored weights.

`InitializerRecorder` watches the calls of torch.nn.init (and of transformers' own versions) while a
model is built. For a module built earlier the documented defaults of the torch.nn types are the
candidates. Either way the values decide (`observed.py`): a rule that they contradict is dropped, and
one that they show takes its place. A tensor without a rule is left out.

"zero_row" in a rule names the one row that is zeros while all others follow the rule: an embedding's padding.
"""

import math
import sys

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from .observed import contradicts, derive, lone_zero_row, without_row
from .places import Places

_BATCH_NORM = (("running_mean", 0), ("running_var", 1), ("num_batches_tracked", 0))

# The functions watched, in torch.nn.init and in transformers.
_NAMES = (
    "normal_",
    "trunc_normal_",
    "uniform_",
    "constant_",
    "zeros_",
    "ones_",
    "kaiming_uniform_",
    "kaiming_normal_",
    "xavier_uniform_",
    "xavier_normal_",
)


def _normal(std, mean=0.0):
    return {"kind": "normal", "mean": float(mean), "std": float(std)}


def _uniform(low, high):
    return {"kind": "uniform", "low": float(low), "high": float(high)}


def _constant(value):
    if value == 0:
        return {"kind": "zeros"}
    return {"kind": "ones"} if value == 1 else {"kind": "constant", "value": float(value)}


def _fans(tensor):
    return nn.init._calculate_fan_in_and_fan_out(tensor)


def _kaiming_std(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", **_):
    fan_in, fan_out = _fans(tensor)
    gain = nn.init.calculate_gain(nonlinearity, a)
    return gain / math.sqrt(fan_in if mode == "fan_in" else fan_out)


def _xavier_std(tensor, gain=1.0, **_):
    return gain * math.sqrt(2.0 / sum(_fans(tensor)))


def _trunc_normal(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, **_):
    """Only a cut beyond three deviations is a normal for our purpose; others have no rule."""
    if min(mean - a, b - mean) < 3 * std:
        return None
    return _normal(std, mean)


_RULES = {
    "normal_": lambda t, mean=0.0, std=1.0, **_: _normal(std, mean),
    "trunc_normal_": _trunc_normal,
    "uniform_": lambda t, a=0.0, b=1.0, **_: _uniform(a, b),
    "constant_": lambda t, val, **_: _constant(val),
    "zeros_": lambda t, **_: _constant(0),
    "ones_": lambda t, **_: _constant(1),
    "kaiming_uniform_": lambda t, *p, **k: _symmetric(math.sqrt(3) * _kaiming_std(t, *p, **k)),
    "kaiming_normal_": lambda t, *p, **k: _normal(_kaiming_std(t, *p, **k)),
    "xavier_uniform_": lambda t, *p, **k: _symmetric(math.sqrt(3) * _xavier_std(t, *p, **k)),
    "xavier_normal_": lambda t, *p, **k: _normal(_xavier_std(t, *p, **k)),
}


def _symmetric(bound):
    return _uniform(-bound, bound)


class InitializerRecorder:
    """Context manager; inside it, build the model. `rules(model)` then gives {fqn: rule}."""

    def __init__(self):
        self._last = {}  # id -> (tensor kept alive, rule or None)
        self._undo = []

    def __enter__(self):
        for table, name in self._targets():
            original = table[name]
            table[name] = self._watched(name, original)
            self._undo.append((table, name, original))
        return self

    def __exit__(self, *_):
        for table, name, original in reversed(self._undo):
            table[name] = original
        self._undo.clear()

    @staticmethod
    def _targets():
        targets = [(vars(nn.init), name) for name in _NAMES]
        try:
            from transformers import initialization
        except ImportError:
            return targets
        return targets + [(initialization.TORCH_INIT_FUNCTIONS, name) for name in _NAMES]

    def _watched(self, name, original):
        def watched(tensor, *args, **kwargs):
            rule = _RULES[name](tensor, *args, **kwargs)
            self._last[id(tensor)] = (tensor, rule)
            if rule == _constant(0):
                self._zero_row_of(tensor)
            return original(tensor, *args, **kwargs)

        return watched

    def _zero_row_of(self, view):
        """If `view` is a row of a tensor that has a rule, that rule leaves the row zero."""
        base, rule = self._last.get(id(view._base), (None, None))
        if rule is None or base.dim() < 2 or view.shape != base.shape[1:]:
            return
        row = (view.storage_offset() - base.storage_offset()) // base.stride(0)
        # A rule says no more than one row.
        self._last[id(base)] = (base, {**rule, "zero_row": row} if rule.get("zero_row", row) == row else None)

    def rules(self, module):
        found = {}
        for fqn, tensor in list(module.named_parameters()) + list(module.named_buffers()):
            rule = self._last.get(id(tensor), (None, None))[1]
            if rule is not None:
                found[fqn] = rule
        return {**_batch_norm_buffers(module), **found}


def _batch_norm_buffers(module):
    found = {}
    for prefix, child in module.named_modules():
        if isinstance(child, nn.modules.batchnorm._NormBase):
            for name, value in _BATCH_NORM:
                if getattr(child, name, None) is not None:
                    found[f"{prefix}.{name}" if prefix else name] = _constant(value)
    return found


def find_rules(module, canonical):
    """{name: rule} of the registered tensors of `module` that have one.

    canonical: maps a name in `module` to the name to use, the same one for tied tensors. Tensors
    without values (fake or meta) keep what the documentation says.
    """
    candidates = {}
    own_first = sorted(_default_rules(module).items(), key=lambda item: canonical(item[0]) != item[0])
    for name, rule in own_first:
        candidates.setdefault(canonical(name), []).append(rule)
    places = Places(module)
    found = {}
    for name, tensor in places.tensors().items():
        rule = _rule_of(tensor, candidates.get(canonical(name), []), name in places.parameters)
        if rule is not None:
            found[canonical(name)] = rule
    return found


def _rule_of(tensor, candidates, is_parameter):
    if tensor.device.type == "meta" or isinstance(tensor, FakeTensor):
        return candidates[0] if candidates else None
    plain = [{k: v for k, v in rule.items() if k != "zero_row"} for rule in candidates]
    found = _shown(tensor, [*candidates, *plain], is_parameter)
    row = lone_zero_row(tensor) if found is None else None
    if row is None:
        return found
    found = _shown(without_row(tensor, row), plain, is_parameter)
    return found and {**found, "zero_row": row}


def _shown(tensor, candidates, is_parameter):
    """The candidate that the values do not refute, else the rule that they show; None if neither."""
    for rule in candidates:
        if not contradicts(tensor, rule):
            return rule
    rule = derive(tensor)
    # A buffer is computed, not drawn: only what is exact counts.
    exact = rule is None or rule["kind"] not in ("normal", "uniform")
    return rule if is_parameter or exact else None


def _default_rules(module):
    """Rules for a module that was built earlier, by fqn."""
    transformers_model = _transformers_model(module)
    if transformers_model is None:
        return _torch_defaults(module)
    prefix, model = transformers_model
    inside = f"{prefix}." if prefix else ""
    rules = {k: v for k, v in _torch_defaults(module).items() if not k.startswith(inside)}
    rules.update((inside + k, v) for k, v in _twin_rules(model).items())
    return rules


def _twin_rules(model):
    """Builds the same model again on the meta device and watches; {} if that is impossible.

    Nothing is tied in it: transformers draws a head's weight before it ties it, so that the rule of the embedding remains, padding row included.
    """
    untied = type(type(model).__name__, (type(model),), {"__module__": type(model).__module__, "tie_weights": lambda *_, **__: None})
    with InitializerRecorder() as recorder, torch.device("meta"):
        try:
            twin = untied(model.config)
        except TypeError:  # a subclass with its own constructor
            return {}
        twin.initialize_weights()  # transformers skips this by itself on the meta device
    return recorder.rules(twin)


def _transformers_model(module):
    """The outermost transformers model inside `module`, as (fqn, model)."""
    if "transformers" not in sys.modules:
        return None
    from transformers import PreTrainedModel

    for fqn, child in module.named_modules():
        if isinstance(child, PreTrainedModel):
            return fqn, child
    return None


def _torch_defaults(module):
    found = _batch_norm_buffers(module)
    for prefix, child in module.named_modules():
        for name, rule in _defaults_of(child).items():
            found[f"{prefix}.{name}" if prefix else name] = rule
    return found


def _defaults_of(module):
    """The documented initialisation of the torch.nn types; exact types only."""
    kind = type(module)
    if kind in (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d):
        fan_in = module.weight[0].numel()
        bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
        rules = {"weight": _symmetric(bound), "bias": _symmetric(bound)}
    elif kind is nn.Embedding:
        padding = {} if module.padding_idx is None else {"zero_row": module.padding_idx}
        rules = {"weight": {**_normal(1.0), **padding}}
    elif kind in (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm) or isinstance(module, nn.modules.batchnorm._NormBase):
        rules = {"weight": _constant(1), "bias": _constant(0)}
    else:
        return {}
    return {k: v for k, v in rules.items() if getattr(module, k, None) is not None}
