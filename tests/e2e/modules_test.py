"""The modules and losses of torch.nn: exported, compiled by the plain command, trained on two ranks, compared with eager PyTorch.

build/venv/bin/python tests/e2e/modules_test.py                    # a quarter of the cases in one net, another one each day
DCC_SLOW_TESTS=1 build/venv/bin/python tests/e2e/modules_test.py   # all cases of module_cases.py, then each alone
build/venv/bin/python tests/e2e/modules_test.py LSTM "huber"       # cases by name, alone
"""

import datetime
import os
import sys
import unittest

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

import running
from export_case import export_train_step
from module_cases import BATCH, CASES, CLASSES, VOCABULARY, Case, Function, inputs
from reference import compare_gradients, relative

from dcc_export import ExportError

WORLD, STEPS, LR, MOMENTUM, CLIP = 2, 3, 0.05, 0.9, 1.0
FLOOR = {"loss": 1e-5, "norm": 1e-4}
NETS = 4  # every NETS-th case is in one net


class Together(nn.Module):
    """The sum of the losses of several cases."""

    def __init__(self, names):
        super().__init__()
        self.cases = nn.ModuleList(CASES[name]() for name in names)

    def forward(self, x, ids, labels):
        return sum(case(x, ids, labels) for case in self.cases)


def build(names):
    """The same module each time; lazy layers get their shape from a first call."""
    torch.manual_seed(0)
    module = Together(names)
    module(**inputs(BATCH))
    torch.manual_seed(1)
    for parameter in module.parameters():
        nn.init.uniform_(parameter, -0.3, 0.3)
    return module


def eager(names, data, order=1):
    """Losses, norms, and the averaged gradients of step 1. Each rank has its own buffers. order: -1 sums ranks and rows backwards."""
    ranks = [build(names) for _ in range(WORLD)]
    optimizers = [torch.optim.SGD(rank.parameters(), lr=LR, momentum=MOMENTUM) for rank in ranks]
    losses, norms, first = [], [], {}
    for step in range(STEPS):
        total = 0.0
        for index in range(WORLD)[::order]:
            begin = (step * WORLD + index) * BATCH
            rows = {n: t[begin : begin + BATCH].flip(0) if order < 0 else t[begin : begin + BATCH] for n, t in data.items()}
            loss = ranks[index](**rows)
            loss.backward()
            total += float(loss.detach()) / WORLD
        for parameters in zip(*(rank.parameters() for rank in ranks), strict=True):
            if parameters[0].grad is not None:
                mean = sum(p.grad for p in parameters[::order]) / WORLD
                for parameter in parameters:
                    parameter.grad = mean.clone()
        if step == 0:
            first = {n: p.grad.clone() for n, p in ranks[0].named_parameters() if p.grad is not None}
        norms.append(float([nn.utils.clip_grad_norm_(rank.parameters(), CLIP) for rank in ranks][0]))
        losses.append(total)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return losses, norms, first


REFUSED = {
    "ctc": ("_ctc_loss", lambda h, x, y: F.ctc_loss(h[:, None].expand(4, 4, 5).log_softmax(-1), y[:, None].clamp(1), (4,) * 4, (1,) * 4)),
    "complex spectrum": ("of complex numbers cannot be exported", lambda h, x, y: torch.fft.rfft(h).abs().mean()),
    "times i": ("of complex numbers cannot be exported", lambda h, x, y: (torch.complex(h, h) * 1j).real.mean()),
}


def verify(test, names):
    """Trains with dcrun and with eager PyTorch, and compares every step."""
    module = build(names)
    optimizer = torch.optim.SGD(module.parameters(), lr=LR, momentum=MOMENTUM)
    model, plan, data = running.fresh(".pt2"), running.fresh(".dcp"), inputs(BATCH * WORLD * STEPS, seed=1)
    export_train_step(
        module,
        inputs(BATCH),
        model,
        optimizer=optimizer,
        clip_norm=CLIP,
        check=False,
        roles={
            "x": {"role": "float", "low": -1.0, "high": 1.0},
            "ids": {"role": "class", "low": 0, "high": VOCABULARY},
            "labels": {"role": "class", "low": 0, "high": CLASSES},
        },
    )
    running.run([os.path.join(running.BIN, "dcc"), "compile", model, "--world", str(WORLD), "--no-cache", "-o", plan])
    file, dumped = running.fresh(".safetensors"), os.path.dirname(running.fresh())
    save_file(data, file)
    run = running.train(plan, model, WORLD, STEPS, "--dump-gradients", dumped, data=file)
    losses, norms, gradients = eager(names, data)
    other = eager(names, data, order=-1)
    for name, ours, theirs, turned in (("loss", "loss", losses, other[0]), ("norm", "grad_norm", norms, other[1])):
        spread = max(relative(a, b) for a, b in zip(turned, theirs))
        for step, value in enumerate(theirs):
            bound = max(FLOOR[name], 3 * spread)
            test.assertLessEqual(relative(run.steps[step][ours], value), bound, f"{name} of step {step + 1}")
    ratio, where = compare_gradients(load_file(os.path.join(dumped, "gradients.safetensors")), gradients, [], True)
    test.assertLessEqual(ratio, 1.0, where)


class ModulesTest(unittest.TestCase):
    def test_several_in_one_net(self):
        names, today = list(CASES), datetime.date.today().toordinal() % NETS
        for first in range(NETS) if running.SLOW else [today]:
            with self.subTest(", ".join(names[first::NETS])):
                verify(self, names[first::NETS])

    @unittest.skipUnless(running.SLOW, "set DCC_SLOW_TESTS=1")
    def test_each_alone(self):
        for name in CASES:
            with self.subTest(name):
                verify(self, [name])

    def test_refused(self):
        """Losses that look at values, or compute with complex numbers otherwise than pairs of real ones: each with a sentence, before anything is written."""
        for name, (pattern, compute) in REFUSED.items():
            with self.subTest(name):
                module = Case(None, Function(lambda m, h, x, y, compute=compute: compute(h, x, y)), CLASSES)
                module(**inputs(BATCH))
                with self.assertRaisesRegex(ExportError, pattern):
                    export_train_step(module, inputs(BATCH), running.fresh(".pt2"))


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in CASES:
        for chosen in sys.argv[1:]:
            verify(unittest.TestCase(), [chosen])
            print(f"{chosen}: agrees")
    else:
        unittest.main()
