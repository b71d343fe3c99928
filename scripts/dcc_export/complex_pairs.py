"""Rewrites a joint graph so that no value is complex: z of shape [...] becomes its pairs (real, imaginary), of shape [..., 2].

Rotary embeddings written with `torch.polar` and `view_as_complex` are the usual case. Then `view_as_complex` and `view_as_real` are no
operation at all, a product is four real products, and whatever only moves elements moves pairs. Rounding may differ from eager in the
last bit, since a complex product may be fused there. Buffers that are not saved may be complex.
"""

import torch
from torch._functorch._aot_autograd import descriptors

from . import fake_mode
from .errors import ExportError, first_line

aten = torch.ops.aten

_SAME = (aten.view_as_complex.default, aten.view_as_real.default, aten.resolve_conj.default, aten.detach.default, aten.alias.default)
_MOVES = (aten.clone.default, aten.neg.default)
# Operators with one dimension, and the place of that argument.
_BY_DIMENSION = {
    aten.unsqueeze.default: 1,
    aten.squeeze.dim: 1,
    aten.select.int: 1,
    aten.slice.Tensor: 1,
    aten.cat.default: 1,
    aten.stack.default: 1,
    aten.slice_backward.default: 2,
    aten.select_backward.default: 2,
}
_BY_DIMENSIONS = (aten.transpose.int, aten.permute.default, aten.sum.dim_IntList)
_BY_SIZES = (aten.view.default, aten._unsafe_view.default, aten.expand.default, aten.reshape.default)


def is_complex(node):
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor) and node.meta["val"].is_complex()


def remove_complex(joint, names):
    """Changes the GraphModule `joint` in place; it is left alone where nothing is complex. `names`: the user's names of parameters and
    buffers, by what the graph's descriptors call them."""
    graph = joint.graph
    if any(isinstance(n.meta.get("val"), torch.SymInt) for n in graph.nodes) and any(map(is_complex, graph.nodes)):
        raise ExportError("complex numbers with sizes bound at compile time cannot be exported; export with fixed sizes, or write with cos and sin")
    found = [n for n in graph.nodes if is_complex(n) or any(is_complex(i) for i in n.all_input_nodes)]
    pairs = {}
    for node in found:
        if isinstance(node.meta.get("desc"), descriptors.BufferAOTInput):
            pairs[node] = _buffer_of_pairs(joint, node)
            continue
        if node.op != "call_function":
            raise ExportError(
                f"{_called(node, names)} is a complex tensor that the step reads or returns; keep its real and imaginary parts as one real tensor "
                "(torch.view_as_real) and build the complex one in forward"
            )
        with graph.inserting_before(node):
            result = _Rewriter(graph, node, pairs).rewrite()
        if is_complex(node):
            pairs[node] = result
        else:
            node.replace_all_uses_with(result)
    for node in reversed(found):
        graph.erase_node(node)
    if found:
        _recompute_values(joint)


def _buffer_of_pairs(joint, node):
    """In the place of a complex buffer; ProgramBuilder writes its values as pairs."""
    with joint.graph.inserting_before(node):
        new = joint.graph.placeholder(node.name + "_pairs")
    with fake_mode.of(joint):
        new.meta = {**node.meta, "val": torch.view_as_real(node.meta["val"]).clone()}
    return new


def _called(node, names):
    what = getattr(node.meta.get("desc"), "target", None)
    return names.get(what, node.name)


def _recompute_values(joint):
    """Pairs may lie in memory in another order than complex numbers did, and readers of the archive trust the recorded strides."""
    nodes = joint.graph.nodes
    mode = fake_mode.of(joint)
    constants = {n: mode.from_tensor(getattr(joint, n.target), static_shapes=True) for n in nodes if n.op == "get_attr"}
    with mode:
        for node in nodes:
            if node.op == "call_function":
                args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: constants[n] if n in constants else n.meta["val"])
                try:
                    node.meta["val"] = node.target(*args, **kwargs)
                except RuntimeError as error:
                    raise ExportError(
                        f"{node.target} does not take the memory order of complex numbers written as pairs ({first_line(error)}); "
                        "write this part of the model with real tensors, for example cos and sin instead of torch.polar"
                    ) from error


