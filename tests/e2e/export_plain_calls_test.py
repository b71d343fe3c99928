"""What changes how PyTorch computes and not what: compiled functions, checkpoints, validated distributions; bags with equal rows.

build/venv/bin/python tests/e2e/export_plain_calls_test.py
"""

import math
import unittest

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import running
from export_case import ExportError, description, export_train_step

X, LABELS = torch.linspace(-1, 1, 24).view(4, 6), torch.tensor([0, 2, 1, 1])


class Calls(nn.Module):
    """`compute(module, x)` gives scores of three classes."""

    def __init__(self, compute, **modules):
        super().__init__()
        self.compute, self.inner, self.out = compute, nn.Linear(6, 6), nn.Linear(6, 3)
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x, labels):
        return F.cross_entropy(self.compute(self, x), labels)


def exported(module, inputs=(X, LABELS)):
    """Path of the archive, whose loss and gradients the export has compared with the module's own."""
    path = running.fresh(".pt2")
    report = export_train_step(module, inputs, path)
    assert report.check.startswith("check: loss and every gradient"), report.check
    return path


class PlainCallsTest(unittest.TestCase):
    def test_compiled(self):
        """As functions are decorated and modules compiled in place; both stay compiled."""
        compiled = torch.compile(lambda x: torch.tanh(x) * 2, backend="eager")
        module = Calls(lambda m, x: m.out(compiled(m.inner(x))))
        module.inner.compile(backend="eager")
        exported(module)
        self.assertIsNotNone(module.inner._compiled_call_impl)

    def test_what_torch_compile_returned(self):
        """As the module or inside of it: the archive is that of what was compiled, under its names."""

        def compiled(module):
            return torch.compile(module, backend="eager")

        def made(change):
            torch.manual_seed(0)
            return change(Calls(lambda m, x: m.out(m.inner(x)), inner=nn.Sequential(nn.Linear(6, 6), nn.Tanh())))

        def grandchild(module):
            module.inner[0] = compiled(module.inner[0])
            return module

        def child(module):
            module.inner = compiled(module.inner)
            return module

        def in_place(module):
            module.compile(backend="eager")
            return module

        def listed(module):
            layers = [compiled(module.inner)]
            module.compute = lambda m, x: m.out(layers[0](x))
            return module

        def archive(module):
            path = running.fresh(".pt2")
            optimizer = torch.optim.AdamW([{"params": list(module.parameters())[:1], "lr": 0.5}, {"params": list(module.parameters())[1:]}])
            names = list(module.state_dict())
            report = export_train_step(module, (X, LABELS), path, optimizer=optimizer, eval=True)
            self.assertIn("check: loss and every gradient equal eager exactly", report.check)
            self.assertEqual(report.notes, [])
            self.assertEqual(list(module.state_dict()), names)  # it stays compiled
            with open(path, "rb") as file:
                return file.read()

        plain = archive(made(lambda m: m))
        for name, change in (
            ("the module", compiled),
            ("inside of it", child),
            ("inside of each other", lambda m: compiled(child(grandchild(m)))),
            ("in place", in_place),
            ("in a list", listed),
        ):
            with self.subTest(name):
                self.assertEqual(archive(made(change)), plain)

    def test_hooks_of_what_torch_compile_returned(self):
        """They run in eager, and what was compiled lacks them."""
        module = Calls(lambda m, x: m.out(m.inner(x)))
        module.inner = torch.compile(module.inner, backend="eager")
        module.inner.register_forward_hook(lambda m, args, result: result * 2)
        whole = torch.compile(Calls(lambda m, x: m.out(x)), backend="eager")
        whole.register_forward_pre_hook(lambda m, args: None)
        for name, compiled in (("inner", module), ("the module", whole)):
            with self.assertRaisesRegex(ExportError, f"^{name} has a hook on what torch.compile returned.*register it there"):
                exported(compiled)

    def test_reentrant_checkpoint(self):
        exported(Calls(lambda m, x: m.out(checkpoint(lambda h: m.inner(h).tanh(), m.inner(x), use_reentrant=True))))
        self.assertTrue(issubclass(torch.utils.checkpoint.CheckpointFunction, torch.autograd.Function))

    def test_distributions(self):
        def compute(m, x):
            scores = m.out(x)
            likely = torch.distributions.Normal(m.inner(x), 0.5, validate_args=True).log_prob(x).sum(-1, keepdim=True)
            return scores + likely + torch.distributions.Categorical(logits=scores).entropy()[:, None]

        exported(Calls(compute))
        with self.assertRaises(ValueError):
            torch.distributions.Normal(0.0, -1.0, validate_args=True)

    def test_gaussian_losses(self):
        """Of variances of the target's shape, of one for each row, and of a number."""
        for shape in (lambda v: v, lambda v: v.mean(-1)):
            losses = nn.GaussianNLLLoss(full=True, eps=0.3)
            exported(Calls(lambda m, x: m.out(x) * losses(m.inner(x), x, shape(m.inner(x).square())) + F.gaussian_nll_loss(m.inner(x), x, 0.5)))
        with self.assertRaisesRegex(ValueError, "negative"):
            F.gaussian_nll_loss(X, X, -torch.ones_like(X))

    def test_bags_of_equal_rows(self):
        """The gradient of a maximum is the first one's; rows of zeros, as zero initialisation leaves them, are equal."""
        for padding in (None, 1):
            with self.subTest(padding):
                bag = nn.EmbeddingBag(5, 6, mode="max", padding_idx=padding)
                nn.init.zeros_(bag.weight)
                exported(Calls(lambda m, x: m.out(m.bag(x)), bag=bag), (torch.tensor([[3, 0, 2], [1, 4, 4], [0, 1, 2], [1, 1, 1]]), LABELS))
        bag = nn.EmbeddingBag(5, 6, mode="sum", scale_grad_by_freq=True)
        with self.assertRaisesRegex(ExportError, "scale_grad_by_freq cannot be exported; use an Embedding"):
            exported(Calls(lambda m, x: m.out(m.bag(x)), bag=bag), (torch.tensor([[3, 0, 2]] * 4), LABELS))

    def test_margin_losses(self):
        """Also where a margin is kept exactly: there the loss is 0, and so is its gradient."""

        def listed(m, x, labels):
            lists = torch.stack([labels, (labels + 1) % 3, -torch.ones_like(labels)], 1)
            h = m.out(x)
            rows = (
                F.multilabel_margin_loss(h, lists, reduction="none").mean()
                + F.multilabel_margin_loss(h, lists.roll(1, 1))
                + F.multilabel_margin_loss(h[0], lists[0])
            )
            single = F.multi_margin_loss(h, labels, p=2, margin=0.5, weight=x[0, :3].abs(), reduction="sum") + F.multi_margin_loss(h[1], labels[1])
            return rows + single + F.multi_margin_loss(h, labels, margin=0.0)

        class Margins(Calls):
            def forward(self, x, labels):
                return self.compute(self, x, labels)

        module = Margins(listed)
        for scores in ("drawn", "equal"):
            with self.subTest(scores):
                export_train_step(module, (X, LABELS), running.fresh(".pt2"))  # compares with eager, within rounding
                nn.init.zeros_(module.out.weight)
                nn.init.zeros_(module.out.bias)

    def test_linear_interpolations(self):
        """With scales that keep the size of a dim, which PyTorch's kernels leave alone then."""

        def compute(m, x):
            rows = m.inner(x)[None]  # [1, 4, 6]
            planes = F.interpolate(rows[None], scale_factor=(1.1, 2.0), mode="bilinear").view(4, 12)[:, 3:9]
            lines = F.interpolate(rows, scale_factor=1.1, mode="linear") + F.interpolate(rows, scale_factor=1.1, mode="linear", align_corners=True)
            solid = F.interpolate(rows.view(1, 1, 2, 3, 4), scale_factor=(1.1, 2.0, 1.2), mode="trilinear").flatten()[:24].view(4, 6)
            return m.out(planes + lines[0] + solid)

        export_train_step(Calls(compute), (X, LABELS), running.fresh(".pt2"))  # compares with eager, within rounding

    def test_softshrink_in_16_bits(self):
        """Near the threshold nothing may be lost."""
        shrink = torch.nn.Softshrink(0.3)
        for dtype in (torch.bfloat16, torch.float16):
            with self.subTest(dtype):
                module = Calls(lambda m, x, dtype=dtype: m.out(shrink(m.inner(x).to(dtype)).float() * 1e3))
                nn.init.zeros_(module.inner.weight)
                nn.init.constant_(module.inner.bias, 0.31)
                export_train_step(module, (X, LABELS), running.fresh(".pt2"))  # compares with eager in float32's bound

    def test_infinite_inputs(self):
        """A mask that is added to scores, as a separate input: its range is that of its finite numbers."""

        class Masked(Calls):
            def forward(self, x, mask, labels):
                return F.cross_entropy(self.out((self.inner(x) + mask).softmax(-1)), labels)

        mask = torch.zeros(4, 6).masked_fill(torch.arange(6) > 3, -math.inf)
        path = exported(Masked(None), (X, mask, LABELS))
        self.assertEqual([(i["low"], i["high"]) for i in description(path)["inputs"]][1], (0.0, 1.0))


if __name__ == "__main__":
    unittest.main()
