"""A small net with what optimizers and exporters meet in practice: frozen parameters, a parameter used twice, buffers that
are read and buffers that a step changes, parameters smaller than a group of ranks, one without dims."""

import os
import sys

import torch
from torch.nn import functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
from dcc_export.workload import Workload

WORDS, WIDTH = 48, 24


class Parts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, WIDTH)
        self.frozen = torch.nn.Linear(WIDTH, WIDTH)
        self.frozen.requires_grad_(False)
        self.norm = torch.nn.BatchNorm1d(WIDTH)
        self.hidden = torch.nn.Linear(WIDTH, WIDTH)
        self.hidden.bias.requires_grad_(False)
        self.gain = torch.nn.Parameter(torch.tensor(1.0))
        self.shift = torch.nn.Parameter(torch.zeros(1, 3))
        self.register_buffer("tilt", torch.linspace(0.5, 1.5, WIDTH))
        self.register_buffer("table", torch.linspace(-0.1, 0.1, WIDTH), persistent=False)

    def forward(self, tokens, labels):
        x = self.embedding(tokens).flatten(0, 1)
        x = self.norm(self.frozen(x) * self.tilt) + self.table
        x = self.gain * torch.tanh(self.hidden(x)) + self.shift.mean()
        return F.cross_entropy(F.linear(x, self.embedding.weight), labels.flatten())


def workload(batch=4, length=8):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    inputs = {name: torch.randint(0, WORDS, (batch, length), generator=generator) for name in ("tokens", "labels")}
    roles = {name: {"role": "class", "low": 0, "high": WORDS} for name in inputs}
    return Workload(Parts().train(), inputs, roles, root="")
