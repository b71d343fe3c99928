"""Masks whose values are known while a module is traced: made in the forward of constants and buffers alone.

How many elements such a mask chooses is fixed, so a graph can choose them by number.
"""

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException)  # on values, as the trace says
_INDEXING = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)
_SELECTING = (torch.masked_select, torch.Tensor.masked_select)


class ConstantMasks(TorchFunctionMode):
    """Inside, masks of known values choose elements by number, and other functions of known values whose result the trace lacks give constants.

    buffers: {tensor: (name, value)}. used: names of those that have decided something.
    """

    def __init__(self, buffers):
        super().__init__()
        self.used = set()
        self._known = WeakTensorKeyDictionary()  # tensor -> (value, names of the buffers that it is made of, what .data sets)
        self._versions = {}  # memory of a value -> version of the tensors that have it; another one has been written with what is not known
        for tensor, (name, value) in buffers.items():
            if not isinstance(value, FakeTensor) and value.device.type == "cpu":
                with _disable_current_modes():
                    self._learn(tensor, value.clone(), {name})

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = _tensors((args, kwargs))
        if getattr(func, "__self__", None) is torch.Tensor.data:  # no version counts what is written there
            self._known.pop(tensors[0], None)
        known = [self._value(tensor) for tensor in tensors]
        if None in known:
            return self._choose(func, args, kwargs)
        names = set().union(*(found for _, found in known))
        values = [value for value, _ in known]
        versions = [tensor._version for tensor in tensors]
        try:
            result = func(*args, **kwargs)
        except DEPENDENT:
            computed = _computed(func, args, kwargs, values)
            if computed is None:
                raise
            self.used |= names
            return _constant(computed[0])
        results, written = _tensors(result), [tensor._version for tensor in tensors] != versions
        computed = _computed(func, args, kwargs, values) if results or written else None
        if computed is not None:
            for tensor, value in (*zip(tensors, values), *zip(results, _tensors(computed), strict=True)):
                self._learn(tensor, value, names)
        return result

    def _choose(self, func, args, kwargs):
        """The result of `func`, in which masks of known values choose elements of others by number."""
        if func in _INDEXING:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            args = (args[0], tuple(number for part in index for number in self._numbers(part)), *args[2:])
        elif func in _SELECTING and not kwargs and self._is_mask(args[1]):
            shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
            return args[0].expand(shape)[self._numbers(args[1], shape)]
        return func(*args, **kwargs)

    def _learn(self, tensor, value, names):
        self._known[tensor] = value, names, _data(tensor)
        self._versions[_memory(value)] = tensor._version

    def _value(self, tensor):
        """(value, names of buffers) of a tensor that is known, and that nothing else has written since; None of another."""
        value, names, data = self._known.get(tensor, (None, None, None))
        is_it = value is not None and data is _data(tensor) and self._versions[_memory(value)] == tensor._version
        return (value, names) if is_it else None

    def _is_mask(self, part):
        return isinstance(part, torch.Tensor) and part.dtype == torch.bool and part.dim() > 0 and self._value(part) is not None

    def _numbers(self, part, shape=None):
        """A part of an index; in the place of a mask, expanded to `shape`, the numbers of what it chooses along each dim."""
        if not self._is_mask(part):
            return (part,)
        value, names = self._value(part)
        self.used |= names
        with _disable_current_modes():
            found = value.expand(shape or value.shape).nonzero().T.tolist()
        return tuple(torch.tensor(places, dtype=torch.long) for places in found)


def _computed(func, args, kwargs, values):
    """[what `func` gives of known values]; None if it draws numbers."""
    values = iter(values)
    args, kwargs = tree_map(lambda leaf: next(values) if isinstance(leaf, torch.Tensor) else leaf, (args, kwargs))
    generator = torch.default_generator
    with _disable_current_modes(), torch.no_grad():
        before = generator.get_state()
        result = func(*args, **kwargs)
        if torch.equal(generator.get_state(), before):
            return [result]
        generator.set_state(before)
        return None


def _tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _data(tensor):
    return tensor.elem if isinstance(tensor, FunctionalTensor) else None


def _memory(value):
    return value.untyped_storage()._cdata


def _constant(value):
    return tree_map(lambda leaf: torch.tensor(leaf.tolist(), dtype=leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf, value)
