"""The matrix of the parity tests, and a small sample of it that covers every pair of values."""

import dataclasses
import itertools

import recipes


@dataclasses.dataclass(frozen=True)
class Case:
    model: str
    dtype: str
    world: int
    zero: int | str  # a ZeRO stage, "hsdp" (on hosts of two ranks), "zero-offload", or one of DEFAULTS
    accumulation: int
    poison: bool = False
    recipe: str = "adamw"  # recipes.py
    providers: str = "native"  # of kernels, as dcc compile takes it

    def compares_state(self):
        """Parameters and buffers after the last step, where no gradient is zero but for noise that AdamW makes large."""
        return self.model in ("mlp", "parts")

    def sums_before_reduction(self):
        """ZeRO 0 and 1 reduce once per step; it matters where the gradient's own type rounds the sum."""
        return self.dtype == "bfloat16" and self.accumulation > 1 and self.zero in (0, 1) and self.world > 1

    def label(self):
        dtype = "" if self.dtype == "float32" else f" {self.dtype}"
        poison = " poison" if self.poison else ""
        chain = f"zero {self.zero}" if self.zero in ZEROS else self.zero
        recipe = "" if self.recipe == "adamw" else f" {self.recipe}"
        providers = "" if self.providers == "native" else f" {self.providers}"
        return f"{self.model}{dtype}{recipe}{providers} world {self.world} {chain} accum {self.accumulation}{poison}"


RECIPE_NAMES = tuple(name for name in recipes.RECIPES if name != "adamw")
MODELS = ("mlp", "tiny-llama", "tiny-llama-tied", "tiny-gpt2", "tiny-bert", "tiny-mixtral")
WORLDS = (1, 2, 3, 4)
ZEROS = (0, 1, 2, 3)
# DisCo and what it is compared with.
FUSION_CHAINS = ("no-fusion", "op-fusion", "allreduce-fusion", "default-fusion", "ddp", "disco", "fuse-jointly")
# The command without a chain, as users type it, alone and with a profile.
DEFAULTS = ("default", "profiled default")
ACCUMULATIONS = (1, 4)
# With libtorch's kernels, whose convolutions round as PyTorch's: through a few dozen batch norms gradients in f32 are 7e-6 (resnet18) to 2e-5
# (small-resnet50) from exact ones, PyTorch's as well as ours (exact_gradients_test.py), which a later step multiplies. batchnorm_test.py compares step by step.
CONVOLUTIONAL = [Case("resnet18", "float32", world, zero, 1, providers="aten") for world in (1, 2) for zero in (0, 3)]
# How to train; "parts" has frozen parameters, ties and buffers. Every recipe meets sharded and whole state, one and several micro-batches.
RECIPES = [
    Case("parts", "float32", 2, 0, 4, recipe="adamw-groups-cosine"),
    Case("mlp", "float32", 3, 3, 1, True, recipe="adamw-groups-cosine"),
    Case("parts", "float32", 3, 3, 1, recipe="adamw-linear-unclipped"),
    Case("mlp", "float32", 2, 1, 4, recipe="sgd"),
    Case("parts", "float32", 1, 0, 1, recipe="sgd-momentum-linear"),
    Case("mlp", "float32", 4, 2, 4, True, recipe="sgd-momentum-linear"),
    Case("parts", "float32", 2, 2, 1, recipe="sgd-nesterov-cosine"),
    Case("mlp", "float32", 2, 3, 4, recipe="sgd-dampened-warmup"),
]
# Shards inside hosts of two ranks, repeated across hosts.
HOSTS = [
    Case("tiny-llama", "float32", 4, "hsdp", 1),
    Case("tiny-llama", "float32", 4, "hsdp", 4, True),
    Case("tiny-llama", "bfloat16", 4, "hsdp", 4),
    Case("parts", "float32", 4, "hsdp", 4, recipe="adamw-groups-cosine"),
    Case("mlp", "float32", 4, "hsdp", 1, True, recipe="sgd-momentum-linear"),
]
# Updated on the host.
ON_THE_HOST = [
    Case("tiny-llama", "float32", 2, "zero-offload", 4, True),
    Case("tiny-llama", "bfloat16", 3, "zero-offload", 1),
    Case("parts", "float32", 2, "zero-offload", 1, recipe="sgd-nesterov-cosine"),
]
# With libtorch's kernels.
WITH_LIBTORCH = [
    Case("mlp", "float32", 2, 3, 1, True, providers="aten"),
    Case("tiny-llama", "float32", 2, 3, 4, True, providers="aten"),
    Case("tiny-llama", "bfloat16", 2, 3, 1, providers="aten"),
    Case("tiny-llama", "autocast-bfloat16", 2, 1, 1, providers="aten"),
    Case("tiny-llama-tied", "float32", 2, 0, 1, providers="aten"),
    Case("tiny-gpt2", "float32", 3, 2, 1, True, providers="aten"),
    Case("tiny-gpt2", "bfloat16", 2, 3, 4, providers="aten"),
    Case("tiny-bert", "float32", 2, "default", 1, True, providers="aten"),
    Case("tiny-mixtral", "float32", 2, 3, 1, True, providers="aten"),
    Case("parts", "float32", 2, 1, 4, providers="aten"),
]
# The models of the paper on DisCo, small, with its chain.
ZOO = [
    Case("small-vgg19", "float32", 2, "disco", 1),
    Case("small-resnet50", "float32", 2, "disco", 1, providers="aten"),
    Case("small-transformer", "float32", 3, "disco", 4, True),
    Case("small-rnnlm", "float32", 2, "disco", 1, True),
    Case("tiny-bert", "float32", 2, "disco", 1),
    Case("small-reformer", "float32", 2, "disco", 1, True),
]
# A few cases of each precision, for settings in which libraries choose other kernels (machines.py).
ON_OTHER_MACHINES = [
    Case("tiny-llama", "float32", 2, 3, 1),
    Case("tiny-llama", "autocast-bfloat16", 1, 0, 1),
    Case("tiny-llama", "autocast-bfloat16", 2, 1, 1),
    Case("tiny-gpt2", "bfloat16", 2, 3, 1),
]
# Nets in which a last bit decides what happens next: they are compared with each of several runs of PyTorch.
BRANCHING = ("tiny-mixtral", "resnet18", "small-resnet50", "small-reformer")
# Batch norm makes training chaotic: summation order alone moves the loss by 11 % after 12 steps.
FEWER_STEPS = {"resnet18": 3, "small-resnet50": 3}
REDUCED = (("tiny-llama", "bfloat16"), ("tiny-llama", "autocast-bfloat16"), ("tiny-gpt2", "bfloat16"), ("tiny-gpt2", "autocast-bfloat16"))


