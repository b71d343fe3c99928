"""Archives whose records of tensors are damaged one at a time: refused with a sentence, or trained with the numbers of the undamaged one.

    build/venv/bin/python tests/e2e/records.py [--seed S] [--seconds T] [--net NAME] [--every]

A record is what model.json says about a value: sizes, strides, offset, element type. Nothing computes from it when PyTorch runs the graph, so nothing may
believe it. `--every` damages each value once in each way that fits it, in place of a random sample. The seed is printed.
"""

import argparse
import copy
import functools
import json
import math
import random
import re
import sys
import time
import zipfile

import jobs
import running
import torch
from torch import nn
from torch.nn import functional
from dcc_export import export_train_step

BATCH = 4
REFUSALS = (65, 78, 80, 81)


class Views(nn.Module):
    """Views of views, stride 0, dims of one element, slices with steps, windows, diagonals, transposed weights."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.scale = nn.Linear(12, 12), nn.Linear(12, 6, bias=False), nn.Parameter(torch.ones(1, 6))

    def forward(self, x, y):
        h = self.a(x).view(BATCH, 3, 4).transpose(1, 2)
        first, second = h.split([1, 3], dim=1)
        h = (second * first.expand(-1, 3, -1)).permute(2, 0, 1)
        h = h[:, :, ::2].unsqueeze(1) + torch.stack(h.unbind(2)[:2], 2).unsqueeze(1)
        square = h.squeeze(1).reshape(6, BATCH).t() @ self.b.weight[:, :6].t()
        windows = square.unfold(1, 3, 1).sum(2) + square.as_strided((BATCH, 4), (6, 1), 1)
        corner = torch.diagonal(windows, 0, 0, 1)
        return functional.cross_entropy(square * self.scale, y) + (corner * corner.detach()).mean()


class Images(nn.Module):
    """Convolutions whose memory is ordered by channels last."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 1), nn.Linear(4, 6)

    def forward(self, x, y):
        h = self.first(x.to(memory_format=torch.channels_last))
        h = functional.gelu(self.second(functional.max_pool2d(h, 2)))
        return functional.cross_entropy(self.head(h.mean((2, 3))), y)


