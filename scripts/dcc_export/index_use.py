"""What an integer input indexes, read from the graph: rows of an embedding, or classes of a loss."""

import dataclasses

import torch

aten = torch.ops.aten

# Operators that give parts of an input, and those through which an index stays an index.
_PARTS = {aten.slice.Tensor, aten.select.int}
_TRANSPARENT = _PARTS | {
    aten.view.default,
    aten._unsafe_view.default,
    aten.constant_pad_nd.default,
    aten._to_copy.default,
    aten.clone.default,
    aten.unsqueeze.default,
    aten.expand.default,
}


@dataclasses.dataclass
class IndexUse:
    kind: str  # "embedding" or "class"
    bound: int  # exclusive
    ignored: int | None = None  # the loss's ignore_index
    of_all: bool = True  # every value of the input is below the bound


def index_use(node):
    """Follows an integer input to the embeddings and losses that it indexes; None if there are none.

    Parts of the input (columns) may have bounds of their own, or none: the least one is returned, as not `of_all`.
    """
    uses = {None: []}  # the operator that takes a part -> what the part indexes; None: the whole input
    queue, seen = [(node, None)], set()
    while queue:
        current, part = queue.pop(0)
        for user in current.users:
            if user in seen or user.op != "call_function":
                continue
            seen.add(user)
            if use := _direct_use(current, user):
                uses[part].append(use)
            elif user.target in _TRANSPARENT:
                inner = user if part is None and _takes_part(current, user) else part
                uses.setdefault(inner, [])
                queue.append((user, inner))
    if whole := uses.pop(None):
        return _least(whole)
    parts = [_least(found) for found in uses.values()]
    use = _least([part for part in parts if part])
    if use and any(part is None or part.bound != use.bound for part in parts):
        use = dataclasses.replace(use, of_all=False)
    return use


def _least(uses):
    return min(uses, key=lambda use: use.bound, default=None)


def _takes_part(current, user):
    return user.target in _PARTS and _shape(user) != _shape(current)


def _direct_use(current, user):
    if user.target == aten.embedding.default and user.args[1] is current:
        return IndexUse("embedding", int(_shape(user.args[0])[0]))
    if user.target == aten.nll_loss_forward.default and user.args[1] is current:
        return IndexUse("class", int(_shape(user.args[0])[-1]), user.args[4])
    if user.target == aten.nll_loss2d_forward.default and user.args[1] is current:
        return IndexUse("class", int(_shape(user.args[0])[1]), user.args[4])
    if user.target == aten.eq.Tensor and user.args[0] is current:
        return _one_hot(current, user)
    return None


def _one_hot(current, user):
    """one_hot(x, n) is traced as (x.unsqueeze(-1) == arange(n)).to(int64), without its check of x."""
    row = user.args[1]
    from_0 = row.target == aten.arange.default or (row.target == aten.arange.start_step and row.args[0] == 0 and row.args[2:] in ((), (1,)))
    to_integer = all(u.target == aten._to_copy.default and u.kwargs.get("dtype") == torch.int64 for u in user.users)
    if from_0 and to_integer and current.target == aten.unsqueeze.default and _shape(current)[-1] == 1:
        return IndexUse("class", int(_shape(row)[0]))
    return None


def _shape(node):
    return node.meta["val"].shape
