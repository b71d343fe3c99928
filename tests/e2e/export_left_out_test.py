"""What a forward does in PyTorch and a trace leaves out: refused with a sentence, also without the check and without weights, or left out
because it changes nothing.

build/venv/bin/python tests/e2e/export_left_out_test.py
"""

import contextlib
import os
import random
import unittest
import warnings

import torch
from safetensors.torch import save_file
from torch import nn
from torch.export.graph_signature import InputKind, OutputKind
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import running
from export_case import ExportError, ExportTest, description, export_train_step, targets

UNCHECKED = ({}, {"check": False}, {"headless": True})


class Net(nn.Module):
    """Cross-entropy of `act(self, x)` behind a linear layer; keyword arguments become attributes."""

    def __init__(self, act, **attributes):
        super().__init__()
        self.fc, self.out, self.act = nn.Linear(6, 6), nn.Linear(6, 3), act
        for name, value in attributes.items():
            self.register_buffer(name, value) if type(value) is torch.Tensor else setattr(self, name, value)

    def forward(self, x, labels):
        return F.cross_entropy(self.out(self.act(self, x)), labels)


def inputs():
    return torch.randn(4, 6), torch.tensor([0, 2, 1, 1])


class LeftOutTest(ExportTest):
    def refused(self, pattern, act, options=UNCHECKED, **attributes):
        for chosen in options:
            with self.subTest(**chosen), self.assertRaisesRegex(ExportError, pattern):
                export_train_step(Net(act, **attributes), inputs(), self.path("refused.pt2"), **chosen)
            self.assertFalse(os.path.exists(self.path("refused.pt2")))

    def exported(self, act, **attributes):
        """Exported with the check, which compares with PyTorch, and without; the gradients of the latter."""
        export_train_step(Net(act, **attributes), inputs(), self.path())
        export_train_step(Net(act, **attributes), inputs(), self.path(), check=False)
        return targets(torch.export.load(self.path()), OutputKind.GRADIENT_TO_PARAMETER)


class SavedTensorsTest(LeftOutTest):
    @staticmethod
    def saved(pack, unpack):
        def act(m, x):
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                return m.fc(x).tanh()

        return act

    def test_hooks_that_round(self):
        refused = "through hooks that may give back other values .*leave the hooks out"
        self.refused(refused, self.saved(lambda t: t.detach().bfloat16(), lambda t: t.float()))
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach() * 2 if t.is_floating_point() else t, lambda t: t):
            self.refused(refused, lambda m, x: m.fc(x).tanh())

    def test_hooks_that_keep_values(self):
        """As those that move tensors elsewhere; without weights none can be run."""
        keeps = self.saved(lambda t: t.detach().numpy().copy(), torch.from_numpy)
        self.exported(keeps)
        self.refused("may give back other values", keeps, ({"headless": True},))

        def on_cpu(m, x):
            with torch.autograd.graph.save_on_cpu():
                return m.fc(x).tanh()

        self.exported(on_cpu)
        export_train_step(Net(on_cpu), inputs(), self.path(), headless=True)


class CheckpointTest(LeftOutTest):
    def test_buffers_that_are_written_twice(self):
        for reentrant in (True, False):
            norm = lambda m, x, reentrant=reentrant: checkpoint(lambda h: m.norm(h).tanh(), m.fc(x), use_reentrant=reentrant)
            self.refused("writes norm.*under torch.utils.checkpoint.*leave the checkpoint out", norm, norm=nn.BatchNorm1d(6))

    def test_buffers_that_are_written_once(self):
        """In eval mode, outside of the checkpoint, and behind all that the backward needs, where the second computation has stopped."""

        def counts(m, x):
            def part(x):
                h = m.fc(x).tanh()
                m.seen.add_(1)
                return h

            return checkpoint(part, x, use_reentrant=False)

        self.exported(lambda m, x: checkpoint(lambda h: m.norm(h).tanh(), m.fc(x), use_reentrant=False), norm=nn.BatchNorm1d(6).eval())
        self.exported(lambda m, x: m.norm(checkpoint(lambda h: m.fc(h).tanh(), x, use_reentrant=False)), norm=nn.BatchNorm1d(6))
        self.exported(counts, seen=torch.zeros(()))

    def test_reentrant_without_gradients(self):
        """PyTorch trains nothing in a reentrant checkpoint whose arguments have no gradients, as behind frozen embeddings."""
        inner = nn.Linear(6, 6)
        for reentrant in (True, False):
            act = lambda m, x, reentrant=reentrant: m.fc(x) + checkpoint(m.inner, x, use_reentrant=reentrant)
            trained = self.exported(act, inner=inner)
            self.assertEqual("inner.weight" in trained, not reentrant)