class Mutated(nn.Module):
    """Writes into views, which an export turns into scatters and copies."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(6, 8), nn.Linear(8, 6)

    def forward(self, x, y):
        h = self.embed(y).repeat(1, 2) * x[:, :1]
        h[:, 1:5].mul_(2)
        h.t()[3].add_(x[:, 2])
        rows = torch.zeros_like(h[:, :8])
        rows[1] = h[0, 8:]
        rows.diagonal().copy_(h.select(1, 2))
        kept = torch.cat([h[:, :4], rows[:, 4:]], 1)
        return functional.cross_entropy(self.out(functional.softplus(kept.t()).t()), y)


class Waves(nn.Module):
    """Complex numbers, which our exporter writes as pairs of real ones."""

    def __init__(self):
        super().__init__()
        self.up, self.head = nn.Linear(12, 12), nn.Linear(6, 6)

    def forward(self, x, y):
        waves = torch.view_as_complex(self.up(x).view(BATCH, 6, 2))
        turned = waves * torch.polar(torch.ones(6), torch.arange(6.0))
        return functional.cross_entropy(self.head(torch.view_as_real(turned).select(2, 0)), y)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.norm, self.head = nn.Linear(4, 12), nn.LayerNorm(4), nn.Linear(4, 6)

    def forward(self, x, y):
        q, k, v = self.project(x.view(BATCH, 3, 4)).view(BATCH, 3, 3, 2, 2).permute(2, 0, 3, 1, 4).unbind(0)
        h = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(BATCH, 3, 4)
        return functional.cross_entropy(self.head(self.norm(h))[:, -1], y)


def random_view(draw, x):
    """A view of x by one random operator."""
    dim = draw.randrange(x.dim()) if x.dim() else 0
    other, size = (draw.randrange(x.dim()), x.shape[dim]) if x.dim() else (0, 1)
    choices = [
        lambda: x.unsqueeze(draw.randrange(-x.dim() - 1, x.dim() + 1)),
        lambda: x.expand(draw.choice((1, 2)), *x.shape),
        lambda: x.squeeze(),
        lambda: x.detach(),
    ]
    if x.dim():
        cut = draw.randint(0, size)
        choices += [
            lambda: x.permute(draw.sample(range(x.dim()), x.dim())),
            lambda: x.transpose(dim, other - x.dim()),
            lambda: x.narrow(dim, cut, size - cut) if cut < size else x,
            lambda: x[(slice(None),) * dim + (slice(draw.randint(-size, 0), None, draw.randint(1, 3)),)],
            lambda: x.select(dim, draw.randrange(-size, size)),
            lambda: draw.choice(x.split(draw.randint(1, size), dim)),
            lambda: draw.choice([p for p in x.split([cut, size - cut], dim) if p.numel()]),
            lambda: draw.choice(x.unbind(dim)),
            lambda: x.unfold(dim, draw.randint(1, size), draw.randint(1, 2)),
            lambda: x.squeeze(dim),
            lambda: x.flatten(0, 1).unflatten(0, x.shape[:2]) if x.dim() > 1 and x.is_contiguous() else x,
            lambda: x.view(*x.shape[:-1], -1, 1, x.shape[-1]),
            lambda: x.view(-1) if x.is_contiguous() else x,
            lambda: x.diagonal(draw.choice((-1, 0, 1)) if min(x.shape[dim], x.shape[other]) > 1 else 0, dim, other) if dim != other else x,
        ]
    if x.dim() == 2:
        choices.append(x.t)
    return draw.choice(choices)()


class Chains(nn.Module):
    """Random views of random views of one parameter; the loss weighs elements by their place in each view."""

    def __init__(self, seed, count=25, length=6):
        super().__init__()
        self.seed, self.count, self.length = seed, count, length
        self.weight = nn.Parameter(torch.randn(4, 1, 6, 2))

    def forward(self, x, y):
        draw, total = random.Random(self.seed), functional.cross_entropy(x[:, :6], y)
        for _ in range(self.count):
            view = self.weight.as_strided((2, 3, 4), (24, 2, 6)) if draw.random() < 0.2 else self.weight
            for _ in range(self.length):
                view = random_view(draw, view)
            places = torch.arange(view.numel(), dtype=torch.float32).reshape(view.shape)
            total = total + (view * places.cos()).sum() / 50
        return total


def rows(width=12):
    return torch.randn(BATCH, width), torch.randint(0, 6, (BATCH,))


NETS = {  # module, width of its rows or none for images, made by PyTorch's own joint export
    "views": (Views, 12, True),
    "images": (Images, None, True),
    "attention": (Attention, 12, True),
    "ours-views": (Views, 12, False),
    "ours-images": (Images, None, False),
    "ours-mutated": (Mutated, 12, False),
    "ours-complex": (Waves, 12, False),
}


def export(name):
    """Path of an archive of the net."""
    make, width, foreign = NETS[name]
    torch.manual_seed(11)
    module, path = make(), running.fresh(".pt2")
    sample = rows(width) if width else (torch.randn(BATCH, 2, 6, 6), torch.randint(0, 6, (BATCH,)))
    if foreign:
        return foreign_export(module, sample)
    export_train_step(module, sample, path, clip_norm=1.0)
    return path


def foreign_export(module, sample):
    """Path of an archive that PyTorch's own joint export makes."""
    path = running.fresh(".pt2")
    from torch.export.experimental import _export_forward_backward

    program = torch.export.export(module, sample).run_decompositions()
    torch.export.save(_export_forward_backward(program), path)
    return path


class Archive:
    """An archive in memory; `write(model)` is the same one with another graph."""

    def __init__(self, path):
        with zipfile.ZipFile(path) as file:
            self.entries = {n: file.read(n) for n in file.namelist()}
        self.graph_entry = next(n for n in self.entries if n.endswith("models/model.json"))
        self.model = json.loads(self.entries[self.graph_entry])

    def write(self, model):
        path = running.fresh(".pt2")
        with zipfile.ZipFile(path, "w") as file:
            for name, data in self.entries.items():
                file.writestr(name, json.dumps(model).encode() if name == self.graph_entry else data)
        return path


def graph_of(model):
    return model["graph_module"]["graph"]


def results(model):
    """(operator, value) of every tensor that a node makes, in order."""
    found = []
    for node in graph_of(model)["nodes"]:
        for output in node["outputs"]:
            for tensor in output.get("as_tensors") or filter(None, [output.get("as_tensor")]):
                found.append((node["target"], tensor["name"]))
    return found


def _set(key, change):
    def damage(record):
        numbers = [entry["as_int"] for entry in record[key]]
        changed = change(numbers)
        if changed == numbers:
            return False
        record[key] = [{"as_int": n} for n in changed]
        return True

    return damage


def _at(index, change):
    return lambda numbers: [change(n) if i == index % len(numbers) else n for i, n in enumerate(numbers)] if numbers else numbers


def _dtype(number):
    def damage(record):
        changed = record["dtype"] != number
        record["dtype"] = number
        return changed

    return damage


def _offset(record):
    record["storage_offset"] = {"as_int": record["storage_offset"]["as_int"] + 1}
    return True


