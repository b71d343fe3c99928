"""Initialisers as the values show them, and what of a live optimizer is written or refused.

build/venv/bin/python tests/e2e/export_rules_test.py
"""

import math
import os
import unittest

import torch
from torch import nn

import checkpoints
import running
from export_case import ExportTest, description

from dcc_export import ExportError, export_train_step
from dcc_export.initializers import find_rules
from dcc_export.observed import contradicts, derive


def normal(std, mean=0.0):
    return {"kind": "normal", "mean": mean, "std": std}


def padded(row, rule):
    return {**rule, "zero_row": row}


def uniform(bound):
    return {"kind": "uniform", "low": -bound, "high": bound}


class ObservedTest(unittest.TestCase):
    """False alarms and power of the tests on values, drawn by torch itself."""

    def setUp(self):
        torch.manual_seed(7)

    def test_sound_rules_are_not_refuted(self):
        shapes = [(1,), (3,), (40,), (300,), (16, 16), (64, 8), (8, 200), (64, 300), (3, 5, 7, 7)]
        for shape in shapes:
            for dtype in (torch.float32, torch.bfloat16):
                for _ in range(20):
                    drawn = torch.empty(shape, dtype=dtype)
                    self.assertFalse(contradicts(drawn.normal_(0.5, 0.02), normal(0.02, 0.5)), shape)
                    if dtype is torch.float32 or len(shape) == 1:
                        self.assertFalse(contradicts(drawn.uniform_(-0.1, 0.1), uniform(0.1)), shape)
        large = torch.randn(1500, 1000)
        self.assertFalse(contradicts(large, normal(1.0)))

    def test_power_as_stated(self):
        for _ in range(50):
            self.assertTrue(contradicts(1.5 * torch.randn(300), normal(1.0)))
            self.assertTrue(contradicts(torch.randn(300) / 1.5, normal(1.0)))
            self.assertTrue(contradicts(torch.randn(5) / 50, normal(1.0)))
            self.assertTrue(contradicts((torch.rand(60) * 2 - 1) / 1.5, uniform(1.0)))
            self.assertTrue(contradicts((torch.rand(60) * 2 - 1) * 1.5, uniform(1.0)))
            self.assertTrue(contradicts(torch.randn(400) + 0.6, normal(1.0)))
            self.assertTrue(contradicts((torch.rand(300) * 2 - 1) * math.sqrt(3), normal(1.0)))
        for size in (16, 40, 300):
            orthogonal = nn.init.orthogonal_(torch.empty(size, size))
            self.assertTrue(contradicts(orthogonal, normal(size**-0.5)), size)
        low_rank = torch.randn(64, 4) @ torch.randn(4, 64) / 2
        self.assertTrue(contradicts(low_rank, normal(float(low_rank.std()))))
        for shape, dtype in (((50, 16), torch.float32), ((3, 2), torch.float32), ((50, 6), torch.bfloat16)):
            drawn = torch.randn(shape, dtype=dtype)
            drawn[0] = 0
            self.assertTrue(contradicts(drawn, normal(1.0)), shape)
            self.assertFalse(contradicts(drawn, padded(0, normal(1.0))), shape)
            drawn[0], drawn[1] = 1, 0
            self.assertTrue(contradicts(drawn, padded(0, normal(1.0))), shape)

    def test_exact_rules(self):
        almost = torch.ones(1000)
        self.assertFalse(contradicts(almost, {"kind": "ones"}))
        almost[7] += 2.0**-23
        for rule in ({"kind": "ones"}, {"kind": "zeros"}, {"kind": "constant", "value": 1.0}):
            self.assertTrue(contradicts(almost, rule))
        self.assertEqual(derive(torch.full((5,), 0.25)), {"kind": "constant", "value": 0.25})

    def test_derived(self):
        self.assertEqual(derive(torch.randn(100, 64) * 0.02), normal(0.02))
        found = derive(torch.empty(100, 64).uniform_(-0.125, 0.125))
        self.assertEqual(found["kind"], "uniform")
        self.assertAlmostEqual(found["high"], 0.125, delta=1e-4)
        few, one_sided = torch.randn(100), torch.randn(5000).abs()
        for tensor in (few, one_sided, nn.init.orthogonal_(torch.empty(40, 40)), torch.arange(999.0), torch.full((5,), math.nan)):
            self.assertIsNone(derive(tensor))


