"""`eval=True` of the exporter: what the archive's second program is, and what is refused.

build/venv/bin/python tests/e2e/export_evaluation_test.py
"""

import functools
import json
import unittest
import warnings

import running
import torch
from export_case import ExportError, ExportTest, read_entry, run_command
from safetensors.torch import load_file, save_file
from torch.export.graph_signature import InputKind

from dcc_export import evaluation, export_train_step


class Net(torch.nn.Module):
    """In eval mode: no dropout, running statistics, no auxiliary loss, and its own constant."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3))

    def forward(self, x):
        loss = self.layers(x).square().mean()
        return loss + self.layers[0].weight.abs().mean() if self.training else loss * torch.tensor(1.5)


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if not self.training:
            self.calls += 1
        return self.linear(x).square().mean()


class Drawing(Counting):
    def forward(self, x):
        return self.linear(x + (0 if self.training else torch.rand_like(x))).square().mean()


class Merging(torch.nn.Module):
    """As loralib's layers: eval() adds the factors' product to the weight, which is zero when training starts, train() subtracts it again."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4), requires_grad=False)
        self.a, self.b = torch.nn.Parameter(torch.randn(2, 4)), torch.nn.Parameter(torch.zeros(4, 2))
        self.merged = False

    def merge(self, sign):
        self.weight.data += sign * (self.b @ self.a)

    def train(self, mode=True):
        super().train(mode)
        if self.merged == mode:
            self.merge(-1 if mode else 1)
            self.merged = not mode
        return self

    def forward(self, x):
        weight = self.weight if self.merged else self.weight + self.b @ self.a
        return torch.nn.functional.linear(x, weight).square().mean()


class Swapping(Merging):
    """Averages of the parameters stand in for them in eval mode."""

    def merge(self, sign):
        if not hasattr(self, "shadow"):
            self.shadow = self.a.detach().clone()
        self.a.data, self.shadow = self.shadow, self.a.data


class Replacing(Merging):
    def merge(self, sign):
        self.weight = torch.nn.Parameter(self.weight + sign * (self.b @ self.a), requires_grad=False)


class Fusing(Merging):
    def merge(self, sign):
        self.register_buffer("fused", self.weight + self.b @ self.a)


class Foreach(Merging):
    def merge(self, sign):
        with torch.no_grad():
            torch._foreach_mul_([self.a, self.b], 1.5)


class KeepsDropout(torch.nn.Module):
    """Its train() writes no tensors: what it leaves in train mode stays so, and what it sets counts."""

    def __init__(self):
        super().__init__()
        self.linear, self.drop, self.norm = torch.nn.Linear(6, 8), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(8)
        self.scale = 1.0

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        self.scale = 1.0 if mode else 3.0
        return self

    def forward(self, x):
        return self.drop(self.norm(self.linear(x))).square().mean() * self.scale


class Wrong(torch.nn.Module):
    def __init__(self, context):
        super().__init__()
        self.linear, self.context = torch.nn.Linear(4, 3), context

    def forward(self, x, labels):
        if self.training:
            return torch.nn.functional.cross_entropy(self.linear(x), labels)
        with self.context():
            return (self.linear(x).argmax(-1) != labels).float().mean()


class Recurrent(torch.nn.Module):
    """A GRU, LSTM or RNN keeps its weights in a list too."""

    def __init__(self, kind):
        super().__init__()
        self.recurrent, self.head = kind(6, 8, batch_first=True), torch.nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.recurrent(x)[0]).square().mean()


class KeepsWhatItComputes(torch.nn.Module):
    """In an attribute, a list and a dict, as mixtures of experts keep a loss."""

    def __init__(self):
        super().__init__()
        self.linear, self.all, self.named = torch.nn.Linear(6, 8), [], {}

    def forward(self, x):
        weights = self.linear(x).softmax(-1)
        self.auxiliary = weights.square().mean()
        self.all.append(weights)
        self.named["weights"] = weights
        return weights[..., 0].mean() + self.auxiliary


