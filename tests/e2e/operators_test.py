"""Losses and norms of torch.nn in plain, bfloat16 and autocast modules, and every small preset in every element type: exported,
compiled with the default chain and trained; step 1 is eager's.

    build/venv/bin/python tests/e2e/operators_test.py          # DCC_SLOW_TESTS=1: all presets
"""

import os
import unittest

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import running
from export import export_train_step

DTYPES = ("float32", "bfloat16", "autocast-bfloat16")
PRESETS = ("mlp", "tiny-llama", "tiny-gpt2", "tiny-bert", "tiny-mixtral", "resnet18")


class Regression(torch.nn.Module):
    """A linear layer under a loss."""

    def __init__(self, loss, reduction):
        super().__init__()
        self.layer, self.loss, self.reduction = torch.nn.Linear(6, 4), loss, reduction

    def forward(self, x, y):
        guess = self.layer(x)
        if self.loss == "binary_cross_entropy":
            guess, y = torch.sigmoid(guess), torch.sigmoid(y)
        value = getattr(F, self.loss)(guess, y, reduction=self.reduction)
        return value.square().mean() if self.reduction == "none" else value


class Transposed(torch.nn.Module):
    """Losses, norms and softmax of operands that lie in another order than their dims."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 4)

    def forward(self, x, y):
        guess = self.layer(x).transpose(1, 2)
        soft = F.log_softmax(guess, 1) + F.logsigmoid(guess) + 2.0**guess
        return F.mse_loss(guess, y.transpose(1, 2)) + F.smooth_l1_loss(soft, y.transpose(1, 2))


class Norms(torch.nn.Module):
    """Every norm between layers that autocast runs in 16 bits."""

    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.batch, self.group = torch.nn.BatchNorm2d(8), torch.nn.GroupNorm(2, 8)
        self.second = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.layer, self.last = torch.nn.LayerNorm(8), torch.nn.Linear(8, 4)
        self.rms = torch.nn.RMSNorm(4)

    def forward(self, x, y):
        hidden = F.relu(self.batch(self.convolution(x)))
        hidden = self.group(self.second(hidden)) + hidden
        hidden = self.layer(F.linear(hidden.mean((2, 3)), self.layer.weight.diag()))
        return F.mse_loss(self.rms(self.last(hidden)).float(), y.float())


class Numbers(torch.nn.Module):
    """Sums, differences, products and quotients of 16-bit elements with numbers and with tensors without dims, kept to the bit."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype, self.layer = dtype, torch.nn.Linear(6, 4)
        self.scale = torch.nn.Parameter(torch.tensor(0.3))
        self.register_buffer("kept", torch.zeros(12, 40, 6, dtype=dtype))

    def forward(self, x, y):
        h, s = x.to(self.dtype), self.scale.detach()
        two = torch.add(h, h.flip(0), alpha=0.3), torch.sub(h, h.flip(0), alpha=0.3)
        by_number = h + 0.3, h - 0.3, 0.3 - h, h * 0.3, h / 0.3
        self.kept.copy_(torch.stack([*two, *by_number, h + s, s - h, s * h, h * s, s / (h * h + 1)]))
        return F.mse_loss(self.layer(x) * self.scale, y)


