"""What each input of the step is: its role and the range to draw it from.

Roles and ranges the caller does not give are read from the graph: an input that indexes an
embedding takes values below its row count, an input that selects classes below their number.
"""

import torch

from .errors import ExportError
from .index_use import index_use

LABELS = ("same", "next")  # which tokens labels are; see labels.py
IGNORED = -100  # PyTorch's ignore_index unless a loss has another one
_COUNTING = ("mask", "attn_mask", "input_mask", "loss_mask")  # names of integers, ones where something counts
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
    bounded = role in ("float", "mask", "positions") or example.dtype == torch.bool or (use and use.of_all)
    guessed = not {"low", "high"} <= set(given) and not bounded
    if not {"low", "high"} <= set(given):
        flags = not use and _are_flags(name, example)
        given = {**dict(zip(("low", "high"), _range(role, example, 2 if flags else use and use.bound))), **given}
    described = {"name": name, "role": role, "low": given["low"], "high": given["high"]}
    if guessed:
        described["guessed"] = True
    if use and use.ignored not in (None, IGNORED):
        described["ignored"] = use.ignored
    if "labels" in given:
        if role != "labels" or given["labels"] not in LABELS:
            raise ExportError(f"input {name!r} is given labels {given['labels']!r} with role {role!r}; inputs with role 'labels' may have one of {LABELS}")
        described["labels"] = given["labels"]
    return described


def _guess_role(name, example, use):
    """A name alone says little: `start_positions` are labels, and `masked_tokens` are tokens.

    A token file fills a mask with ones, so only what counts where it is one is taken for a mask: True in PyTorch's own padding and attention
    masks leaves out. Other flags are classes, which a token file cannot fill.
    """
    if example.is_floating_point():
        return "float"
    if not use and _are_flags(name, example):
        return "mask" if "attention_mask" in name or (name in _COUNTING and example.dtype != torch.bool) else "class"
    if "position" in name and _counts_up(example):
        return "positions"
    if use and use.kind == "embedding":
        return "tokens"
    if use and use.kind == "class":
        return "labels" if example.dim() > 1 else "class"
    return "class"


def _are_flags(name, example):
    return example.dtype == torch.bool or ("mask" in name and bool(((example == 0) | (example == 1)).all()))


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
    if (low, high) == (0, 2) and like.dim() and like.shape[-1] > 1 and _are_flags(description["name"], like):
        return _draw_flags(like, generator)
    return torch.randint(int(low), int(high), like.shape, generator=generator).to(like.dtype)


def _draw_mask(like, generator):
    """Each row keeps a random prefix of at least half: a fully masked row has no meaning."""
    length = like.shape[-1]
    shape = like.shape[:-1] + (1,)
    kept = torch.randint(length // 2 + length % 2, length + 1, shape, generator=generator)
    return (torch.arange(length) < kept).to(like.dtype).expand(like.shape).clone()


def _draw_flags(like, generator):
    """Each row begins as that of `like`, at least for its half, and ends otherwise: a row that leaves out everything has no meaning, whichever value does."""
    length = like.shape[-1]
    begun = torch.randint(length // 2 + length % 2, length, like.shape[:-1] + (1,), generator=generator)
    first = like[..., :1].bool()
    return torch.where(torch.arange(length) < begun, first, ~first).to(like.dtype)