class HooksTest(LeftOutTest):
    def test_hooks_of_parameters(self):
        for register in ("register_hook", "register_post_accumulate_grad_hook"):

            def act(m, x, register=register):
                getattr(m.fc.weight, register)(lambda _: None)
                return m.fc(x)

            self.refused("grad(ient)? hooks? .*; write the change of the gradient into the forward", act)

        def instead(m, x):
            weight = m.fc.weight * 1
            weight.register_hook(lambda g: g * 2)
            return F.linear(x, weight)

        self.exported(instead)

    def test_hooks_of_modules(self):
        for register in ("register_full_backward_hook", "register_full_backward_pre_hook"):

            def act(m, x, register=register):
                getattr(m.fc, register)(lambda *_: None)
                return m.fc(x)

            self.refused("fc has a backward hook", act)


class BackwardTest(LeftOutTest):
    """Hooks of tensors, and autograd functions, that read and change their module in the backward phase."""

    @staticmethod
    def hooked(hook):
        def act(m, x):
            m.seen.add_(1)
            h = m.fc(x)
            h.register_hook(lambda gradient: hook(m, gradient))
            return h.tanh()

        return act

    def test_reads(self):
        """Values of the step, and no constants: what the forward counts, and what is trained. The check compares with PyTorch."""
        dynamic = {"dynamic_shapes": {"x": {0: "batch"}, "labels": {0: "batch"}}}
        for hook in (lambda m, gradient: gradient * m.seen, lambda m, gradient: gradient * m.fc.bias):
            for options in ({}, dynamic, {**dynamic, "check": False}):
                with self.subTest(**options):
                    export_train_step(Net(self.hooked(hook), seen=torch.ones(6)), inputs(), self.path(), **options)
                    self.assertEqual(targets(torch.export.load(self.path()), InputKind.CONSTANT_TENSOR), [])

    def test_writes(self):
        def replaces(m, gradient):
            m.seen = m.seen * 0.9 + gradient.detach().mean(0)

        def sets_data(m, gradient):
            m.seen.data = m.seen * 0.9 + gradient.detach().mean(0)

        self.refused("a backward replaces seen", self.hooked(replaces), seen=torch.ones(6))
        self.refused("a backward sets .data of seen", self.hooked(sets_data), seen=torch.ones(6))

    def test_buffers_that_are_replaced_after_their_use(self):
        """PyTorch keeps the old tensor for the backward."""

        def act(m, x, used=lambda buffer: buffer):
            h = m.fc(x) * used(m.seen)
            m.seen = m.seen * 0.9 + x.mean(0)
            return h

        self.refused("the backward reads what seen was before the forward replaced it; compute with seen.clone\\(\\)", act, seen=torch.ones(6))
        self.exported(lambda m, x: act(m, x, torch.clone), seen=torch.ones(6))


