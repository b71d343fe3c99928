"""Leaves the user's module as found, whatever an export does to it and however it ends.

`unchanged` records everything that can be reached from the module (attributes of modules and plain
objects, containers, closures, hooks, class attributes, tensors that are not registered, random
generators) and puts it back. Registered tensors are not copied: an export computes on other
tensors in their places (`places.py`).
"""

import collections
import contextlib
import functools
import itertools
import random
import types

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

_ATOMIC = (
    int,
    float,
    complex,
    bool,
    str,
    bytes,
    type(None),
    type(...),
    type(NotImplemented),
    range,
    slice,
    torch.dtype,
    torch.device,
    torch.Size,
    torch.layout,
    torch.memory_format,
    type,
    types.ModuleType,
    types.CodeType,
    types.BuiltinFunctionType,
    property,
)
# Plain objects of these packages are not followed: they lead out of the user's module.
_FOREIGN = ("builtins", "torch", "logging", "threading", "weakref", "ctypes", "typing")


@contextlib.contextmanager
def unchanged(module):
    """While open anything may happen to `module`; afterwards it, and every random state, is as before."""
    with unset_fake_temporarily():  # tensors with values stay what they are
        snapshot = _Snapshot(module)
    with _random_states():
        try:
            yield
        finally:
            with unset_fake_temporarily():
                snapshot.restore()


@contextlib.contextmanager
def _random_states():
    python, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(arrays)