class OperatorsTest(unittest.TestCase):
    def test_numbers_are_rounded_where_pytorch_rounds_them(self):
        for dtype in (torch.bfloat16, torch.float16):
            with self.subTest(dtype):
                torch.manual_seed(0)
                module, inputs = Numbers(dtype), {"x": torch.randn(40, 6), "y": torch.randn(40, 4)}
                archive, data, plan = running.fresh(".pt2"), running.fresh(".safetensors"), running.fresh(".dcp")
                export_train_step(module, tuple(inputs.values()), archive)
                save_file(inputs, data)
                running.run([os.path.join(running.BIN, "dcc"), "compile", archive, "--world", "1", "--no-cache", "-o", plan])
                kept = load_file(running.train(plan, archive, 1, 1, data=data).saved)["kept"]
                module(**inputs)
                for i, (ours, theirs) in enumerate(zip(kept, module.kept, strict=True)):
                    # Of the first two PyTorch rounds the sum alone, with AVX2 (runtime/kernel/README.md): the last bit of a few differs.
                    self.assertLessEqual(int((ours != theirs).sum()), 8 if i < 2 else 0, i)

    def verify(self, module, inputs, bound, **options):
        """Trains one rank for a step on `inputs`; loss and norm are eager's, relative to `bound`."""
        archive, data = running.fresh(".pt2"), running.fresh(".safetensors")
        export_train_step(module, tuple(inputs.values()), archive, clip_norm=1e9, check=False, **options)
        save_file(inputs, data)
        plan = running.fresh(".dcp")
        running.run([os.path.join(running.BIN, "dcc"), "compile", archive, "--world", "1", "--no-cache", "-o", plan])
        row = running.train(plan, archive, 1, 1, data=data).steps[0]
        with torch.autocast("cpu", torch.bfloat16, enabled="autocast" in options):
            loss = module(*inputs.values())
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        norm = float(torch.sqrt(sum(g.double().square().sum() for g in gradients)))
        self.assertAlmostEqual(row["loss"], float(loss.detach()), delta=bound * abs(float(loss.detach())))
        self.assertAlmostEqual(row["grad_norm"], norm, delta=bound * norm)

    def test_losses(self):
        for loss in ("mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"):
            for reduction in ("mean", "sum", "none") if running.SLOW else ("mean",):
                with self.subTest(loss, reduction=reduction):
                    torch.manual_seed(0)
                    target = torch.rand(5, 4)
                    self.verify(Regression(loss, reduction), {"x": torch.randn(5, 6), "y": target}, 1e-6)

    def test_transposed_operands(self):
        torch.manual_seed(0)
        self.verify(Transposed(), {"x": torch.randn(3, 5, 6), "y": torch.randn(3, 5, 4)}, 1e-6)

    def test_norms(self):
        for dtype, bound in zip(DTYPES, (1e-6, 1e-2, 1e-2)):
            with self.subTest(dtype):
                torch.manual_seed(0)
                module, inputs = Norms().train(), {"x": torch.randn(2, 3, 6, 6), "y": torch.randn(2, 4)}
                if dtype == "bfloat16":
                    module, inputs = module.bfloat16(), {k: v.bfloat16() for k, v in inputs.items()}
                options = {"autocast": torch.bfloat16} if dtype == DTYPES[2] else {}
                self.verify(module, inputs, bound, **options)

    def test_scratch_on_lesser_processors(self):
        """A plan without a profile runs where kernels need more scratch than it estimates."""
        torch.manual_seed(0)
        archive, plan = running.fresh(".pt2"), running.fresh(".dcp")
        export_train_step(Norms().train(), (torch.randn(2, 3, 40, 40), torch.randn(2, 4)), archive, check=False)
        said = running.run([os.path.join(running.BIN, "dcc"), "compile", archive, "--world", "1", "--no-cache", "-o", plan]).stderr
        self.assertIn("estimated-scratch", said)
        losses = []
        for cpu, onednn in (("default", "SSE41"), ("avx2", "AVX2"), (None, "AVX512_CORE"), (None, None)):
            limits = {k: v for k, v in (("ATEN_CPU_CAPABILITY", cpu), ("ONEDNN_MAX_CPU_ISA", onednn)) if v}
            with self.subTest(**limits):
                losses.append(running.train(plan, archive, 1, 2, environment=limits).steps[1]["loss"])
                self.assertAlmostEqual(losses[-1], losses[0], delta=1e-3 * abs(losses[0]))

    def test_presets(self):
        presets = [(p, d) for p in PRESETS for d in DTYPES] if running.SLOW else [("tiny-bert", "autocast-bfloat16")]
        for preset, dtype in presets:
            with self.subTest(preset, dtype=dtype):
                archive, plan = running.archive(preset, "--dtype", dtype), running.fresh(".dcp")
                running.run([os.path.join(running.BIN, "dcc"), "compile", archive, "--world", "2", "--no-cache", "-o", plan])
                rows = running.train(plan, archive, 2, 2).steps
                self.assertEqual(len(rows), 2)


if __name__ == "__main__":
    unittest.main()