class ParametersTest(LeftOutTest):
    def test_requires_grad(self):
        def act(m, x):
            m.frozen.weight.requires_grad_(True)
            return m.fc(m.frozen(x))

        self.refused("changes requires_grad of parameter frozen.weight", act, frozen=nn.Linear(6, 6).requires_grad_(False))

    def test_parameters_that_are_not_registered_where_they_are_read(self):
        """Where fake tensors stand for the inputs, a trace would take them for constants."""
        dynamic = {"dynamic_shapes": {"x": {0: "batch"}, "labels": {0: "batch"}}}
        for part in (lambda w: w, lambda w: w.data[1:]):
            for options in (dynamic, {**dynamic, "check": False}, {"headless": True}):
                module = Net(lambda m, x: m.fc(x) + m.held[0].sum())
                module.held = [part(module.fc.weight)]
                with self.subTest(**options), self.assertRaisesRegex(ExportError, "parameter fc.weight from where it is not registered"):
                    export_train_step(module, inputs(), self.path(), **options)
        module.held = [torch.ones(3)]
        export_train_step(module, inputs(), self.path(), **dynamic)

    def test_buffers_that_are_not_registered_where_they_are_read(self):
        """Those that the forward writes, and those whose values come with the weights; in another order of memory too."""
        dynamic = {"dynamic_shapes": {"x": {0: "batch"}, "labels": {0: "batch"}}}

        def module(act, seen=None, persistent=True):
            module = Net(act)
            module.register_buffer("seen", torch.ones(2, 6) if seen is None else seen, persistent=persistent)
            module.held = [module.seen]
            return module

        def reads(m, x):
            return m.fc(x) * m.held[0].sum(0)

        def writes(m, x):
            m.seen.add_(1)
            return reads(m, x)

        for made in (lambda: module(writes), lambda: module(writes, persistent=False), lambda: module(reads), lambda: module(reads, torch.ones(6, 2).t())):
            for options in (dynamic, {**dynamic, "check": False}, {"headless": True}):
                with (
                    self.subTest(**options),
                    self.assertRaisesRegex(ExportError, "with buffer seen from where it is not registered.*would hold what it is now"),
                ):
                    export_train_step(made(), inputs(), self.path(), **options)
        export_train_step(module(reads, persistent=False), inputs(), self.path(), **dynamic)
        part = torch.ones(3, 6)
        partly = module(reads, part[:1])
        partly.held = [part[1:]]
        export_train_step(partly, inputs(), self.path(), **dynamic)

    def test_backward_in_the_forward(self):
        def act(m, x):
            m.fc(x).square().mean().backward()
            return m.fc(x)

        self.refused("backward\\(\\); return the sum of all losses", act)


class StateTest(LeftOutTest):
    def test_seeds(self):
        def forked(m, x):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(3)
                noise = torch.rand(6)
            return m.fc(x) + noise

        def seeded(m, x):
            torch.manual_seed(3)
            return F.dropout(m.fc(x))

        for act in (forked, seeded):
            self.refused("sets the state of random numbers .*into a buffer", act)

    def test_notes_without_a_check(self):
        def counts(m, x):
            m.calls += 1
            return m.fc(x) / m.calls

        for act, pattern in ((counts, "changes the number calls"), (lambda m, x: m.fc(x) * random.random(), "draws numbers with Python's random")):
            (note,) = export_train_step(Net(act, calls=0), inputs(), self.path(), check=False).notes
            self.assertRegex(note, pattern)

    def test_questions_for_ranks(self):
        def act(m, x):
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                raise AssertionError("not in this process")
            return m.fc(x)

        (note,) = export_train_step(Net(act), inputs(), self.path()).notes
        self.assertRegex(note, r"asks torch.distributed for ranks \(export_left_out_test.py:\d+\)")
        self.assertEqual(description(self.path())["notes"], [note])


