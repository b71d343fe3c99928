"""Slices, their gradients and concatenations in fused kernels: the bits of kernels apart, PyTorch's numbers, and no copy left.

build/venv/bin/python tests/e2e/slices_test.py
"""

import math
import unittest

import torch
from safetensors.torch import save_file

import running
from dcc_export import export_train_step

SHAPE = (6, 3, 5, 16)  # batch, heads, tokens, dim
STEPS = 3


class Rotated(torch.nn.Module):
    """A rotary embedding between two products."""

    def __init__(self, dtype):
        super().__init__()
        torch.manual_seed(1)
        width = SHAPE[1] * SHAPE[3]
        self.first = torch.nn.Linear(width, width, bias=False, dtype=dtype)
        self.last = torch.nn.Linear(width, width, bias=False, dtype=dtype)
        angles = torch.arange(SHAPE[2])[:, None] / 3 ** torch.arange(SHAPE[3] // 2)
        self.register_buffer("cos", torch.cat((angles.cos(), angles.cos()), -1).to(dtype))
        self.register_buffer("sin", torch.cat((angles.sin(), angles.sin()), -1).to(dtype))

    def rotate(self, q):
        half = SHAPE[3] // 2
        return q * self.cos + torch.cat((-q[..., half:], q[..., :half]), -1) * self.sin

    def forward(self, x):
        q = self.first(x).view(-1, SHAPE[2], SHAPE[1], SHAPE[3]).transpose(1, 2)
        return self.last(self.rotate(q).transpose(1, 2).flatten(2)).float().square().mean()


class Shifted(Rotated):
    """Rows that move along the tokens, by one and around the end."""

    def rotate(self, q):
        return torch.cat((q[:, :, 2:], q[:, :, :2]), 2) * q.exp()


class Differences(Rotated):
    """Neighbours, padded with what is made of one: gradients that overlap."""

    def rotate(self, q):
        return torch.cat((q[:, :1].tanh(), q[:, 1:] - q[:, :-1]), 1) * self.cos


class ThreeParts(Rotated):
    """Of unequal parts, each made otherwise, and broadcast operands among what makes them."""

    def rotate(self, q):
        a, b, c = q[..., :5], q[..., 5:6], q[..., 6:]
        return torch.cat((-a * self.sin[:, :5], b.sigmoid() + b, c * self.cos[0, 0]), -1) + q


class Whole(Rotated):
    """Slices of a product that leave no element, whose gradients become parts again."""

    def rotate(self, q):
        y = q * self.sin
        return torch.cat((torch.nn.functional.silu(y[..., 8:]), y[..., :8]), -1) - self.cos * y[..., :1]


MODULES = (Rotated, Shifted, Differences, ThreeParts, Whole)


class SlicesTest(unittest.TestCase):
    def data(self, dtype, world):
        torch.manual_seed(7)
        x = torch.randn(STEPS * world * SHAPE[0], SHAPE[2], SHAPE[1] * SHAPE[3]).to(dtype)
        path = running.fresh(".safetensors")
        save_file({"x": x}, path)
        return x[: world * SHAPE[0]], path

    def operators(self, plan):
        return [each["op"] for program in running.inspect(plan)["programs"] for each in program["instructions"] if "op" in each]

    def compare(self, kind, dtype, world):
        model, path = kind(dtype), running.fresh(".pt2")
        first, data = self.data(dtype, world)
        export_train_step(model, (first[: SHAPE[0]],), path, check=False)
        config = running.train_config(optimizer={"kind": "sgd", "lr": 0.1})
        runs = []
        for chain in ("zero0", "no-fusion"):
            plan = running.compile_plan(path, world, chain, config=config)
            runs.append(running.train(plan, path, world, STEPS, "--poison", data=data))
            if chain == "zero0" and kind in (Rotated, Shifted):
                left = {"aten.cat.default", "aten.slice_backward.default", "aten.neg.default"}.intersection(self.operators(plan))
                self.assertEqual(left, set())
        self.assertEqual(runs[0].numbers(), runs[1].numbers())
        self.assertEqual(runs[0].tensors(), runs[1].tensors())
        loss = model(first)
        loss.backward()
        norm = math.sqrt(sum(p.grad.double().square().sum().item() for p in model.parameters()))
        bound = 1e-5 if dtype == torch.float32 else 1e-2
        self.assertAlmostEqual(runs[0].steps[0]["loss"], loss.item(), delta=bound * abs(loss.item()))
        self.assertAlmostEqual(runs[0].steps[0]["grad_norm"], norm, delta=bound * norm)

    def test_bits_of_kernels_apart_and_numbers_of_pytorch(self):
        for index, kind in enumerate(MODULES):
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(kind.__name__, dtype=dtype):
                    self.compare(kind, dtype, 1 + index % 2)


if __name__ == "__main__":
    unittest.main()
