"""Operators that are exported as others: the archive has eager PyTorch's bits, and dcrun trains it next to eager, in float32 and bfloat16.

build/venv/bin/python tests/e2e/export_rewritten_test.py
"""

import os
import unittest

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

import running
from export_case import ExportError, export_train_step
from reference import relative

ROWS = [True, False, True, True, False, False]


def written(h):
    """Through a view, and by masks."""
    h, chosen = h.clone(), torch.zeros(6, 6).bool()
    view = chosen[1:]
    view[2], chosen[0, 3], chosen[torch.eye(6).bool()] = True, True, True
    h[chosen] = h[0, 0] * 2
    h[torch.tensor(ROWS)] = h[:3] * 3
    return h


def pairs(h):
    i, j = torch.where(torch.ones(6, 6).tril(-1).bool())
    return h[i] * h[j]


DTYPES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}  # how near dcrun comes, relative
# {name: function of h [6, 6]}
FUNCTIONS = {
    "diag": lambda h: torch.diag(h) * h.diag(1).sum() * h.diag(-2).sum(),
    "diag of a row": lambda h: torch.diag(h[0], 1),
    "rot90": lambda h: torch.rot90(h) * h.rot90(-1) + h.rot90(2, (1, 0)) * torch.rot90(h, 4),
    "rot90 of other dims": lambda h: torch.rot90(h.view(6, 2, 3), 1, (2, 0)).reshape(-1),
    "mvlgamma": lambda h: torch.mvlgamma(h.abs() + 3, 2) + torch.special.multigammaln(h.abs() + 3, 4),
    "rrelu in evaluation": lambda h: F.rrelu(h, training=False) + F.rrelu(h, 0.3, 0.7),
    "logspace": lambda h: h * torch.logspace(0, 1, 6).to(h.dtype) + torch.logspace(start=-1, end=0.5, steps=6, base=2, dtype=h.dtype),
    "quantile": lambda h: h.float().quantile(0.55) + torch.quantile(h.float(), 0.3, dim=1, keepdim=True, interpolation="midpoint"),
    "quantiles": lambda h: torch.quantile(h.float(), torch.tensor([0.1, 0.6, 1.0]), dim=0) + h.float().nanquantile(0.4, 1, interpolation="nearest"),
    "cov": lambda h: torch.cov(h) + h[:4].T.cov(correction=0) + h[0].cov(),
    "corrcoef": lambda h: h.corrcoef() * torch.corrcoef(h.T),
    "combinations": lambda h: torch.combinations(h[0]).sum(0).prod() + torch.combinations(h[1], 3, with_replacement=True).prod(1),
    "mask": lambda h: h[torch.ones(6, 6).triu(1).bool()],
    "masks next to other indices": lambda h: h.view(2, 3, 6)[..., torch.tensor(ROWS)].sum() * h[torch.tensor(ROWS), torch.tensor([0, 1, 2])],
    "masked_select": lambda h: h.masked_select(torch.ones(6, 6).triu().bool()).sum() + torch.masked_select(h, torch.tensor(ROWS)),
    "written where a mask is": written,
    "places of a mask": pairs,
}


class Applied(nn.Module):
    def __init__(self, *functions):
        super().__init__()
        self.functions, self.layers = functions, nn.ModuleList(nn.Linear(6, 6) for _ in functions)

    def forward(self, x):
        return sum(function(layer(x)).float().square().mean() for function, layer in zip(self.functions, self.layers))


def made(dtype, *functions):
    torch.manual_seed(0)
    return Applied(*functions).to(dtype), torch.randn(6, 6).to(dtype)