class AutocastTest(LeftOutTest):
    def setUp(self):
        super().setUp()
        self.enterContext(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # PyTorch's own, that there is no GPU

    def test_autocast_for_gpus(self):
        """It has no effect where a step is traced, and PyTorch computes in 16 bits with it."""

        def positional(m, x):
            with torch.autocast("cuda", torch.bfloat16):
                return m.fc(x).float()

        def named(m, x):
            with torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16, enabled=True):
                return m.fc(x).float()

        def older(m, x):
            with torch.cuda.amp.autocast():
                return m.fc(x).float()

        for act in (positional, named, older):
            self.refused(r"enters torch.autocast\('cuda'\).*give autocast=torch.bfloat16", act)

    def test_autocast_that_changes_nothing(self):
        def disabled(m, x):
            with torch.autocast("cuda", enabled=False), torch.cuda.amp.autocast(enabled=False):
                return m.fc(x)

        def here(m, x):
            with torch.autocast(x.device.type, torch.bfloat16):
                return m.fc(x).float()

        for act in (disabled, here):
            self.assertEqual(export_train_step(Net(act), inputs(), self.path()).notes, [])

    def test_autocast_that_was_made_before(self):
        """Where no GPU is, nothing tells whether it was enabled."""

        @torch.autocast("cuda", torch.bfloat16)
        def act(m, x):
            return m.fc(x).float()

        if torch.cuda.is_available():
            self.refused("enters torch.autocast", act)
            return
        (note,) = export_train_step(Net(act), inputs(), self.path()).notes
        self.assertRegex(note, r"enters a torch.autocast\('cuda'\) that was made before the export")
        in_training = lambda m, x: m.fc(x) if m.training else act(m, x)
        self.assertEqual(export_train_step(Net(in_training), inputs(), self.path(), eval=True).notes, [note])


def saved(batch):
    """A data file."""
    path = running.fresh(".safetensors")
    save_file(dict(zip(("x", "labels"), batch)), path)
    return path


@contextlib.contextmanager
def default_type(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class SettingsTest(LeftOutTest):
    def test_default_types(self):
        """Of the process that exports; dcrun's is float32."""

        def act(m, x):
            return m.fc(x) * (torch.linspace(0, 1, 6) + torch.arange(0, 3, 0.5) + torch.full((6,), 0.3)).float()

        module, batch = Net(act), inputs()
        for dtype in (torch.float64, torch.bfloat16):
            with self.subTest(dtype):
                with default_type(dtype):
                    export_train_step(module, batch, self.path())
                    expected = module(*batch).detach()
                program = torch.export.load(self.path())
                self.assertEqual({n.meta["val"].dtype for n in program.graph.nodes if n.op == "placeholder"}, {torch.float32, torch.int64})
                self.assertTrue(torch.equal(program.module()(*batch, torch.tensor(1.0))[0], expected))
                row = running.train(running.compile_plan(self.path(), 1, 0), self.path(), 1, 1, data=saved(batch)).steps[0]
                self.assertAlmostEqual(row["loss"], float(expected), delta=1e-5)

    def test_types_that_follow_the_default(self):
        with default_type(torch.float64):
            x, labels = inputs()
            with self.assertRaisesRegex(ExportError, "gives float64 because of torch.set_default_dtype.*float32 in dcrun"):
                export_train_step(Net(lambda m, x: m.fc(x) * (torch.arange(6) / 7)).float(), (x.float(), labels), self.path(), check=False)

    def test_modes_around_the_export(self):
        """In a mode of the forward the operators are those that it computes; one around the export would be left out."""

        class Doubled(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                result = function(*args, **(kwargs or {}))
                return result * 2 if function is torch.ops.aten.tanh.default else result

        def act(m, x):
            with Doubled():
                return m.fc(x).tanh()

        self.exported(act)
        with Doubled():
            self.refused("runs inside of a Doubled, a dispatch mode.*in the forward", lambda m, x: m.fc(x).tanh())

    def test_precision_of_products(self):
        torch.set_float32_matmul_precision("medium")
        try:
            (note,) = export_train_step(Net(lambda m, x: m.fc(x)), inputs(), self.path(), check=False).notes
        finally:
            torch.set_float32_matmul_precision("highest")
        self.assertRegex(note, r"round operands of float32 operators \(matmul bf16")
        self.assertEqual(export_train_step(Net(lambda m, x: m.fc(x)), inputs(), self.path(), check=False).notes, [])


if __name__ == "__main__":
    unittest.main()
