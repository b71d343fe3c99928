"""What each input of the step is: its role and the range to draw it from.

Roles and ranges the caller does not give are read from the graph: an input that indexes an
embedding takes values below its row count, an input that selects classes below their number.
"""

import torch

from .errors import ExportError
from .index_use import index_use

LABELS = ("same", "next")  # which tokens labels are; see labels.py
ROLES = ("tokens", "labels", "mask", "positions", "class", "float")


def describe_inputs(graph, names, examples, roles):
    """Returns the "inputs" list of dcc.json. `roles`: {name: role or {"role", "low", "high", "labels"}}."""
    roles = dict(roles or {})
    unknown = sorted(set(roles) - set(names))
    if unknown:
        raise ExportError(f"roles given for unknown inputs {unknown}; the inputs are {list(names)}")
    nodes = {n.name: n for n in graph.nodes if n.op == "placeholder"}
    return [_describe(name, nodes[name], example, roles.get(name, {})) for name, example in zip(names, examples, strict=True)]


def _describe(name, node, example, given):
    given = {"role": given} if isinstance(given, str) else dict(given)
    extra = sorted(set(given) - {"role", "low", "high", "labels"})
    if extra:
        raise ExportError(f"role of input {name!r} has unknown keys {extra}")
    use = None if example.is_floating_point() else index_use(node)
    role = given.get("role") or _guess_role(name, example, use)
    if role not in ROLES:
        raise ExportError(f"role of input {name!r} is {role!r}; it must be one of {ROLES}")
    guessed = not {"low", "high"} <= set(given) and role not in ("float", "mask", "positions") and not (use and use.of_all)
    if not {"low", "high"} <= set(given):
        range_ = _with_ignored(name, *_range(role, example, use and use.bound), use and use.ignored)
        given = {**dict(zip(("low", "high"), range_)), **given}
    described = {"name": name, "role": role, "low": given["low"], "high": given["high"]}
    if guessed:
        described["guessed"] = True
    if "labels" in given:
        if role != "labels" or given["labels"] not in LABELS:
            raise ExportError(f"input {name!r} is given labels {given['labels']!r} with role {role!r}; inputs with role 'labels' may have one of {LABELS}")
        described["labels"] = given["labels"]
    return described


def _guess_role(name, example, use):
    """A name alone says little: `start_positions` are labels, and `masked_tokens` are tokens."""
    if example.is_floating_point():
        return "float"
    if "mask" in name and not use and bool(((example == 0) | (example == 1)).all()):
        return "mask"
    if "position" in name and _counts_up(example):
        return "positions"
    if use and use.kind == "embedding":
        return "tokens"
    if use and use.kind == "class":
        return "labels" if example.dim() > 1 else "class"
    return "mask" if example.dtype == torch.bool else "class"


def _counts_up(example):
    """Whether every row of the example is 0, 1, 2, ..."""
    length = example.shape[-1] if example.dim() else 0
    return length > 1 and bool((example == torch.arange(length)).all())


def _range(role, example, bound):
    if role == "float":
        return _float_range(example)
    if role == "mask":
        return 0, 2
    if bound is not None:
        return 0, bound
    return 0, int(example.max()) + 1 if example.numel() else 1


def _float_range(example):
    """Rounded outwards to tenths, so that the range does not hang on the drawn sample. Infinities, as masks have them, say nothing."""
    finite = example[example.isfinite()]
    low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 0.0)
    if 0.0 <= low and high <= 1.0:
        return 0.0, 1.0
    edge = round(max(abs(low), abs(high)) + 0.05, 1)
    return -edge, edge


def _with_ignored(name, low, high, ignored):
    """The range, widened by a label that the loss ignores. A run lets -100, torch's default, through."""
    if ignored is None or ignored == -100 or low <= ignored < high:
        return low, high
    if ignored not in (low - 1, high):
        raise ExportError(
            f"the loss ignores label {ignored} of input {name!r}, far from its classes {low} to {high - 1}, so a "
            "run could not tell ignored labels from wrong ones; use ignore_index=-100, or -1"
        )
    return min(low, ignored), max(high, ignored + 1)


def draw(description, like, generator):
    """A fresh sample for one described input, shaped and typed as `like`."""
    low, high = description["low"], description["high"]
    if like.is_floating_point():
        sample = torch.rand(like.shape, generator=generator, dtype=torch.float32)
        return (sample * (high - low) + low).to(like.dtype)
    if description["role"] == "mask":
        return _draw_mask(like, generator)
    if description["role"] == "positions":
        return like.clone()
    return torch.randint(int(low), int(high), like.shape, generator=generator).to(like.dtype)


def _draw_mask(like, generator):
    """Each row keeps a random prefix of at least half: a fully masked row has no meaning."""
    length = like.shape[-1]
    shape = like.shape[:-1] + (1,)
    kept = torch.randint(length // 2 + length % 2, length + 1, shape, generator=generator)
    return (torch.arange(length) < kept).to(like.dtype).expand(like.shape).clone()