class RewrittenTest(unittest.TestCase):
    def test_archives_are_eager(self):
        for name, function in FUNCTIONS.items():
            for dtype in DTYPES:
                with self.subTest(name, dtype=dtype):
                    report = export_train_step(*made(dtype, function), running.fresh(".pt2"))
                    if (name, dtype) != ("combinations", torch.bfloat16):  # whose gradients PyTorch sums in another order
                        self.assertIn("check: loss and every gradient equal eager exactly", report.check)

    def test_they_train(self):
        for dtype, bound in DTYPES.items():
            with self.subTest(dtype):
                module, x = made(dtype, *FUNCTIONS.values())
                model, data, dumped = running.fresh(".pt2"), running.fresh(".safetensors"), os.path.dirname(running.fresh())
                export_train_step(module, x, model, check=False)
                save_file({"x": x}, data)
                run = running.train(running.compile_plan(model, 1, 0), model, 1, 1, "--dump-gradients", dumped, data=data)
                loss = module(x)
                loss.backward()
                self.assertLess(relative(run.steps[0]["loss"], float(loss.detach())), bound)
                gradients = load_file(os.path.join(dumped, "gradients.safetensors"))
                for name, parameter in module.named_parameters():
                    ours, theirs = gradients[name].double().reshape(parameter.shape), parameter.grad.double()
                    self.assertLessEqual(float((ours - theirs).norm()), bound * float(theirs.norm()), name)

    def test_without_weights(self):
        for name, function in FUNCTIONS.items():
            with self.subTest(name):
                module, x = made(torch.float32, function)
                export_train_step(module.to("meta"), x, running.fresh(".pt2"), headless=True)

    def test_masks_of_buffers(self):
        def exported(function, **options):
            module, x = made(torch.float32, lambda h: function(module, h))
            module.register_buffer("mask", torch.tensor(ROWS))
            return export_train_step(module, x, running.fresh(".pt2"), **options)

        def twice(m, h):
            chosen = h[m.mask]
            m.mask.logical_not_()
            return chosen

        def before(m, h):
            m.mask = ~m.mask
            return h[m.mask]

        note = "the values of buffer mask decide a shape or a choice in the forward, and the step holds what they are now"
        for function in (
            lambda m, h: h[m.mask] * h[:, ~m.mask].sum(),
            lambda m, h: h * m.mask.sum().item() if m.mask.any() else h,
            lambda m, h: h[m.mask.clone().logical_not_()],
        ):
            report = exported(function, eval=True)
            self.assertIn("equal eager exactly", report.check)
            self.assertEqual([found[: len(note)] for found in report.notes], [note])
        self.assertIn("equal eager exactly", exported(lambda m, h: h[:, m.mask], dynamic_shapes={"x": {0: "batch"}}).check)
        for function in (twice, before):
            with self.assertRaisesRegex(ExportError, "the values of buffer mask decide .* which also writes it"):
                exported(function)

    def test_masks_that_are_not_constant(self):
        def filled(h, write):
            kept = torch.zeros(6)
            write(kept, h.detach()[0])
            return h[kept > 0]

        def by_data(kept, row):
            kept.data = row

        def by_view(kept, row):
            kept.view(2, 3)[0] = row[:3]

        for name, function in {
            "values": lambda h: h[h > 0],
            "random": lambda h: h[torch.rand(6) > 0.5],
            "made random": lambda h: h[torch.ones(6).uniform_() > 0.5],
            "item": lambda h: filled(h, lambda kept, row: kept.__setitem__(0, row[0])),
            "out": lambda h: filled(h, lambda kept, row: torch.add(row, 1, out=kept)),
            "view": lambda h: filled(h, by_view),
            "detached": lambda h: filled(h, lambda kept, row: kept.detach().copy_(row)),
            "in data": lambda h: filled(h, lambda kept, row: kept.data.copy_(row)),
            "data": lambda h: filled(h, by_data),
        }.items():
            with self.subTest(name), self.assertRaisesRegex(ExportError, "a value of a tensor decides control flow or a shape"):
                export_train_step(*made(torch.float32, function), running.fresh(".pt2"), check=False)

    def test_what_pytorch_refuses(self):
        for function in (lambda h: torch.quantile(h, 1.5), lambda h: torch.combinations(h), lambda h: h.int().rot90(1, (0, 0)) * h):
            with self.assertRaisesRegex(ExportError, "the module itself fails in PyTorch"):
                export_train_step(*made(torch.float32, function), running.fresh(".pt2"))

    def test_torch_is_as_it_was(self):
        before = torch.quantile, torch.cov, torch.combinations, torch.logspace
        export_train_step(*made(torch.float32, FUNCTIONS["cov"]), running.fresh(".pt2"))
        self.assertEqual((torch.quantile, torch.cov, torch.combinations, torch.logspace), before)
        self.assertNotIn("cov", vars(torch.Tensor))


if __name__ == "__main__":
    unittest.main()