class _Rewriter:
    """One node in terms of pairs."""

    def __init__(self, graph, node, pairs):
        self.graph, self.node, self.pairs = graph, node, pairs

    def rewrite(self):
        node, op = self.node, self.node.target
        if op in _SAME:
            return self._pairs(node.args[0])
        if op in (aten._to_copy.default, aten._conj_physical.default, aten._conj.default, aten.conj_physical.default):
            return self._conjugate(node.args[0]) if op is not aten._to_copy.default else self._unchanged_type()
        if op == aten.polar.default:
            return self._join(*(self._emit(aten.mul.Tensor, node.args[0], self._emit(part, node.args[1])) for part in (aten.cos.default, aten.sin.default)))
        if op == aten.complex.default:
            return self._join(*node.args)
        if op in (aten.mul.Tensor, aten.mul.Scalar):
            return self._product(*node.args)
        if op in (aten.add.Tensor, aten.sub.Tensor) and all(is_complex(a) for a in node.args[:2]):
            return self._emit(op, *map(self._pairs, node.args[:2]), **node.kwargs)
        if op in (aten.div.Tensor, aten.div.Scalar) and not is_complex(node.args[1]):
            return self._emit(op, self._pairs(node.args[0]), self._spread(node.args[1]))
        if op in _MOVES:
            return self._emit(op, self._pairs(node.args[0]), **node.kwargs)
        return self._moved(op)

    def _moved(self, op):
        if op not in (*_BY_SIZES, *_BY_DIMENSIONS, *_BY_DIMENSION):
            raise self._without_counterpart()
        args = list(self.node.args)
        first = args[0][0] if isinstance(args[0], (list, tuple)) else args[0]
        rank = first.meta["val"].dim()
        args[0] = [self._pairs(a) for a in args[0]] if isinstance(args[0], (list, tuple)) else self._pairs(args[0])
        if op in _BY_SIZES:
            args[1] = [*args[1], 2]
        elif op in _BY_DIMENSIONS:
            args = self._dimensions(op, args, rank)
        else:
            place = _BY_DIMENSION[op]
            grows = op in (aten.unsqueeze.default, aten.stack.default, aten.select_backward.default)
            if op in (aten.slice_backward.default, aten.select_backward.default):
                args[1] = [*args[1], 2]
            given = args[place] if len(args) > place else 0
            args[place : place + 1] = [given % (rank + grows)]
        return self._emit(op, *args, **self.node.kwargs)

    def _without_counterpart(self):
        return ExportError(
            f"{self.node.target} of complex numbers cannot be exported as pairs of real ones; write this part of the model with real tensors, "
            "for example cos and sin instead of torch.polar"
        )

    @staticmethod
    def _dimensions(op, args, rank):
        if op == aten.transpose.int:
            return [args[0], args[1] % rank, args[2] % rank]
        dims = [d % rank for d in args[1] or range(rank)]  # a sum over no dimension is over all
        return [args[0], dims + [rank] if op == aten.permute.default else dims, *args[2:]]

    def _unchanged_type(self):
        wanted = self.node.kwargs.get("dtype")
        if not is_complex(self.node.args[0]) or not is_complex(self.node) or self.node.meta["val"].dtype != self.node.args[0].meta["val"].dtype:
            raise ExportError(f"a conversion between complex and real numbers (to {wanted}) cannot be exported; use torch.view_as_real or .real")
        return self._pairs(self.node.args[0])

    def _product(self, left, right):
        if not is_complex(left):
            left, right = right, left
        if not is_complex(right):
            return self._emit(self.node.target, self._pairs(left), self._spread(right))
        (a, b), (c, d) = self._parts(left), self._parts(right)
        mul, sub, add = aten.mul.Tensor, aten.sub.Tensor, aten.add.Tensor
        return self._join(self._emit(sub, self._emit(mul, a, c), self._emit(mul, b, d)), self._emit(add, self._emit(mul, a, d), self._emit(mul, b, c)))

    def _conjugate(self, value):
        real, imaginary = self._parts(value)
        return self._join(real, self._emit(aten.neg.default, imaginary))

    def _spread(self, real):
        """A real factor of complex numbers, so that it meets both parts."""
        if not isinstance(real, torch.fx.Node) or real.meta["val"].dim() == 0:
            return real
        return self._emit(aten.unsqueeze.default, real, real.meta["val"].dim())

    def _parts(self, value):
        pairs = self._pairs(value)
        last = pairs.meta["val"].dim() - 1
        return [self._emit(aten.select.int, pairs, last, part) for part in (0, 1)]

    def _join(self, real, imaginary):
        """Pairs of two tensors of equal shape."""
        if real.meta["val"].shape != imaginary.meta["val"].shape:
            raise self._without_counterpart()
        last = real.meta["val"].dim()
        return self._emit(aten.cat.default, [self._emit(aten.unsqueeze.default, part, last) for part in (real, imaginary)], last)

    def _pairs(self, value):
        return self.pairs.get(value, value)

    def _emit(self, op, *args, **kwargs):
        """A new node with this node's marks; its value is computed with fake tensors."""
        new = self.graph.call_function(op, args, kwargs)
        fakes = torch.fx.map_arg((args, kwargs), lambda n: n.meta["val"])
        mode = self.node.meta["val"].fake_mode
        with mode:
            try:
                value = op(*fakes[0], **fakes[1])
            except RuntimeError as error:
                raise self._without_counterpart() from error
        if value.is_complex():  # such as a product with 1j
            raise self._without_counterpart()
        new.meta = {**self.node.meta, "val": value}
        return new
