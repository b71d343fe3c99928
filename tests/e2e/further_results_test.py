"""Values of the forward phase that kernels of the backward phase give again (`fuse-elementwise=9`): the bits of plans that keep them.

build/venv/bin/python tests/e2e/further_results_test.py
"""

import unittest

import torch
from torch import nn
from torch.nn import functional as F

import bits_case
import running
from export_case import export_train_step

ROWS, NARROW, WIDE = 16, 32, 96
WORLD, STEPS = 2, 3


class Gated(nn.Module):
    """An MLP whose down projection reads silu(gate) * up."""

    def __init__(self, layers=3):
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleList([nn.Linear(NARROW, WIDE), nn.Linear(NARROW, WIDE), nn.Linear(WIDE, NARROW)]) for _ in range(layers))

    def forward(self, x, y):
        for gate, up, down in self.layers:
            x = x + down(F.silu(gate(x)) * up(x))
        return F.mse_loss(x, y)


class Chunked(nn.Module):
    """Gate and up are parts of one product, and their gradients are put in place in it."""

    def __init__(self, layers=3):
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleList([nn.Linear(NARROW, 2 * WIDE), nn.Linear(WIDE, NARROW)]) for _ in range(layers))

    def forward(self, x, y):
        for both, down in self.layers:
            gate, up = both(x).chunk(2, -1)
            x = x + down(F.silu(gate) * up)
        return F.mse_loss(x, y)


class Saved(torch.autograd.Function):
    """Saves a product that its forward does not read."""

    @staticmethod
    def forward(ctx, gate, up, weight):
        activated = F.silu(gate)
        ctx.save_for_backward(gate, up, weight, activated, up * activated)
        return (activated * up) @ weight

    @staticmethod
    def backward(ctx, gradient):
        gate, up, weight, activated, kept = ctx.saved_tensors
        back = gradient @ weight.t()
        of_up, sigmoid = back * activated, torch.sigmoid(gate)
        return back * up * (sigmoid * (1 + gate * (1 - sigmoid))), of_up, kept.t() @ gradient


class SavedAlone(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(NARROW, WIDE), nn.Linear(NARROW, WIDE)
        self.weight = nn.Parameter(torch.randn(WIDE, NARROW) * 0.1)

    def forward(self, x, y):
        return F.mse_loss(x + Saved.apply(self.gate(x), self.up(x), self.weight), y)


class ReadByGroups(nn.Module):
    """What reads one of the values is a member of another kernel, which stays where it is."""

    def __init__(self):
        super().__init__()
        for name in ("z", "g", "u", "c", "k", "l"):
            setattr(self, name, nn.Linear(NARROW, WIDE, bias=False))
        self.first, self.second = nn.Linear(WIDE, NARROW, bias=False), nn.Linear(WIDE, NARROW, bias=False)

    def forward(self, x, y):
        z, a, b, c, k, m = self.z(x), F.silu(self.g(x)), self.u(x), self.c(x), self.k(x), self.l(x)
        product = a * b
        other = F.gelu(product.detach())
        second, first = self.second(other * y), self.first(product)
        return torch.tanh(z + k * m + other * c).sum() * 0.1 + first.square().sum() + second.square().sum()


class FurtherResults(unittest.TestCase):
    def plan(self, model, fuse, zero):
        chain = bits_case.TO_SCHEDULE.format(zero).replace("fuse-elementwise,", fuse) + ",layout-arenas"
        return running.compile_plan(model, WORLD, chain)

    def further(self, plan):
        """How many values fused kernels give again."""
        shown = running.inspect(plan)
        names = [tensor["name"] for tensor in shown["tensors"]]
        instructions = [one for program in shown["programs"] for one in program["instructions"]]
        made = {names[tensor] for one in instructions if one.get("provider") == "fused" for tensor in one["writes"]}
        return sum(name.startswith("again.") for name in made)

    def test_the_bits_are_those_of_plans_that_keep_them(self):
        for subject, uses in ((Gated, True), (Chunked, False), (SavedAlone, True), (ReadByGroups, True)):
            with self.subTest(subject.__name__):
                torch.manual_seed(0)
                module, model = subject(), running.fresh(".pt2")
                inputs = (torch.randn(ROWS, NARROW), torch.randn(ROWS, WIDE if subject is ReadByGroups else NARROW))
                export_train_step(module, inputs, model, optimizer=torch.optim.AdamW(module.parameters(), lr=1e-3), clip_norm=1.0)
                for zero in (0, 3):
                    outcomes = []
                    for fuse in ("", "fuse-elementwise=8,", "fuse-elementwise=9,"):
                        plan = self.plan(model, fuse, zero)
                        run = running.train(plan, model, WORLD, STEPS, "--poison")
                        outcomes.append((run.numbers(), run.tensors()))
                    self.assertEqual(self.further(plan) > 0, uses)
                    self.assertEqual(outcomes[1], outcomes[0])
                    self.assertEqual(outcomes[2], outcomes[0])

    def test_less_is_kept(self):
        for subject in (Gated, Chunked):
            with self.subTest(subject.__name__):
                torch.manual_seed(0)
                module, model = subject(6), running.fresh(".pt2")
                inputs = (torch.randn(1024, NARROW), torch.randn(1024, NARROW))
                export_train_step(module, inputs, model, optimizer=torch.optim.AdamW(module.parameters(), lr=1e-3), clip_norm=1.0)
                eight, nine = (running.inspect(self.plan(model, f"fuse-elementwise={n},", 3))["arena_bytes"][0] for n in (8, 9))
                self.assertLessEqual(nine, 0.9 * eight if subject is Gated else eight)


if __name__ == "__main__":
    unittest.main()
