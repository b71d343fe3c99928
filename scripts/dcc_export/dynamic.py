"""Dims whose size is given when the plan is compiled: examples with symbolic sizes, and what the archive says about them.

A `FakeTensorMode` with a `ShapeEnv` gives the named dims of the examples symbols; all else stays as it is.
"""

import traceback

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from .errors import USAGE, ExportError, own_line


class DynamicDims:
    """`shapes`: {input: {dim: name}}. Equal names are one dim."""

    def __init__(self, shapes, names, examples):
        self.names, self.examples = names, examples
        self.places = {}  # name -> [(input index, dim)]
        for name, dims in shapes.items():
            if name not in names:
                raise ExportError(f"dynamic_shapes names {name!r}, which is no input; they are {list(names)}")
            for dim, label in dims.items():
                index = names.index(name)
                if not 0 <= dim < examples[index].dim():
                    raise ExportError(f"dynamic_shapes: input {name!r} has no dim {dim}")
                if examples[index].shape[dim] < 2:
                    raise ExportError(
                        f"dynamic_shapes: dim {label!r} of input {name!r} has {examples[index].shape[dim]} elements; give an example of at least 2"
                    )
                self.places.setdefault(str(label), []).append((index, dim))
        for label, places in self.places.items():
            if len({examples[i].shape[d] for i, d in places}) != 1:
                raise ExportError(f"dynamic_shapes: dim {label!r} has several sizes in the example inputs")

    def fake_examples(self):
        """The examples with symbolic sizes; to be traced in the mode of their fake tensors."""
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

        self.env = ShapeEnv(allow_dynamic_output_shape_ops=False)
        mode = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        self.fakes = []
        for index, example in enumerate(self.examples):
            chosen = {d for places in self.places.values() for i, d in places if i == index}
            sizes = [DimDynamic.DYNAMIC if d in chosen else DimDynamic.STATIC for d in range(example.dim())]
            context = StatelessSymbolicContext(dynamic_sizes=sizes)
            self.fakes.append(mode.from_tensor(example, symbolic_context=context, source=ConstantSource(f"L['{self.names[index]}']")))
        for places in self.places.values():
            first = self._size(places[0])
            for place in places[1:]:
                torch._check(self._size(place) == first)
        return self.fakes

    def _size(self, place):
        return self.fakes[place[0]].shape[place[1]]

    def symbols(self):
        """{name: symbol}; a dim that the model fixed is refused."""
        found = {}
        for label, places in self.places.items():
            size = self._size(places[0])
            expression = self.env.replace(size.node.expr) if isinstance(size, torch.SymInt) else size
            if not getattr(expression, "is_Symbol", False):
                raise ExportError(
                    f"dim {label!r} cannot be dynamic: the model needs it to be {expression}{self._where_fixed(size)}; "
                    "len(), int(), loops over a dim and numbers in the place of its size fix it, .shape does not: write that, or leave the dim out"
                )
            found[label] = expression
        return found

    def _where_fixed(self, size):
        """The line of the model that fixed a size, as `own_line` has it; empty where PyTorch's own code did."""
        symbols = size.node._expr.free_symbols if isinstance(size, torch.SymInt) else set()
        fixed = [guard.sloc.framework_loc for guard in self.env.guards if guard.expr.free_symbols & symbols][-1:]
        return own_line([place for place in fixed if isinstance(place, traceback.FrameSummary)])

    def ranges(self):
        """{symbol: ValueRanges} of the dims."""
        return {s: self.env.var_to_range[s] for s in self.symbols().values()}

    def description(self):
        """What extra/dcc.json holds about them."""
        import sympy

        guards = {sympy.srepr(self.env.replace(g.expr)) for g in self.env.guards} - {"true"}
        return {"dims": {k: str(v) for k, v in self.symbols().items()}, "guards": sorted(guards)}

    def other_examples(self):
        """The examples at other sizes that ranges and conditions allow, to check the archive with; a
        dim without such a size keeps its own."""
        symbols = self.symbols()
        sizes = {label: self.examples[i].shape[d] for label, ((i, d), *_) in self.places.items()}
        for label, size in sizes.items():
            candidates = (size + size // 2 + 1, *range(size + 1, 3 * size + 1), *range(2, size))
            allowed = (n for n in candidates if self._allows({symbols[k]: v for k, v in {**sizes, label: n}.items()}))
            sizes[label] = next(allowed, size)
        others = list(self.examples)
        for label, places in self.places.items():
            for index, dim in places:
                kept = torch.arange(sizes[label]) % others[index].shape[dim]
                others[index] = others[index].index_select(dim, kept)
        return others

    def _allows(self, sizes):
        if any(n not in self.env.var_to_range[symbol] for symbol, n in sizes.items()):
            return False
        return all(self.env.replace(guard.expr).xreplace(sizes) != False for guard in self.env.guards)  # noqa: E712 (false of sympy)


def named_dims(options, inputs):
    """`--dynamic` as {input: {dim: name}}: "batch" is the first dim of every input, "seq" any other that is as long as a row."""
    wanted = [name for name in options.dynamic.split(",") if name]
    for name in wanted:
        if name not in ("batch", "seq"):
            raise ExportError(f"--dynamic {options.dynamic}: {name!r} is neither batch nor seq", USAGE)
    shapes = {}
    for name, value in inputs.items():
        dims = {0: "batch"} if "batch" in wanted and value.dim() and value.shape[0] == options.batch else {}
        if "seq" in wanted:
            dims.update({d: "seq" for d in range(1, value.dim()) if value.shape[d] == options.seq})
        shapes.update({name: dims} if dims else {})
    missing = [w for w in wanted if not any(w in dims.values() for dims in shapes.values())]
    if missing:
        raise ExportError(f"--dynamic {missing[0]}: no input of this model has such a dim", USAGE)
    return shapes
