"""Where a module keeps its parameters and buffers, and putting other tensors there for a while.

A tensor under several names, or in a submodule registered twice, is one entry: its first name in
module order. Its other places always hold the same tensor. A frozen parameter that the forward
writes to, as a teacher that follows its student, is a buffer (`StepModule.written_parameters`).
"""

import contextlib

import torch


class Places:
    """The parameters and buffers of a module, each once, with every place that holds it."""

    def __init__(self, module):
        self.parameters = {}  # first name -> tensor, in module order
        self.buffers = {}
        self._tables = {}  # first name -> [(table, key)]
        for tensors, table_of in ((self.parameters, _parameter_table), (self.buffers, _buffer_table)):
            first = {}
            for prefix, child in module.named_modules():
                table = table_of(child)
                for key, tensor in table.items():
                    if tensor is None:
                        continue
                    name = first.setdefault(id(tensor), f"{prefix}.{key}" if prefix else key)
                    tensors[name] = tensor
                    self._tables.setdefault(name, []).append((table, key))
        for name in getattr(module, "written_parameters", ()):
            self.buffers[name] = self.parameters.pop(name)

    def tensors(self):
        """{first name: tensor}: parameters, then buffers."""
        return {**self.parameters, **self.buffers}

    @contextlib.contextmanager
    def holding(self, others):
        """While open, every place of a name in `others` {first name: tensor} holds that tensor."""
        found = []
        try:
            for name, other in others.items():
                for table, key in self._tables[name]:
                    found.append((table, key, table[key]))
                    table[key] = other
            yield
        finally:
            for table, key, tensor in reversed(found):
                table[key] = tensor

    @contextlib.contextmanager
    def contiguous(self):
        """While open, every tensor lies in memory in the order of its dims, as archives hold it, and is still the same object."""
        found = {name: tensor.data for name, tensor in self.tensors().items() if not tensor.is_contiguous()}
        try:
            for name, data in found.items():
                self.tensors()[name].data = data.contiguous()
            yield
        finally:
            for name, data in found.items():
                self.tensors()[name].data = data

    def replaced(self, others):
        """Yields (name, tensor now there) of places that no longer hold what `others` put there."""
        for name, other in others.items():
            for table, key in self._tables[name]:
                if table.get(key) is not other:
                    yield name, table.get(key)
                    break


def copies(tensors):
    """{name: copy} of {name: tensor}; a parameter's copy is a parameter with its requires_grad."""
    return {name: _copy(tensor) for name, tensor in tensors.items()}


def _copy(tensor):
    fresh = tensor.detach().clone()
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(fresh, requires_grad=tensor.requires_grad)
    return fresh.requires_grad_(tensor.requires_grad)


def _parameter_table(module):
    return module._parameters


def _buffer_table(module):
    return module._buffers
