"""Random PyTorch modules, exported, with data and what eager PyTorch makes of them.

    build/venv/bin/python tests/random/modules.py FOLDER --seed S --count N [--seconds T]

Module number i of seed S is always the same. Per module FOLDER gets NAME.pt2 (its export is compared with eager by the exporter), NAME.safetensors (data)
and NAME.eager.json: the losses and norms of a few runs of eager PyTorch on that data, and how far two summation orders are apart there.
"""

import argparse
import contextlib
import json
import os
import random
import sys
import time

import torch
from safetensors.torch import save_file
from torch.nn import functional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
from dcc_export.api import export_train_step
from dcc_export.errors import ExportError

STEPS, MOST_RANKS, MOST_MICRO_BATCHES = 3, 4, 4
LOSS_FLOOR, NORM_FLOOR = 1e-5, 1e-4
# Said, because a module without training may not show it, and the exporter refuses what it cannot tell.
LABELS = {"role": "labels", "labels": "next"}


class Feed(torch.nn.Module):
    def __init__(self, draw, width):
        super().__init__()
        inner = draw.choice((3, width, 2 * width + 1))
        self.up = torch.nn.Linear(width, inner, bias=draw.random() < 0.5)
        self.down = torch.nn.Linear(inner, width, bias=draw.random() < 0.5)
        self.act = draw.choice((torch.tanh, functional.gelu, functional.silu))

    def forward(self, x, shared):
        return x + self.down(self.act(self.up(x)))


class Norm(torch.nn.Module):
    def __init__(self, draw, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width, elementwise_affine=draw.random() < 0.8)

    def forward(self, x, shared):
        return self.norm(x)


class Scalars(torch.nn.Module):
    """Parameters smaller than the world: without a dimension, and with one element."""

    def __init__(self, draw, width):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(0.5 + draw.random()))
        self.shift = torch.nn.Parameter(torch.full((1,), draw.random()))

    def forward(self, x, shared):
        return x * self.scale + self.shift


class Shared(torch.nn.Module):
    """Uses a parameter of the whole module, as the other blocks of its kind do."""

    def __init__(self, draw, width):
        super().__init__()
        self.twice = draw.random() < 0.5

    def forward(self, x, shared):
        y = torch.tanh(shared(x))
        return x + (shared(y) if self.twice else y)


class Frozen(torch.nn.Module):
    def __init__(self, draw, width):
        super().__init__()
        self.frozen = torch.nn.Linear(width, width)
        self.frozen.requires_grad_(False)
        self.free = torch.nn.Linear(width, width, bias=False)

    def forward(self, x, shared):
        return x + self.free(torch.tanh(self.frozen(x)))


class Buffered(torch.nn.Module):
    """A constant, and statistics that each forward changes."""

    def __init__(self, draw, width):
        super().__init__()
        self.register_buffer("constant", torch.linspace(0.5, 1.5, width), persistent=draw.random() < 0.5)
        self.norm = torch.nn.BatchNorm1d(width) if draw.random() < 0.4 else None

    def forward(self, x, shared):
        x = x * self.constant
        return x if self.norm is None else self.norm(x.flatten(0, 1)).view_as(x)


class Narrow(torch.nn.Module):
    """A block whose parameters and arithmetic are bfloat16."""

    def __init__(self, draw, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width).to(torch.bfloat16)

    def forward(self, x, shared):
        return x + self.linear(x.to(torch.bfloat16)).to(x.dtype)


class Attention(torch.nn.Module):
    def __init__(self, draw, width):
        super().__init__()
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x, shared):
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, dim=-1)
        mixed = torch.softmax(q @ k.transpose(-1, -2) / k.shape[-1] ** 0.5, dim=-1) @ v
        return x + self.out(mixed.squeeze(1))