def _transposed(record):
    """Strides as if the first two dims lay the other way round."""
    sizes = [entry["as_int"] for entry in record["sizes"]]
    if len(sizes) < 2 or sizes[0] == 1:
        return False
    order = [1, 0, *range(2, len(sizes))]
    strides, step = [0] * len(sizes), 1
    for dim in reversed(order):
        strides[dim], step = step, step * sizes[dim]
    return _set("strides", lambda _: strides)(record)


DAMAGES = {
    "strides reversed": _set("strides", lambda n: n[::-1]),
    "strides transposed": _transposed,
    "first stride 0": _set("strides", _at(0, lambda n: 0)),
    "last stride doubled": _set("strides", _at(-1, lambda n: 2 * n)),
    "first stride one more": _set("strides", _at(0, lambda n: n + 1)),
    "first stride huge": _set("strides", _at(0, lambda n: 1 << 40)),
    "sizes reversed": _set("sizes", lambda n: n[::-1]),
    "first size one more": _set("sizes", _at(0, lambda n: n + 1)),
    "last size one less": _set("sizes", _at(-1, lambda n: max(n - 1, 0))),
    "first size 1": _set("sizes", _at(0, lambda n: 1)),
    "offset one more": _offset,
    "float64": _dtype(8),
    "float32": _dtype(7),
    "bfloat16": _dtype(13),
    "int64": _dtype(5),
    "bool": _dtype(12),
}


def train(model):
    """(exit code, what it said, losses and norms, listing of the plan) of an archive: compiled for one rank and trained for two steps."""
    plan = running.fresh(".dcp")
    done = jobs.dcc("compile", model, "--world", "1", "--zero", "0", "--no-cache", "-o", plan)
    if done.code != 0:
        return done.code, done.err, None, None
    listed = jobs.dcc("inspect", plan, "--as=text").out.splitlines()
    kept = [line for line in listed if not re.match(r"(model|step|digest) ", line)]
    return 0, "", lambda: numbers(plan, model), kept


def numbers(plan, model):
    metrics = running.fresh(".jsonl")
    done = jobs.dcrun(plan, "--weights", model, "--data", "synthetic:1", "--steps", "2", "--metrics", metrics)
    if done.code != 0:
        return done.code, done.err, None
    return 0, "", [(row["loss"], row["grad_norm"]) for row in running.read_metrics(metrics)[1]]


@functools.cache
def undamaged(net):
    archive = Archive(export(net))
    code, said, run, listed = train(archive.write(archive.model))
    if code == 0:
        code, said, expected = run()
    if code != 0:
        raise AssertionError(f"{net}: the undamaged archive is refused: {said}")
    return archive, expected, listed


def attempt(net, value, damage):
    """What becomes of one damage: "refused", "same plan", "same bits", "same numbers", or a complaint; None if it changes nothing."""
    archive, expected, listed = undamaged(net)
    model = copy.deepcopy(archive.model)
    if not DAMAGES[damage](graph_of(model)["tensor_values"][value]):
        return None
    code, said, run, now = train(archive.write(model))
    if code == 0 and now == listed:
        return "same plan"
    found = None
    if code == 0:
        code, said, found = run()
    if code != 0:
        clear = code in REFUSALS and re.search(r"error\[DC\d+\]: .{20}", said) and jobs.CURE.search(said)
        return "refused" if clear else f"exit {code}: {said}"
    if found == expected:
        return "same bits"
    near = all(math.isclose(a, b, rel_tol=2e-6) for ours, theirs in zip(found, expected) for a, b in zip(ours, theirs))
    return "same numbers" if near else f"other numbers: {found} instead of {expected}"


def cases(net):
    """All (value, damage) of a net."""
    return [(value, damage) for _, value in results(undamaged(net)[0].model) for damage in DAMAGES]


OUTCOMES = ("refused", "same plan", "same bits", "same numbers")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--net", choices=NETS, action="append")
    parser.add_argument("--every", action="store_true")
    options = parser.parse_args()
    draw, counts, wrong = random.Random(options.seed), {}, 0
    print(f"seed {options.seed}", flush=True)
    plan = [(net, *case) for net in options.net or NETS for case in cases(net)]
    if not options.every:
        draw.shuffle(plan)
    end = time.monotonic() + options.seconds
    for case in plan:
        if time.monotonic() > end:
            break
        outcome = attempt(*case)
        if outcome is None:
            continue
        if outcome not in OUTCOMES:
            wrong += 1
            print("WRONG", *case, outcome, flush=True)
        if outcome == "same numbers":
            print("rounded", *case, flush=True)
        counts[outcome] = counts.get(outcome, 0) + 1
    print({k: v for k, v in counts.items() if k in OUTCOMES}, f"wrong {wrong} of {sum(counts.values())}, {len(plan)} possible")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
