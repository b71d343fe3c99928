"""What PyTorch computes for the same step: the yardstick of the parity tests.

Every (rank, micro-batch) is its own forward and backward; gradients are averaged in fp32. The run is made in two summation orders: as
given, and with rows reversed inside each micro-batch and micro-batches and ranks in descending order. How far PyTorch is from
itself decides how far dcrun may be. In bf16 and autocast one flipped rounding decides how far that is, and on some CPUs both orders happen to
round alike for many steps: there runs with nudged parameters (see `Reference`) are further measures of PyTorch's distance from itself, and the largest counts.
None of these changes the order of a sum inside a row or where a value is rounded, so in pure bf16 they may all have the same roundings: gradients of tiny-llama
are 0 to 6e-5 from each other, and 5e-3 to 1e-2 from exact ones. There the distance from gradients in double precision is a further measure.
"""

import copy
import dataclasses
import os
import sys

import torch

import recipe_optimizer
import recipes

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
from dcc_export import workload as workloads
from dcc_export.capture import strip
from dcc_export.inputs import draw
from dcc_export.step import autocast_context


@dataclasses.dataclass
class Trace:
    """One training run. `gradients`: step 1, averaged, before clipping, by parameter name. `state`: parameters and buffers of rank 0
    after the last step, by name."""

    losses: list
    norms: list
    gradients: dict
    state: dict


@dataclasses.dataclass
class Training:
    steps: int = 50
    world: int = 1
    accumulation: int = 1
    per_step: bool = False  # a rank's gradients are summed over micro-batches before they are reduced
    recipe: str = "adamw"

    def config(self):
        """train.json"""
        return recipes.config(self.recipe, self.steps)


@dataclasses.dataclass
class Begin:
    """Where a run goes on: after `step` steps, with parameters and buffers of `state`, `masters` (f32, where the model's are not) and the optimizer's
    `moments`, {name: {PyTorch's key: tensor}}."""

    step: int
    state: dict
    masters: dict
    moments: dict


# Name: (rows reversed, micro-batches and ranks reversed).
ORDERS = {"given": (False, False), "reversed": (True, True)}


def make_data(description, example, samples, seed=1):
    """One tensor [samples, ...] per input, drawn from the archive's roles and ranges.

    Token and label inputs share one window, as in a token file. `example`: {name: one micro-batch}.
    """
    generator = torch.Generator().manual_seed(seed)
    batch = next(iter(example.values())).shape[0]
    windows, data = {}, {}
    for entry in description["inputs"]:
        like = example[entry["name"]]
        count = (samples + batch - 1) // batch
        rows = torch.cat([draw(entry, like, generator) for _ in range(count)])[:samples]
        if entry["role"] in ("tokens", "labels"):
            rows = windows.setdefault(tuple(rows.shape), rows)
        data[entry["name"]] = rows.contiguous().clone()
    return data


class Reference:
    """Trains a workload with torch, once per summation order.

    `nudge`: a seed; after each update, and in bf16 and autocast at the start, every parameter is then moved by at most one unit in its last place, as an
    update that rounds elsewhere would. Where a net decides (a router's choice of expert, a ReLU behind a batch norm) such a change
    sends it down one of a few paths; where parameters or values are rounded to bf16, it flips some of the roundings.
    """

    def __init__(self, workload, options):
        self.workload = workload
        self.autocast = workloads.autocast_dtype(options)
        self.is_reduced = options.dtype != "float32"
        self.start = {k: v.clone() for k, v in workload.module.state_dict().items()}

    def exact_gradients(self, data, training):
        """Of step 1, averaged, of the parameters as they are at the start, in double precision."""
        module = copy.deepcopy(self.workload.module).double().train()
        module.load_state_dict({name: value.double() for name, value in self.start.items()})
        named = {strip(name, self.workload.root): p for name, p in module.named_parameters() if p.requires_grad}
        batch = next(iter(self.workload.inputs.values())).shape[0]
        count = training.world * training.accumulation
        total = {}
        for first in range(0, count * batch, batch):
            rows = {n: t[first : first + batch] for n, t in data.items()}
            loss = module(**{n: t.double() if t.is_floating_point() else t for n, t in rows.items()})
            for name, gradient in zip(named, torch.autograd.grad(loss, list(named.values())), strict=True):
                total[name] = total.get(name, 0) + gradient / count
        return total

    def run(self, data, training, order, nudge=None, begin=None):
        module = self.workload.module
        module.load_state_dict(self.start)
        if begin is not None:
            module.load_state_dict({name: begin.state[strip(name, self.workload.root)] for name in self.start}, assign=False)
        module.train()
        named = {strip(n, self.workload.root): p for n, p in module.named_parameters() if p.requires_grad}
        masters = {n: p.detach().float().clone().requires_grad_() for n, p in named.items()}
        optimizer = recipe_optimizer.Optimizer(training.config(), masters)
        if begin is not None:
            with torch.no_grad():
                for name, value in begin.masters.items():
                    masters[name].copy_(value)
            optimizer.go_on(begin.step, begin.moments)
        buffers = [{n: b.clone() for n, b in module.named_buffers()} for _ in range(training.world)]
        trace = Trace([], [], {}, {})
        generator = None if nudge is None else torch.Generator().manual_seed(nudge)
        for step in range(begin.step if begin else 0, training.steps):
            if generator is not None and (step > 0 or self.is_reduced):
                _nudge(masters, generator)
                _refresh(named, masters)
            loss, sums = self._gradients(named, buffers, data, training, step, *ORDERS[order])
            for name, master in masters.items():
                master.grad = sums.get(name)
            if step == 0:
                trace.gradients = {n: g.clone() for n, g in sums.items()}
            trace.norms.append(optimizer.step())
            trace.losses.append(loss)
            _refresh(named, masters)
        _put(buffers[0], module)
        trace.state = {strip(n, self.workload.root): v.detach().clone() for n, v in module.state_dict().items()}
        return trace

    def _gradients(self, named, buffers, data, training, step, rows_reversed, pairs_reversed):
        batch = next(iter(self.workload.inputs.values())).shape[0]
        pairs = [(m, r) for m in range(training.accumulation) for r in range(training.world)]
        if pairs_reversed:
            pairs.reverse()
        total, sums = 0.0, {}  # sums: per rank if its sum is rounded before it is reduced
        for micro_batch, rank in pairs:
            first = ((step * training.accumulation + micro_batch) * training.world + rank) * batch
            rows = {n: t[first : first + batch] for n, t in data.items()}
            if rows_reversed:
                rows = {n: t.flip(0) for n, t in rows.items()}
            _put(buffers[rank], self.workload.module)
            with autocast_context(self.autocast):
                loss = self.workload.module(**rows)
            buffers[rank] = {n: b.clone() for n, b in self.workload.module.named_buffers()}
            gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
            total += float(loss.detach())
            into = sums.setdefault(rank if training.per_step else 0, {})
            for name, gradient in zip(named, gradients, strict=True):
                if gradient is not None:
                    into[name] = into[name] + gradient.float() if name in into else gradient.float()
        scale = 1.0 / (training.world * training.accumulation)
        return total * scale, {n: g * scale for n, g in self._reduced(named, sums).items()}

    @staticmethod
    def _reduced(named, sums):
        """Sums over ranks. What a rank sends is rounded once to the gradient's own type."""
        reduced = {}
        for of_rank in sums.values():
            for name, gradient in of_rank.items():
                sent = gradient.to(named[name].dtype).float() if len(sums) > 1 else gradient
                reduced[name] = reduced[name] + sent if name in reduced else sent
        return reduced


