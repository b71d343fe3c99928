"""The matrix of the parity tests, and a small sample of it that covers every pair of values."""

import dataclasses
import itertools


@dataclasses.dataclass(frozen=True)
class Case:
    model: str
    dtype: str
    world: int
    zero: int
    accumulation: int
    poison: bool = False

    def sums_before_reduction(self):
        """ZeRO 0 and 1 reduce once per step; it matters where the gradient's own type rounds the sum."""
        return self.dtype == "bfloat16" and self.accumulation > 1 and self.zero < 2 and self.world > 1

    def label(self):
        dtype = "" if self.dtype == "float32" else f" {self.dtype}"
        poison = " poison" if self.poison else ""
        return f"{self.model}{dtype} world {self.world} zero {self.zero} accum {self.accumulation}{poison}"


MODELS = ("mlp", "tiny-llama", "tiny-llama-tied", "tiny-gpt2", "tiny-bert", "tiny-mixtral")
WORLDS = (1, 2, 3, 4)
ZEROS = (0, 1, 2, 3)
ACCUMULATIONS = (1, 4)
CONVOLUTIONAL = [("resnet18", world, zero, 1) for world in (1, 2) for zero in (0, 3)]
# Nets in which a last bit decides what happens next: they are compared with each of several runs of PyTorch.
BRANCHING = ("tiny-mixtral", "resnet18")
# Batch norm makes training chaotic: summation order alone moves the loss by 11 % after 12 steps.
FEWER_STEPS = {"resnet18": 3}
REDUCED = (("tiny-llama", "bfloat16"), ("tiny-llama", "autocast-bfloat16"), ("tiny-gpt2", "bfloat16"),
           ("tiny-gpt2", "autocast-bfloat16"))


def full():
    """Every combination; dropped pages are poisoned in every other one."""
    cases = []
    subjects = [(m, "float32") for m in MODELS] + list(REDUCED)
    for index, (subject, world, zero, accumulation) in enumerate(
        itertools.product(subjects, WORLDS, ZEROS, ACCUMULATIONS)
    ):
        cases.append(Case(*subject, world, zero, accumulation, poison=(index + index // 2) % 2 == 1))
    return cases + [Case(model, "float32", *rest) for model, *rest in CONVOLUTIONAL]


def sample():
    """Greedy pairwise cover of (subject, world, zero, accumulation, poison)."""
    subjects = [(m, "float32") for m in MODELS] + [REDUCED[0], REDUCED[1]]
    axes = [subjects, WORLDS, ZEROS, ACCUMULATIONS, (False, True)]
    everything = list(itertools.product(*axes))
    open_pairs = {
        (i, a, j, b)
        for i, j in itertools.combinations(range(len(axes)), 2)
        for a in axes[i]
        for b in axes[j]
    }
    chosen = []
    while open_pairs:
        best = max(everything, key=lambda row: len(_pairs(row) & open_pairs))
        open_pairs -= _pairs(best)
        chosen.append(best)
    covered = [Case(*subject, world, zero, accumulation, poison) for subject, world, zero, accumulation, poison in chosen]
    return covered + [Case(model, "float32", *rest) for model, *rest in CONVOLUTIONAL]


def _pairs(row):
    return {(i, row[i], j, row[j]) for i, j in itertools.combinations(range(len(row)), 2)}