def normed():
    """Old norms set their weight before each forward."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = torch.nn.utils.weight_norm(torch.nn.Linear(6, 8))
        return Loss(torch.nn.Sequential(first, torch.nn.utils.spectral_norm(torch.nn.Linear(8, 2))))


class Loss(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x).square().mean()


def optimizer(module):
    return torch.optim.SGD(module.parameters(), lr=0.1)


class EvaluationTest(ExportTest):
    def load(self):
        """(the evaluation, the training step) of the archive."""
        loaded = torch.export.load(self.path())
        return evaluation._load(self.path(), loaded), loaded

    def test_is_the_forward_in_eval_mode(self):
        module = Net()
        report = export_train_step(module, (torch.randn(5, 6),), self.path(), optimizer=optimizer(module), eval=True)
        self.assertIn("evaluation: the loss equals the module's in eval mode exactly (2 samples)", report.check)
        self.assertTrue(all(child.training for child in module.modules()))
        program, loaded = self.load()
        operators = {str(n.target) for n in program.graph.nodes if n.op == "call_function"}
        self.assertFalse([o for o in operators if "dropout" in o or "backward" in o or "abs" in o], operators)
        self.assertEqual(len(program.graph_signature.output_specs), 1)
        constants = [s.target for s in program.graph_signature.input_specs if s.kind is InputKind.CONSTANT_TENSOR]
        self.assertEqual(constants, ["evaluation.0"])
        self.assertEqual(float(loaded.constants["evaluation.0"]), 1.5)

    def test_same_input_same_bytes(self):
        contents = []
        for _ in range(2):
            torch.manual_seed(0)
            self.export(Net(), (torch.randn(5, 6),), eval=True)
            with open(self.path(), "rb") as file:
                contents.append(file.read())
        self.assertEqual(*contents)

    def test_training_step_is_the_same(self):
        models = []
        for evaluates in (False, True):
            torch.manual_seed(0)
            self.export(Net(), (torch.randn(5, 6),), eval=evaluates)
            models.append(read_entry(self.path(), "models/model.json"))
        self.assertEqual(*models)

    def test_writes_in_eval_mode_are_refused(self):
        with self.assertRaisesRegex(ExportError, "in eval mode the forward writes buffer calls"):
            self.export(Counting(), (torch.randn(2, 4),), eval=True)
        self.export(Counting(), (torch.randn(2, 4),))

    def test_an_eval_that_writes_parameters_is_refused(self):
        """The evaluation would read merged weights, and the module would stay merged."""
        x = torch.randn(3, 4)
        for kind, name in ((Merging, "weight"), (Swapping, "a"), (Replacing, "weight"), (Fusing, "fused"), (Foreach, "a")):
            for options in ({}, {"check": False}, {"headless": True}):
                with self.subTest(kind.__name__, **options):
                    module = kind()
                    before = {n: t.clone() for n, t in module.state_dict().items()}
                    with self.assertRaisesRegex(ExportError, f"in eval mode the module has another {name}: its eval.. writes it"):
                        export_train_step(module, (x,), self.path(), eval=True, **options)
                    self.assertEqual((module.merged, module.training), (False, True))
                    self.assertEqual(list(module.state_dict()), list(before))
                    for n, t in module.state_dict().items():
                        self.assertTrue(torch.equal(t, before[n]), n)

    def test_an_eval_that_writes_no_tensors(self):
        module = KeepsDropout().train()
        self.export(module, (torch.randn(5, 6),), eval=True)
        self.assertEqual((module.scale, module.training, module.drop.training, module.norm.training), (1.0, True, True, False))
        program, _ = self.load()
        self.assertIn(3.0, [a for n in program.graph.nodes for a in n.args])

    def test_a_loss_without_a_gradient(self):
        """In eval mode the share of wrong answers, computed with and without a context that records gradients."""
        for context in (torch.enable_grad, torch.no_grad):
            module, x, labels = Wrong(context), torch.randn(40, 4), torch.randint(0, 3, (40,))
            report = export_train_step(module, (x, labels), self.path(), optimizer=optimizer(module), eval=True)
            self.assertIn("evaluation: the loss equals the module's in eval mode exactly (2 samples)", report.check)
            plan, data = running.compile_plan(self.path(), 1, 0), self.path("data.safetensors")
            save_file({"x": x, "labels": labels}, data)
            (row, *_) = running.train(plan, self.path(), 1, 1, "--eval-every", "1", "--eval-data", data, data=data).evaluations
            trained = load_file(running.train(plan, self.path(), 1, 1, data=data).saved)
            module.load_state_dict(trained)
            self.assertAlmostEqual(row["eval_loss"], float(module.eval()(x, labels)), delta=1e-6)
        with self.assertRaisesRegex(ExportError, "does not depend on any trainable parameter"):
            self.export(Wrong(torch.enable_grad).eval(), (x, labels))

    def test_modules_that_keep_what_they_compute(self):
        x = torch.randn(4, 5, 6)
        kinds = [functools.partial(Recurrent, kind) for kind in (torch.nn.GRU, torch.nn.LSTM, torch.nn.RNN)]
        for make in (*kinds, KeepsWhatItComputes, normed):
            module = make()
            with self.subTest(type(module).__name__):
                report = export_train_step(module, (x,), self.path(), eval=True)
                self.assertIn("evaluation: the loss equals the module's in eval mode", report.check)
        export_train_step(kinds[0](), (x,), self.path(), eval=True, headless=True)

    def test_evaluates_a_gru_while_it_trains(self):
        module, x = Recurrent(torch.nn.GRU), torch.randn(4, 5, 6)
        export_train_step(module, (x,), self.path(), optimizer=optimizer(module), eval=True)
        plan, data = running.compile_plan(self.path(), 1, 0), self.path("data.safetensors")
        save_file({"x": x}, data)
        rows = running.train(plan, self.path(), 1, 2, "--eval-every", "1", "--eval-data", data, data=data).evaluations
        self.assertEqual(len(rows), 2)
        train = optimizer(module)
        for row in rows:
            train.zero_grad()
            module(x).backward()
            train.step()
            with torch.no_grad():
                self.assertAlmostEqual(row["eval_loss"], float(module(x)), delta=1e-6)

    def test_says_that_the_evaluation_is_meant(self):
        class Written(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(6, 6)

            def forward(self, x):
                y = self.linear(x).exp()
                z = y if self.training else y.mul_(2)  # what the backward of exp reads
                return (z * y).mean()

        self.export(Written(), (torch.randn(4, 6),))
        with self.assertRaisesRegex(ExportError, "^the evaluation, which is the module in eval mode.*write to a copy.*; or export without eval=True$"):
            self.export(Written(), (torch.randn(4, 6),), eval=True)

    def test_what_differs_is_not_written(self):
        with self.assertRaisesRegex(ExportError, "check failed: the loss of the evaluation"):
            self.export(Drawing(), (torch.randn(2, 4),), eval=True)

    def test_dynamic_dims(self):
        self.export(Net(), (torch.randn(5, 6),), eval=True, dynamic_shapes={"x": {0: "batch"}})
        program, _ = self.load()
        first = next(n for n in program.graph.nodes if n.name == "x")
        self.assertFalse(isinstance(first.meta["val"].shape[0], int))

    def test_command(self):
        for options in ([], ["--headless"], ["--dtype", "autocast-bfloat16"]):
            with self.subTest(options):
                code, said = run_command("--preset", "tiny-llama", "--eval", "-o", self.path(), *options)
                self.assertEqual(code, 0, said)
                self.assertIn("evaluation: the loss equals the module's in eval mode", said)
                self.assertIn("graph_module", json.loads(read_entry(self.path(), "extra/evaluation.json")))


if __name__ == "__main__":
    unittest.main()
