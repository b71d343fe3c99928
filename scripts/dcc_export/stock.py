"""The stock model: what transformers alone makes of a config, and the comparison with it.

Its config is untouched but for dropout rates, which are 0, as are those of our side; attention,
masks and experts are transformers' defaults. It computes with the tensors of the archive.
"""

import copy
import functools

import torch

from .check import (
    BOUNDS,
    CheckResult,
    Comparison,
    fresh_sample,
    is_reduced,
    run_eager,
    run_loaded,
    wrong_parameter,
)
from .errors import ExportError
from .experts import full_capacity
from .randomness import RandomnessOff, set_rates
from .static_shapes import frequencies_kept
from .step import StepModule


class Stock:
    """How to build the stock model of a config dict.

    altered: our graph has dropout, or drops tokens over capacity. attention: transformers' name; None for transformers' own choice.
    """

    def __init__(self, values, task, seed, altered):
        self.values = values
        self.task = task
        self.seed = seed
        self.altered = altered
        self.attention = None

    @property
    def name(self):
        which = "" if self.attention is None else f" with {self.attention} attention"
        return f"the stock transformers model{which}"

    def module(self, state, dtype):
        """A module like ours in names and inputs, that transformers built; parameters and saved
        buffers are those of `state` {fqn: tensor}, as `dtype`."""
        import transformers

        config = transformers.AutoConfig.for_model(**copy.deepcopy(self.values))
        set_rates(config, 0.0)
        kinds = {"dtype": dtype}
        if self.attention is not None:
            kinds["attn_implementation"] = self.attention
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            model = self.task.auto_class().from_config(config, **kinds)
        _lend(model, state)
        return _StockLoss(model).train()


def _lend(model, state):
    own = model.state_dict(keep_vars=True)
    unlike = sorted(set(own) ^ set(state))
    if unlike:
        raise ExportError(f"only one of our model and the stock model has a tensor {unlike[0]}")
    for name, tensor in own.items():
        lent = state[name].detach().to(tensor.dtype)
        tensor.data = lent if isinstance(tensor, torch.nn.Parameter) else lent.clone()


class _StockLoss(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, **inputs):
        if "mask" in inputs:
            inputs["attention_mask"] = inputs.pop("mask")
        with RandomnessOff(), frequencies_kept(self.model):
            return self.model(**inputs).loss


# Reduced precision: three times the stock model's own distance from float32, plus this.
REDUCED = (1e-3, 1e-7)


def check_stock(path, step, examples, descriptions, strip_name, seed, stock, names):
    """Compares loss and every gradient of an archive with the stock model's on two samples: on the
    archive's weights, and on weights moved away from them, where attention is not uniform.

    step: our module; if the stock model is not meant to agree with it (`stock.altered`), it is
    compared in the archive's place, without dropout and with room for every token.
    names: of the inputs. In reduced precision a difference may be three times the distance between
    the stock model in that precision and in float32, plus 1e-3 relative; then our module in
    float32 is compared too, within the bound of float32.
    """
    loaded = torch.export.load(path)
    wrong = wrong_parameter(step, loaded, strip_name)
    if wrong is not None:
        return wrong
    reduced = is_reduced(step)
    comparison = Comparison(stock.name, REDUCED if reduced else BOUNDS["float32"])
    float32 = Comparison(f"{stock.name} in float32", BOUNDS["float32"])
    state = {n: t.detach() for n, t in loaded.state_dict.items()}
    sides = _Sides(step, stock, names, loaded, state, strip_name, seed)
    for moved, sample in enumerate((examples, fresh_sample(examples, descriptions, seed))):
        if moved:
            _move(step, state, strip_name, seed)
        reference = sides.stock(sample)
        ours = sides.ours(sample, set(reference))
        slack = None
        if reduced and not _same(ours, reference):
            exact = sides.stock32(sample)
            slack = {n: 3 * _distance(v, exact[n]) for n, v in reference.items() if n in exact}
            float32.add(sides.ours32(sample, set(exact)), exact)
        comparison.add(ours, reference, slack)
    result = comparison.result()
    if stock.altered:
        result.line += " (our module without dropout and with room for every token; the file is as our module)"
    if result.passed and float32.samples:
        in_float32 = float32.result()
        line = f"{result.line}; in float32 {in_float32.line.removeprefix('check ')}"
        return CheckResult(in_float32.passed, line if in_float32.passed else in_float32.line)
    return result


def _move(step, state, strip_name, seed):
    """Adds noise to the parameters in `state`: of deviation 1/sqrt(inputs), 0.1 for vectors."""
    generator = torch.Generator().manual_seed(seed + 2)
    for name, parameter in step.named_parameters():
        name = strip_name(name)
        if parameter.is_floating_point():
            scale = _inputs(parameter) ** -0.5 if parameter.dim() > 1 else 0.1
            noise = torch.randn(parameter.shape, generator=generator) * scale
            state[name] = state[name] + noise.to(parameter.dtype)


def _inputs(weight):
    """Of one output of a matrix, a stack of matrices or a convolution."""
    return weight.shape[-1] if weight.dim() <= 3 else weight[0].numel()


class _Sides:
    """The runs to compare: {"loss", "gradient of NAME", "buffer NAME": tensor} of one sample."""

    def __init__(self, step, stock, names, loaded, state, strip_name, seed):
        self.step = step
        self.make = stock
        self.names = names
        self.loaded = loaded
        self.state = state  # {fqn: tensor}: what all of them compute with
        self.strip_name = strip_name
        self.seed = seed
        self.stock_step = self._stock_step(_dtype(step), step.autocast)

    def _stock_step(self, dtype, autocast):
        return StepModule(self.make.module(self.state, dtype), 0, self.names, autocast)

    def stock(self, sample):
        return self._run(self.stock_step, sample, set())

    def ours(self, sample, expected):
        if not self.make.altered:
            return run_loaded(self.loaded, self.state, sample, self.seed)
        with RandomnessOff(), full_capacity():
            return self._run(self.step, sample, expected)

    @functools.cached_property
    def _steps32(self):
        ours = copy.deepcopy(self.step).float()
        ours.autocast = None
        return ours, self._stock_step(torch.float32, None)

    def stock32(self, sample):
        return self._run(self._steps32[1], _float32(sample), set())

    def ours32(self, sample, expected):
        with RandomnessOff(), full_capacity():
            return self._run(self._steps32[0], _float32(sample), expected)

    def _run(self, step, sample, expected):
        return run_eager(step, self.state, sample, self.strip_name, self.seed, expected)


def _dtype(step):
    return next(p.dtype for p in step.parameters() if p.is_floating_point())


def _float32(sample):
    return [t.float() if t.is_floating_point() else t for t in sample]


def _same(ours, reference):
    return set(ours) == set(reference) and all(torch.equal(ours[n], reference[n]) for n in ours)


def _distance(tensor, other):
    return float((tensor.double() - other.double()).norm())