def _put(buffers, module):
    """Buffers belong to a rank."""
    for name, buffer in module.named_buffers():
        buffer.copy_(buffers[name])


def _refresh(named, masters):
    with torch.no_grad():
        for name, parameter in named.items():
            parameter.copy_(masters[name])


def _nudge(masters, generator):
    with torch.no_grad():
        for master in masters.values():
            master.mul_(1 + torch.randint(-1, 2, master.shape, generator=generator) * 2.0**-23)


def relative(a, b):
    return abs(a - b) / max(abs(b), 1e-30)


def compare_curve(ours, given, reordered, nudged, floor):
    """Largest ratio of our relative distance to its bound, max(floor, 3 x spread). Passes at <= 1.

    `reordered`: PyTorch's curves in other orders. The spread is one figure for the run, PyTorch's largest distance from itself: in bf16
    the step at which a rounding first flips is chance, and a spread taken step by step would be zero until then.
    `nudged`: PyTorch's curves after last-bit changes (see `Reference`): ours may follow any one of them, within the same bound.
    """
    spread = max(_distance(curve, given) for curve in reordered)
    nearest = min(_distance(ours, curve) for curve in [given, *nudged])
    return nearest / max(floor, 3 * spread)


def _distance(curve, other):
    distances = [relative(a, b) for a, b in zip(curve, other, strict=True)]
    return max(d if d == d else float("inf") for d in distances)


def compare_state(ours, given, reordered):
    """Largest ratio of a parameter's or buffer's distance to its bound, and its name: 1e-5 |ref|, or three times what PyTorch is from itself."""
    missing = sorted(set(given) ^ set(ours))
    if missing:
        return float("inf"), f"only on one side: {missing[:3]}"
    worst, where = 0.0, ""
    for name, reference in given.items():
        ref = reference.double()
        spread = max((ref - other[name].double()).norm() for other in reordered)
        bound = max(1e-5 * ref.norm(), 3 * spread)
        distance = (ours[name].double().reshape(ref.shape) - ref).norm()
        ratio = float(distance / bound) if bound > 0 else (0.0 if distance == 0 else float("inf"))
        if not ratio <= worst:
            worst, where = ratio, name
    return worst, where


def compare_gradients(ours, given, reordered, exact):
    """Largest ratio of a gradient's distance to its bound, and the name of that gradient. Passes at <= 1.

    exact (fp32): 1e-5 |ref| + 1e-7 |all|. Otherwise (bf16, autocast): 3 |ref - reordered or nudged| + 1e-3 |ref|.
    """
    missing = sorted(set(given) ^ set(ours))
    if missing:
        return float("inf"), f"only on one side: {missing[:3]}"
    everything = torch.sqrt(sum(g.double().square().sum() for g in given.values()))
    worst, where = 0.0, ""
    for name, reference in given.items():
        mine, ref = ours[name].double(), reference.double()
        if exact:
            bound = 1e-5 * ref.norm() + 1e-7 * everything
        else:
            spread = max((ref - other[name].double()).norm() for other in reordered)
            bound = 3 * spread + 1e-3 * ref.norm()
        distance = (mine.reshape(ref.shape) - ref).norm()
        ratio = float(distance / bound) if bound > 0 else (0.0 if distance == 0 else float("inf"))
        if not ratio <= worst:
            worst, where = ratio, name
    return worst, where