class Net(nn.Module):
    """Its own initialisation: std 0.02, zero biases; an orthogonal layer and a learned table."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(97, 32)
        self.pad = nn.Embedding(97, 32, padding_idx=0)
        self.own, self.lost = nn.Embedding(97, 32, padding_idx=-1), nn.Embedding(97, 32, padding_idx=0)
        self.fc, self.orthogonal, self.stock = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 97, bias=False)
        self.table = nn.Parameter(torch.arange(32.0) / 32)
        for module in (self.emb, self.fc, self.head):
            nn.init.normal_(module.weight, std=0.02)
        for module in (self.own, self.lost):  # as transformers' models do, the second without its padding
            nn.init.normal_(module.weight, std=0.1)
        nn.init.zeros_(self.own.weight[-1])
        nn.init.zeros_(self.fc.bias)
        nn.init.orthogonal_(self.orthogonal.weight)

    def forward(self, ids, labels):
        h = self.stock(self.orthogonal(self.fc(self.norm(self.emb(ids) + self.pad(ids) + self.own(ids) + self.lost(ids) + self.table))))
        return nn.functional.cross_entropy(self.head(h), labels)


class InitializerTest(ExportTest):
    def test_own_initialisation(self):
        ids = torch.randint(97, (6,))
        program = self.export(Net(), (ids, ids), initializers={"table": {"kind": "zeros"}})
        rules = description(self.path())["initializers"]
        bound = uniform(1 / math.sqrt(32))
        expected = {
            "emb.weight": normal(0.02),
            "fc.weight": normal(0.02),
            "head.weight": normal(0.02),
            "fc.bias": {"kind": "zeros"},
            "norm.weight": {"kind": "ones"},
            "norm.bias": {"kind": "zeros"},
            "pad.weight": padded(0, normal(1.0)),
            "own.weight": padded(96, normal(0.1)),
            "lost.weight": normal(0.1),
            "stock.weight": bound,
            "stock.bias": bound,
            "orthogonal.bias": bound,
            "table": {"kind": "zeros"},
        }
        self.assertEqual(rules, expected)
        self.assertEqual(set(program.state_dict) - set(rules), {"orthogonal.weight"})

    def test_padding_rows(self):
        """Of embeddings with few elements, of tables of other kinds, and of modules without values."""

        def rule(module):
            return find_rules(module, lambda name: name).get("weight")

        for size in ((3, 2), (5, 4), (97, 32)):
            module = nn.Embedding(*size, padding_idx=1)
            self.assertEqual(rule(module), padded(1, normal(1.0)), size)
            self.assertEqual(rule(module.to("meta")), padded(1, normal(1.0)), size)
            module = nn.Embedding(*size, padding_idx=1)
            with torch.no_grad():
                module.weight[1] = torch.randn(size[1])  # such as a checkpoint's
            self.assertEqual(rule(module), normal(1.0), size)
        module = nn.Embedding(97, 32)
        with torch.no_grad():
            module.weight[5] = 0
            self.assertEqual(rule(module), padded(5, normal(1.0)))
            module.weight[6] = 0
        self.assertIsNone(rule(module), "two rows are more than a rule can say")
        module = nn.Module()
        module.register_buffer("weight", torch.tensor([[1, 1], [0, 0], [1, 1]]))
        self.assertEqual(rule(module), padded(1, {"kind": "ones"}))

    def test_first_loss_from_a_seed(self):
        """`dcrun --weights init:SEED` starts where the module's own initialisation does."""

        class Lm(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb, self.head = nn.Embedding(97, 64), nn.Linear(64, 97, bias=False)
                self.head.weight = self.emb.weight
                nn.init.normal_(self.emb.weight, std=0.02)

            def forward(self, ids, labels):
                return nn.functional.cross_entropy(self.head(self.emb(ids)), labels)

        ids = torch.randint(97, (32,))
        self.export(Lm(), (ids, ids))
        plan = running.compile_plan(self.path(), 1, 0)
        run = running.train(plan, "init:3", 1, 1)
        self.assertAlmostEqual(run.steps[0]["loss"], math.log(97), delta=0.1)


class Named(nn.Module):
    """Names that hold the pattern's own characters."""

    NAMES = ("a*", "ab", "a?", "a??", "[a]", "a\\", "a\\*", "\\")

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({name: nn.Linear(4, 4, bias=False) for name in self.NAMES})

    def forward(self, x):
        return sum(part(x).square().mean() for part in self.parts.values())


class OptimizerStateTest(ExportTest):
    def test_names_are_exact(self):
        """Each name in turn gets a group; eager SGD says what it must become."""
        for alone in Named.NAMES[:4] + Named.NAMES[5:7]:
            with self.subTest(alone):
                module = Named()
                chosen = [module.parts[alone].weight]
                others = [p for n, p in module.named_parameters() if p is not chosen[0]]
                groups = [{"params": others}, {"params": chosen, "lr": 0.5}]
                x = torch.randn(3, 4)
                self.export(module, x, optimizer=torch.optim.SGD(groups, lr=0.0), check=False, roles={"x": {"role": "float", "low": -1.0, "high": 1.0}})
                before = {k: v.clone() for k, v in module.state_dict().items()}
                run = running.train(running.compile_plan(self.path(), 1, 0), self.path(), 1, 1)
                saved = run.tensors()
                changed = [n for n, v in before.items() if saved[n][2] != v.numpy().tobytes()]
                self.assertEqual(changed, [f"parts.{alone}.weight"])

    def refused(self, pattern, module, optimizer):
        with self.assertRaisesRegex(ExportError, pattern):
            self.export(module, torch.randn(3, 4), optimizer=optimizer, check=False)

    def stepped(self, make):
        module = Named()
        optimizer = make(module.parameters())
        module(torch.randn(3, 4)).backward()
        optimizer.step()
        return module, optimizer

    def exported(self, module, optimizer, **options):
        return export_train_step(module, torch.randn(3, 4), self.path(), optimizer=optimizer, check=False, **options)

    def moments(self, report):
        return {(kind, name): value for (kind, name, _), value in checkpoints.state(report.checkpoint).items() if kind not in ("parameter", "buffer")}

    def test_an_optimizer_without_state_writes_no_checkpoint(self):
        for make in (torch.optim.AdamW, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)):
            module = Named()
            self.assertEqual(self.exported(module, make(module.parameters())).checkpoint, "")
        self.assertEqual(self.exported(*self.stepped(lambda p: torch.optim.SGD(p, lr=0.1))).checkpoint, "")  # without momentum there are no moments
        self.assertEqual(os.listdir(self.folder), ["model.pt2"])
        report = self.exported(*self.stepped(lambda p: torch.optim.SGD(p, lr=0.1)), steps_taken=7)  # but there may be a schedule
        self.assertEqual((os.path.basename(report.checkpoint), self.moments(report)), ("step-00000007", {}))

    def test_step_counts(self):
        module, optimizer = self.stepped(lambda p: torch.optim.AdamW(p))
        self.assertRegex(self.exported(module, optimizer).checkpoint, "step-00000001$")
        for count in (4, 4.0, torch.tensor(4), torch.tensor([4.0])):
            for entry in optimizer.state.values():
                entry["step"] = count
            self.assertRegex(self.exported(module, optimizer).checkpoint, "step-00000004$")
        for count in (4.5, -1):
            for entry in optimizer.state.values():
                entry["step"] = count
            self.refused("no number of steps", module, optimizer)
        with self.assertRaisesRegex(ExportError, "has counted 1 steps"):
            self.exported(*self.stepped(lambda p: torch.optim.AdamW(p)), steps_taken=3)
        module, optimizer = self.stepped(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
        report = self.exported(module, optimizer, checkpoint=self.path("sgd"))
        self.assertRegex(report.checkpoint, "sgd/step-00000001$")
        self.assertIn("SGD does not count its steps", report.notes[0])

    def test_steps_that_differ(self):
        module, optimizer = self.stepped(lambda p: torch.optim.AdamW(p))
        first = module.parts[Named.NAMES[0]].weight
        optimizer.state[first]["step"] += 2
        self.refused("different numbers of steps.*1 of .* and 4 more; 3 of", module, optimizer)
        del optimizer.state[first]  # has never had a gradient
        self.refused("different numbers of steps.*0 of", module, optimizer)

    def test_momentum_that_is_not_there_yet(self):
        module, optimizer = self.stepped(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
        names = {p: n for n, p in module.named_parameters()}
        first, second, *_ = names
        optimizer.state[first]["momentum_buffer"] = None
        del optimizer.state[second]
        moments = self.moments(self.exported(module, optimizer))
        self.assertEqual(len(moments), len(names))
        for parameter, name in names.items():
            held = torch.from_numpy(moments["momentum_buffer", name]).reshape(4, 4)
            expected = torch.zeros(4, 4) if parameter is first or parameter is second else optimizer.state[parameter]["momentum_buffer"]
            self.assertTrue(torch.equal(held, expected), name)

    def test_state_that_cannot_go_on(self):
        make = lambda p: torch.optim.AdamW(p)
        module, optimizer = self.stepped(lambda p: torch.optim.AdamW(p, amsgrad=True))
        self.refused("amsgrad=True is not supported", module, optimizer)
        optimizer.param_groups[0]["amsgrad"] = False
        self.refused("keeps max_exp_avg_sq for .*amsgrad", module, optimizer)
        for key, value, pattern in (
            ("exp_avg", torch.zeros(3, 4), r"has shape \[3, 4\], the parameter \[4, 4\]"),
            ("exp_avg_sq", torch.full((4, 4), float("inf")), "is not finite"),
            ("exp_avg", None, "has no exp_avg"),
        ):
            module, optimizer = self.stepped(make)
            next(iter(optimizer.state.values()))[key] = value
            self.refused(pattern, module, optimizer)
        self.assertEqual(os.listdir(self.folder), [])

    def test_moments_of_what_is_frozen_now(self):
        module, optimizer = self.stepped(lambda p: torch.optim.AdamW(p))
        frozen = Named.NAMES[1]
        module.parts[frozen].weight.requires_grad_(False)
        report = self.exported(module, optimizer)
        self.assertIn(f"the moments of parts.{frozen}.weight are left out", report.notes[0])
        self.assertNotIn(("exp_avg", f"parts.{frozen}.weight"), self.moments(report))
        self.assertEqual(len(self.moments(report)), 2 * (len(Named.NAMES) - 1))

    def test_a_headless_archive_has_no_weights_to_go_on_from(self):
        with self.assertRaisesRegex(ExportError, "headless archive has no weights"):
            self.exported(*self.stepped(lambda p: torch.optim.AdamW(p)), headless=True)

    def test_what_would_be_dropped_is_refused(self):
        module = Named()
        optimizer = torch.optim.AdamW(module.parameters())
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0)
        self.refused("scheduler", module, optimizer)
        optimizer = torch.optim.AdamW(module.parameters())
        optimizer.register_step_post_hook(lambda *_: None)
        self.refused("hooks", module, optimizer)

    def test_an_optimizer_of_the_users_own(self):
        class Mine(torch.optim.AdamW):
            def step(self, closure=None):
                return None

        module = Named()
        self.refused("Mine is not supported", module, Mine(module.parameters()))


if __name__ == "__main__":
    unittest.main()