class _Snapshot:
    """What is reachable from a module, with a way back for each mutable piece."""

    def __init__(self, module):
        self._back = []  # functions that restore one piece each
        self._seen = {}  # id -> object, kept alive so that its id is not used again
        self._registered = {id(t) for child in module.modules() for t in _registered(child)}
        self._queue = collections.deque([module])
        while self._queue:
            self._visit(self._queue.popleft())

    def restore(self):
        for back in reversed(self._back):
            back()

    def _visit(self, found):
        if isinstance(found, _ATOMIC) or id(found) in self._seen:
            return
        self._seen[id(found)] = found
        for kind, keep in _KEEPERS:
            if isinstance(found, kind):
                keep(self, found)
                return
        if hasattr(found, "bit_generator"):  # numpy's
            self._keep_state(found.bit_generator, "state")
        elif not is_foreign(type(found)):
            self._keep_attributes(found)

    def _keep_module(self, module):
        for table in (module._parameters, module._buffers):
            self._seen[id(table)] = table
            self._keep_items(table)
        for tensor in _registered(module):
            self._keep_tensor(tensor)
        for kind in type(module).__mro__:
            if not is_foreign(kind):
                self._keep_class(kind)
        self._keep_attributes(module)

    def _keep_attributes(self, found):
        for kind in type(found).__mro__:
            names = kind.__dict__.get("__slots__", ())
            for name in (names,) if isinstance(names, str) else names:
                slot = kind.__dict__.get(name)
                with contextlib.suppress(AttributeError):  # an empty slot, or a mangled name
                    self._keep_slot(found, slot, slot.__get__(found))
        if isinstance(getattr(found, "__dict__", None), dict):
            self._keep_dict(found.__dict__)

    def _keep_slot(self, found, slot, value):
        self._back.append(lambda: slot.__set__(found, value))
        self._queue.append(value)

    def _keep_class(self, kind):
        if id(kind) in self._seen:
            return
        self._seen[id(kind)] = kind
        before = _own_attributes(kind)
        self._queue.extend(v for v in before.values() if isinstance(v, (dict, list, set, torch.Tensor)))

        def back():
            now = _own_attributes(kind)
            for name in now.keys() - before.keys():
                delattr(kind, name)
            for name, value in before.items():
                if now.get(name, back) is not value:
                    setattr(kind, name, value)

        self._back.append(back)

    def _keep_dict(self, found):
        self._keep_items(found)
        self._queue.extend(found.values())

    def _keep_items(self, found):
        before = list(found.items())

        def back():
            if not _same((x for item in found.items() for x in item), (x for item in before for x in item)):
                found.clear()
                found.update(before)

        self._back.append(back)

    def _keep_list(self, found):
        before = list(found)
        self._queue.extend(v for v in before if not isinstance(v, _ATOMIC))

        def back():
            if not _same(found, before):
                found.clear()
                found.extend(before)

        self._back.append(back)

    def _keep_set(self, found):
        before = set(found)

        def back():
            found.clear()
            found.update(before)

        self._back.append(back)

    def _walk(self, found):
        self._queue.extend(found)

    def _walk_method(self, found):
        self._queue.extend((found.__self__, found.__func__))

    def _walk_partial(self, found):
        self._queue.extend((found.func, *found.args, *found.keywords.values()))

    def _keep_function(self, found):
        self._keep_dict(found.__dict__)
        self._queue.extend(found.__defaults__ or ())
        for cell in found.__closure__ or ():
            with contextlib.suppress(ValueError):  # an empty cell
                self._keep_state(cell, "cell_contents")
                self._queue.append(cell.cell_contents)

    def _keep_state(self, found, name):
        value = getattr(found, name)
        self._back.append(lambda: setattr(found, name, value))

    def _keep_tensor(self, tensor):
        """What a tensor has but its values."""
        self._keep_dict(tensor.__dict__)
        hooks = tensor._backward_hooks
        if hooks is not None:
            self._keep_dict(hooks)
        needs_grad, grad = tensor.requires_grad, tensor.grad if tensor.is_leaf else None

        def back():
            if tensor._backward_hooks is not hooks:
                tensor._backward_hooks = hooks
            if tensor.is_leaf and tensor.grad is not grad:
                tensor.grad = grad
            if tensor.is_leaf and tensor.requires_grad != needs_grad:
                tensor.requires_grad_(needs_grad)

        self._back.append(back)

    def _keep_plain_tensor(self, tensor):
        if id(tensor) not in self._registered:
            self._keep_tensor(tensor)
        if tensor.device.type == "meta" or isinstance(tensor, FakeTensor) or tensor.layout is not torch.strided:
            return
        data = tensor.detach()
        for dim, stride in enumerate(data.stride()):
            if stride == 0:  # an element that counts several times is written once
                data = data.narrow(dim, 0, min(1, data.shape[dim]))
        values = data.clone()

        def back():
            if not torch.equal(data, values):
                with torch.no_grad():
                    data.copy_(values)

        self._back.append(back)

    def _keep_array(self, array):
        if array.flags.writeable and not array.dtype.hasobject:
            values = array.copy()
            self._back.append(lambda: np.copyto(array, values))

    def _keep_generator(self, generator):
        state = generator.get_state()
        self._back.append(lambda: generator.set_state(state))

    def _keep_python_generator(self, generator):
        state = generator.getstate()
        self._back.append(lambda: generator.setstate(state))


_KEEPERS = (
    (torch.nn.Module, _Snapshot._keep_module),
    (torch.Tensor, _Snapshot._keep_plain_tensor),
    (dict, _Snapshot._keep_dict),
    ((list, collections.deque), _Snapshot._keep_list),
    (set, _Snapshot._keep_set),
    ((tuple, frozenset), _Snapshot._walk),
    (types.FunctionType, _Snapshot._keep_function),
    (types.MethodType, _Snapshot._walk_method),
    (functools.partial, _Snapshot._walk_partial),
    (torch.Generator, _Snapshot._keep_generator),
    (random.Random, _Snapshot._keep_python_generator),
    (np.ndarray, _Snapshot._keep_array),
)


def _registered(module):
    """The parameters and buffers of `module` itself."""
    return [t for table in (module._parameters, module._buffers) for t in table.values() if t is not None]


def _own_attributes(kind):
    return {k: v for k, v in vars(kind).items() if not k.startswith("__")}


def is_foreign(kind):
    return kind.__module__.partition(".")[0] in _FOREIGN


def _same(values, others):
    """The same objects in the same order."""
    missing = object()
    pairs = itertools.zip_longest(values, others, fillvalue=missing)
    return all(a is b for a, b in pairs)