def full():
    """Every combination; dropped pages are poisoned in every other one."""
    cases = []
    subjects = [(m, "float32") for m in MODELS] + list(REDUCED)
    for index, (subject, world, zero, accumulation) in enumerate(itertools.product(subjects, WORLDS, (*ZEROS, *DEFAULTS), ACCUMULATIONS)):
        cases.append(Case(*subject, world, zero, accumulation, poison=(index + index // 2) % 2 == 1))
    trained_otherwise = [
        Case(model, "float32", world, zero, accumulation, recipe=recipe)
        for model, recipe, world, zero, accumulation in itertools.product(("mlp", "parts"), RECIPE_NAMES, (1, 2, 3), ZEROS, ACCUMULATIONS)
    ]
    on_hosts = [Case(*subject, 4, "hsdp", accumulation) for subject, accumulation in itertools.product(subjects, ACCUMULATIONS)]
    return cases + trained_otherwise + on_hosts + ON_THE_HOST + WITH_LIBTORCH + ZOO + CONVOLUTIONAL


def sample():
    """Greedy pairwise cover of (subject, world, zero, accumulation, poison), and each subject with the default chain."""
    subjects = [(m, "float32") for m in MODELS] + [REDUCED[0], REDUCED[1]]
    axes = [subjects, WORLDS, ZEROS, ACCUMULATIONS, (False, True)]
    everything = list(itertools.product(*axes))
    open_pairs = {(i, a, j, b) for i, j in itertools.combinations(range(len(axes)), 2) for a in axes[i] for b in axes[j]}
    chosen = []
    while open_pairs:
        best = max(everything, key=lambda row: len(_pairs(row) & open_pairs))
        open_pairs -= _pairs(best)
        chosen.append(best)
    covered = [Case(*subject, world, zero, accumulation, poison) for subject, world, zero, accumulation, poison in chosen]
    defaults = [Case(*subject, WORLDS[1 + i % 3], DEFAULTS[i % 2], ACCUMULATIONS[i // 2 % 2], poison=i % 3 == 1) for i, subject in enumerate(subjects)]
    return covered + defaults + RECIPES + HOSTS + ON_THE_HOST + WITH_LIBTORCH + ZOO + CONVOLUTIONAL


def by_subject(chosen):
    """{"model dtype": its cases, those that share a run of PyTorch next to each other}"""
    groups = {}
    for case in sorted(chosen, key=lambda c: (c.model, c.dtype, c.world, c.accumulation, str(c.zero))):
        groups.setdefault(f"{case.model} {case.dtype}", []).append(case)
    return groups


def _pairs(row):
    return {(i, row[i], j, row[j]) for i, j in itertools.combinations(range(len(row)), 2)}
