"""An export leaves the user's module as found: whatever the module does, and wherever the export fails.

build/venv/bin/python tests/e2e/export_guard_test.py
"""

import os
import random
import unittest

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrizations, weight_norm

from export_case import ExportTest, description

from dcc_export import ExportError, export_train_step


def seen(found, memo):
    """Everything that can be seen of `found`, as nested tuples: identities, bytes, flags."""
    if isinstance(found, (int, float, str, bytes, bool, type(None), torch.dtype, torch.device)):
        return found
    if id(found) in memo:
        return ("again", id(found))
    memo[id(found)] = found
    if isinstance(found, torch.Tensor):
        grad = seen(found.grad, memo) if found.is_leaf else None
        hooks = tuple(found._backward_hooks or ())
        return (id(found), type(found), found.detach().numpy().tobytes(), found.requires_grad, grad, hooks, tuple(vars(found)))
    if isinstance(found, np.ndarray):
        return (id(found), found.tobytes())
    if isinstance(found, torch.Generator):
        return found.get_state().numpy().tobytes()
    if isinstance(found, random.Random):
        return found.getstate()
    if isinstance(found, dict):
        return (id(found), type(found), tuple((k, seen(v, memo)) for k, v in found.items()))
    if isinstance(found, (list, tuple)):
        return (id(found), tuple(seen(v, memo) for v in found))
    if isinstance(found, (set, frozenset)):
        return (id(found), frozenset(found))
    if callable(found) and getattr(found, "__closure__", None):
        return (id(found), tuple(seen(c.cell_contents, memo) for c in found.__closure__))
    if type(found).__module__.startswith(("torch.nn", __name__)) and hasattr(found, "__dict__"):
        own = [(k, v) for k, v in vars(type(found)).items() if not k.startswith("__") and isinstance(v, (int, list))]
        return (id(found), seen(vars(found), memo), tuple((k, seen(v, {})) for k, v in own))
    return id(found)


def everything(module):
    randomness = (torch.get_rng_state().numpy().tobytes(), random.getstate(), np.random.get_state()[1].tobytes())
    return seen(module, {}), randomness, torch.is_grad_enabled(), torch._C._get_mkldnn_enabled()


def difference(before, after, path=""):
    """Where two results of `everything` first differ; None if they do not."""
    if isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
        named = len(before) == 2 and isinstance(before[0], str)
        places = (difference(b, a, f"{path}/{before[0] if named else i}") for i, (b, a) in enumerate(zip(before, after)))
        return next((p for p in places if p is not None), None)
    return None if before == after else f"{path}: {str(before)[:200]} became {str(after)[:200]}"