class Dropped(torch.nn.Module):
    def __init__(self, draw, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
        self.drop = torch.nn.Dropout(0.2)

    def forward(self, x, shared):
        return x + self.drop(self.linear(x))


KINDS = (Feed, Feed, Norm, Scalars, Shared, Frozen, Buffered, Narrow, Attention, Dropped)


class RandomModule(torch.nn.Module):
    """Embedding or projection, blocks of random kinds, a head that may be the embedding again, one to three losses."""

    def __init__(self, draw):
        super().__init__()
        self.width = draw.choice((4, 5, 8, 12, 33))
        self.classes = draw.choice((7, 16, 50))
        self.from_tokens = draw.random() < 0.7
        if self.from_tokens:
            self.embedding = torch.nn.Embedding(self.classes, self.width)
        else:
            self.project = torch.nn.Linear(6, self.width)
        self.shared = torch.nn.Linear(self.width, self.width)
        if draw.random() < 0.2:
            self.shared.requires_grad_(False)
        kinds = [draw.choice(KINDS) for _ in range(draw.randint(1, 3))]
        repeats = draw.randint(1, 3)
        self.layers = torch.nn.ModuleList(kind(draw, self.width) for _ in range(repeats) for kind in kinds)
        self.tied = self.from_tokens and draw.random() < 0.6
        if not self.tied:
            self.head = torch.nn.Linear(self.width, self.classes, bias=draw.random() < 0.5)
        elif draw.random() < 0.2:
            self.embedding.weight.requires_grad_(False)
        if draw.random() < 0.3:
            self.unused = torch.nn.Parameter(torch.ones(draw.choice((1, 3, 40))))
        self.activity = draw.random() < 0.4
        self.early = draw.random() < 0.3
        self.spare = draw.random() < 0.3
        if not any(p.requires_grad for name, p in self.named_parameters() if name != "unused"):
            self.requires_grad_(True)

    def logits(self, x):
        return functional.linear(x, self.embedding.weight) if self.tied else self.head(x)

    def loss_of(self, x, labels):
        return functional.cross_entropy(self.logits(x).flatten(0, 1), labels.flatten())

    def forward(self, x, labels, spare=None):
        """`spare`: an input that nothing reads."""
        x = self.embedding(x) if self.from_tokens else self.project(x)
        loss = None
        for number, layer in enumerate(self.layers):
            x = layer(x, self.shared)
            if self.early and number == 0:
                loss = 0.3 * self.loss_of(x, labels)
            if self.activity and number + 1 == len(self.layers):
                term = 0.01 * x.float().pow(2).mean()
                loss = term if loss is None else loss + term
        last = self.loss_of(x, labels)
        return last if loss is None else last + loss

    def draws_numbers(self):
        return any(isinstance(layer, Dropped) for layer in self.layers)

    def rounds_to_bfloat16(self):
        return any(isinstance(layer, Narrow) for layer in self.layers)


def make(seed, number):
    """(module, rows of a micro-batch, tokens of a row), the same for the same arguments."""
    draw = random.Random(f"{seed} {number}")
    torch.manual_seed(draw.getrandbits(32))
    return RandomModule(draw).train(), draw.randint(1, 3), draw.choice((3, 8)), draw


def make_data(module, rows, length, generator):
    spare = {"spare": torch.rand((rows, 5), generator=generator)} if module.spare else {}
    labels = torch.randint(0, module.classes, (rows, length), generator=generator)
    if module.from_tokens:
        return {"x": torch.randint(0, module.classes, (rows, length), generator=generator), "labels": labels, **spare}
    return {"x": torch.rand((rows, length, 6), generator=generator) * 2 - 1, "labels": labels, **spare}


def gradients(module, data, rows, pairs, contributions, flip):
    """Mean loss, and the mean gradient of each parameter that has one, in float32."""
    total, sums = 0.0, {}
    for first in pairs:
        batch = {name: value[first : first + rows] for name, value in data.items()}
        if flip:
            batch = {name: value.flip(0) for name, value in batch.items()}
        module.zero_grad(set_to_none=True)
        loss = module(**batch)
        loss.backward()
        total += float(loss.detach())
        for name, parameter in module.named_parameters():
            if parameter.grad is not None:
                sums[name] = sums.get(name, 0) + parameter.grad.float()
    return total / contributions, {name: value / contributions for name, value in sums.items()}


def train_eagerly(module, start, data, rows, case, flip):
    """(losses, norms) of STEPS steps of eager PyTorch; `flip`: in another order of sums."""
    module.load_state_dict(start)
    trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
    masters = {n: p.detach().float().clone().requires_grad_() for n, p in trained.items()}
    if case["optimizer"] == "sgd":
        optimizer = torch.optim.SGD(masters.values(), lr=1e-2, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(masters.values(), lr=1e-2)
    losses, norms = [], []
    contributions = case["world"] * case["accumulation"]
    for step in range(STEPS):
        pairs = [(step * contributions + i) * rows for i in range(contributions)]
        loss, mean = gradients(module, data, rows, pairs[::-1] if flip else pairs, contributions, flip)
        for name, master in masters.items():
            master.grad = mean.get(name)
        norm = torch.nn.utils.clip_grad_norm_(list(masters.values()), 0.5 if case["clip"] else float("inf"))
        optimizer.step()
        with torch.no_grad():
            for name, parameter in trained.items():
                parameter.copy_(masters[name])
        losses.append(loss)
        norms.append(float(norm))
    return losses, norms


def distance(one, other):
    return max(abs(a - b) / max(abs(b), 1e-30) for a, b in zip(one, other, strict=True))


def eager_cases(module, data, rows, draw):
    start = {k: v.clone() for k, v in module.state_dict().items()}
    cases = []
    for optimizer in ("adamw", "sgd"):
        case = {"world": draw.randint(1, MOST_RANKS), "accumulation": draw.randint(1, MOST_MICRO_BATCHES), "optimizer": optimizer, "clip": draw.random() < 0.5}
        given = train_eagerly(module, start, data, rows, case, flip=False)
        other = train_eagerly(module, start, data, rows, case, flip=True)
        narrow = 100 if module.rounds_to_bfloat16() else 1  # one flipped rounding is 1e-3 of a number
        bounds = [max(floor * narrow, 3 * distance(a, b)) for floor, a, b in zip((LOSS_FLOOR, NORM_FLOOR), given, other, strict=True)]
        cases.append({**case, "losses": given[0], "norms": given[1], "loss_bound": bounds[0], "norm_bound": bounds[1]})
    module.load_state_dict(start)
    return cases


def write(folder, seed, number):
    """The exporter's line; raises ExportError if it refuses the module."""
    module, rows, length, draw = make(seed, number)
    generator = torch.Generator().manual_seed(draw.getrandbits(32))
    path = os.path.join(folder, f"m{number:03d}")
    data = make_data(module, rows * MOST_RANKS * MOST_MICRO_BATCHES * STEPS, length, generator)
    example = {name: value[:rows] for name, value in data.items()}
    report = export_train_step(module, example, path + ".pt2", roles={"labels": LABELS if module.from_tokens else "class"})
    save_file({name: value.contiguous() for name, value in data.items()}, path + ".safetensors")
    with open(path + ".eager.json", "w") as file:
        json.dump({"cases": [] if module.draws_numbers() else eager_cases(module, data, rows, draw)}, file)
    return report.check


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.makedirs(arguments.folder, exist_ok=True)
    started, refused = time.monotonic(), []
    for number in range(arguments.count):
        if number > 0 and time.monotonic() - started > arguments.seconds:
            break
        try:
            with contextlib.redirect_stderr(sys.stdout):
                write(arguments.folder, arguments.seed, number)
        except ExportError as error:
            refused.append(f"module {number} of seed {arguments.seed}: {error}")
    for line in refused:
        print(f"REFUSED {line}")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