class Base(nn.Module):
    """A regression whose subclasses do something to themselves in `act`."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 1)
        self.prepare()

    def prepare(self):
        pass

    def act(self, h):
        return h.relu()

    def forward(self, x, y):
        return nn.functional.mse_loss(self.fc2(self.act(self.fc1(x))), y)


class Tied(Base):
    def prepare(self):
        self.back = nn.Linear(8, 4)
        self.back.weight = nn.Parameter(torch.randn(4, 8))
        self.third = nn.Linear(8, 4)
        self.third.weight = self.back.weight

    def act(self, h):
        return self.fc1(self.back(h) + self.third(h))


class SharedModule(Base):
    def prepare(self):
        self.again = self.fc1
        self.norm = nn.BatchNorm1d(8)
        self.norm_too = self.norm

    def act(self, h):
        return self.norm_too(self.norm(self.again(h[:, :4])))


class Recurrent(Base):
    def prepare(self):
        self.rnn = nn.LSTM(8, 8)

    def act(self, h):
        return self.rnn(h)[0]


class Norms(Base):
    def prepare(self):
        self.fc1 = weight_norm(self.fc1)  # keeps a non-leaf tensor as an attribute
        self.fc2 = parametrizations.spectral_norm(self.fc2)  # updates vectors while it computes
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.1)

    def act(self, h):
        return self.drop(self.norm(h))


class Cell:
    def __init__(self):
        self.count, self.seen = 0, {"shapes": []}


class Remembers(Base):
    """Caches, counters, lists, objects, generators and class attributes, all written in forward."""

    calls = 0
    shapes = []

    def prepare(self):
        self.history, self.names, self.cell, self.pair = [], {"a"}, Cell(), ([1], {"k": [2]})
        self.own, self.generator = random.Random(3), torch.Generator().manual_seed(4)
        self.array = np.arange(3.0)
        total = 0

        def count():
            nonlocal total
            total += 1
            return total

        self.count = count

    def act(self, h):
        type(self).calls += 1
        self.shapes.append(h.shape)
        self.cached, self.last = h * 2, h.shape
        self.history.append(h)
        self.names.add("b")
        self.cell.count += 1
        self.cell.seen["shapes"].append(h)
        self.pair[0].append(3)
        self.pair[1]["k"].clear()
        self.own.random(), random.random(), np.random.rand(), torch.rand(3), self.generator.manual_seed(9)
        self.array += 1
        self.count()
        self.fc1.extra = h
        self.train(False)
        self.fc2.bias.requires_grad_(True)
        return h


class Rebinds(Base):
    def prepare(self):
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("table", torch.arange(8.0), persistent=False)

    def act(self, h):
        self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
        self.table.mul_(1.5)
        return h + self.mean + self.table


class OwnForward(Base):
    def prepare(self):
        plain = self.fc1.forward
        self.fc1.forward = lambda x: plain(x) * 2
        self.fc2.register_forward_pre_hook(lambda module, args: setattr(module, "calls", 1))
        self.fc1.weight.requires_grad_(False)
        self.fc2.weight.grad = torch.ones(1, 8)
        self.fc2.weight.tag = ["mine"]
        self.eval()


CALLS = []  # outside of every module: an export does not take it back


class Raises(Remembers):
    """Fails in forward at the given call, after it has written to itself."""

    error, at = ValueError("on purpose"), 1

    def act(self, h):
        CALLS.append(1)
        h = super().act(h)
        if len(CALLS) == self.at:
            raise self.error
        return h


class FailsBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("on purpose")


class BadBackward(Remembers):
    def act(self, h):
        return FailsBackward.apply(super().act(h))


class Branches(Remembers):
    def act(self, h):
        h = super().act(h)
        return h if h.sum() > 0 else -h


class Chooses(Remembers):
    """Another loss at each call."""

    def act(self, h):
        CALLS.append(1)
        return super().act(h) * len(CALLS)


class ReplacesParameter(Base):
    def act(self, h):
        self.fc2.bias = nn.Parameter(torch.zeros(1))
        return h


class WritesParameter(Base):
    def act(self, h):
        with torch.no_grad():
            self.fc2.weight.data.clamp_(-0.1, 0.1)
        return h


def run(program, batch):
    """{name of a parameter or buffer, None for the loss: its gradient, new value, the loss}."""
    state = {**program.state_dict, **program.constants}
    lent = [state[s.target] for s in program.graph_signature.input_specs if s.target is not None]
    outputs = program.graph_module(*lent, *batch, torch.tensor(1.0))
    return {s.target: value for s, value in zip(program.graph_signature.output_specs, outputs, strict=True)}


def inputs():
    return torch.randn(6, 4), torch.randn(6, 1)


class LeftAsFoundTest(ExportTest):
    def left_as_found(self, module, expected=None, error=ExportError, path=None, **options):
        """Exports `module`; `expected`: the pattern of the error that must come."""
        batch = inputs()
        random.seed(1), np.random.seed(1)
        loss = self.trained(module, batch)
        before = everything(module)
        if expected is None:
            export_train_step(module, batch, self.path(), **options)
        else:
            with self.assertRaisesRegex(error, expected):
                export_train_step(module, batch, path or self.path(), **options)
            self.assertEqual(os.listdir(self.folder), [])
        self.assertIsNone(difference(before, everything(module)))
        self.assertEqual(self.trained(module, batch), loss)

    @staticmethod
    def trained(module, batch):
        """Loss and gradients of eager PyTorch, the module afterwards as before."""
        if not isinstance(module, (Norms, Recurrent, Tied, SharedModule, OwnForward)):
            return None  # its forward writes to itself, or raises
        kept = {k: v.clone() for k, v in module.state_dict().items()}
        state = torch.get_rng_state()
        trained = [p for p in module.parameters() if p.requires_grad]
        loss = module(*batch)
        result = [t.tolist() for t in (loss, *torch.autograd.grad(loss, trained))]
        module.load_state_dict(kept)
        torch.set_rng_state(state)
        return result

    def test_modules(self):
        for kind in (Base, Tied, SharedModule, Recurrent, Norms, Remembers, Rebinds, OwnForward):
            for options in ({}, {"headless": True}):
                if kind is Norms and options:
                    continue  # old weight_norm computes a real tensor from fake ones
                with self.subTest(kind.__name__, **options):
                    self.left_as_found(kind(), **options)
        self.assertEqual((Remembers.calls, Remembers.shapes), (0, []))

    def test_no_grad(self):
        with torch.no_grad():
            self.left_as_found(Remembers())

    def test_elements_that_count_several_times(self):
        """As an expanded tensor has them; one that is no number equals nothing, so all are written back."""
        module = Base()
        module.hidden = torch.full((2, 1), float("nan")).expand(2, 3)
        export_train_step(module, inputs(), self.path())
        self.assertTrue(module.hidden.isnan().all())
        self.assertEqual(module.hidden.stride(), (1, 0))

    def test_replaced_buffer_is_an_update(self):
        module, batch = Rebinds(), inputs()
        export_train_step(module, batch, self.path())
        loss, mean = float(module(*batch).detach()), module.mean
        found = run(torch.export.load(self.path()), batch)
        self.assertTrue(torch.equal(found["mean"], mean))
        self.assertEqual(float(found[None]), loss)

    def test_failures(self):
        CALLS.clear()
        self.left_as_found(Raises(), "on purpose", headless=True)
        for kind, pattern in (
            (BadBackward, "on purpose"),
            (Branches, "tracing failed"),
            (Chooses, "run again on the same inputs"),
            (ReplacesParameter, "replaces parameter fc2.bias"),
            (WritesParameter, "fc2.weight"),
        ):
            with self.subTest(kind.__name__):
                self.left_as_found(kind(), pattern)

    def test_interrupts(self):
        CALLS.clear()
        module = Raises()
        module.at = None
        self.left_as_found(module)
        calls = len(CALLS)
        self.assertGreaterEqual(calls, 3)  # while tracing, and twice in the check
        os.remove(self.path())
        for error in (KeyboardInterrupt("stop"), SystemExit(3), MemoryError()):
            for at in range(1, calls + 1):
                with self.subTest(type(error).__name__, at=at):
                    CALLS.clear()
                    module = Raises()
                    module.error, module.at = error, at
                    self.left_as_found(module, "", (type(error), ExportError))

    def test_output_that_cannot_be_written(self):
        self.left_as_found(Remembers(), "cannot write", path=self.path("none/model.pt2"))


SHARED = (("fc1", "again", ("weight", "bias")), ("norm", "norm_too", ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")))


class TiesTest(ExportTest):
    """The usual ways in which plain PyTorch shares a tensor, against eager."""

    def test_shared_tensors(self):
        for kind, shared in (
            (Tied, {"third.weight": "back.weight"}),
            (SharedModule, {f"{again}.{name}": f"{first}.{name}" for first, again, names in SHARED for name in names}),
        ):
            with self.subTest(kind.__name__):
                module, batch = kind(), inputs()
                state = {k: v.clone() for k, v in module.state_dict().items()}
                trained = dict(module.named_parameters())
                loss = module(*batch)
                gradients = dict(zip(trained, torch.autograd.grad(loss, list(trained.values()))))
                module.load_state_dict(state)
                program = self.export(module, batch)
                found = run(program, batch)
                self.assertTrue(torch.equal(found[None], loss))
                for name, gradient in gradients.items():
                    self.assertTrue(torch.equal(found[name], gradient), name)
                self.assertEqual(description(self.path())["aliases"], shared)
                self.assertEqual(set(program.state_dict), set(state))


if __name__ == "__main__":
    unittest.main()
