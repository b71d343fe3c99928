"""Dropout in real runs: the share of kept elements, and which masks differ and which do not.

The model's loss is linear in its parameters, and every (step, micro-batch, rank) multiplies by its own power of two. With SGD
the parameters after the last step are then a sum of powers of two in which every mask of the run can be read off.

    build/venv/bin/python tests/e2e/dropout_test.py
"""

import functools
import itertools
import math
import unittest

import torch
from safetensors.torch import load_file, save_file

import running
from dcc_export import export_train_step

SHAPE = (64, 257)
ELEMENTS = math.prod(SHAPE)
STEPS, ACCUMULATION = 3, 2


class Masked(torch.nn.Module):
    """loss = scale * (sum of dropout(first) + sum of dropout(second)), one mask each."""

    def __init__(self, probability):
        super().__init__()
        self.first = torch.nn.Parameter(torch.zeros(SHAPE))
        self.second = torch.nn.Parameter(torch.zeros(SHAPE))
        self.dropout = torch.nn.Dropout(probability)

    def forward(self, scale):
        return ((self.dropout(self.first) + self.dropout(self.second)) * scale).sum()


class OfViews(Masked):
    """Dropout of a transposed parameter, and of every second column of the other."""

    def forward(self, scale):
        return (self.dropout(self.first.t()).sum() + self.dropout(self.second[:, ::2]).sum()) * scale.sum()


class OneOf(torch.nn.Module):
    """loss = (sum of dropout(values)) * scale, the values all 1: its gradients say what was dropped."""

    def __init__(self, dropout, shape):
        super().__init__()
        self.values = torch.nn.Parameter(torch.ones(shape))
        self.dropout = dropout

    def forward(self, scale):
        return self.dropout(self.values * 1).sum() * scale.sum()  # times 1: one that works in place may not write to a leaf


@functools.cache
def archive(probability, model=Masked):
    path = running.fresh(".pt2")
    export_train_step(model(probability), {"scale": torch.ones(1)}, path, check=False)
    return path


@functools.cache
def masks(probability, world=2, zero=0, launcher="dcrun", seed=0, options=(), model=Masked):
    """{(parameter, step, micro-batch, rank): bool mask}"""
    count = STEPS * ACCUMULATION * world
    data = running.fresh(".safetensors")
    save_file({"scale": 2.0 ** torch.arange(count)}, data)
    config = running.train_config(optimizer={"kind": "sgd", "lr": 1.0}, seed=seed)
    plan = running.compile_plan(archive(probability, model), world, zero, ACCUMULATION, config=config)
    run = running.train(plan, archive(probability, model), world, STEPS, *options, data=data, launcher=launcher)
    # The update takes the mean over ranks and micro-batches; what was kept was divided by 1 - p.
    factor = -world * ACCUMULATION * (1 - probability)
    found = {}
    for name, value in load_file(run.saved).items():
        total = value.double() * factor
        digits = total.round().long()
        assert (total - digits).abs().max() < 0.25, "not a sum of powers of two"
        for index, key in enumerate(itertools.product(range(STEPS), range(ACCUMULATION), range(world))):
            found[(name, *key)] = (digits >> index) & 1 == 1
        assert digits.max() < 2**count
    return found


def deviations(count, expected, probability, trials):
    """How many standard deviations a binomial count is from what was expected."""
    return abs(count - expected) / math.sqrt(trials * probability * (1 - probability))


class StatisticsTest(unittest.TestCase):
    """Bounds of 5 standard deviations; the masks are fixed by the seed, so a pass stays a pass."""

    def test_share_of_kept_elements(self):
        for p in (0.1, 0.5):
            kept = torch.stack([m for m in masks(p).values()]).double()
            with self.subTest(p=p):
                trials = kept.numel()
                off = deviations(kept.sum(), (1 - p) * trials, p, trials)
                print(f"  p {p}: mean of kept {kept.mean():.5f}, {off:.2f} standard deviations off, over {trials} elements")
                self.assertLess(off, 5)
                for mask in kept:
                    self.assertLess(deviations(mask.sum(), (1 - p) * ELEMENTS, p, ELEMENTS), 5)

    def test_variance_between_blocks(self):
        """The kept elements of blocks of 64 vary as independent draws would."""
        for p in (0.1, 0.5):
            with self.subTest(p=p):
                kept = torch.stack([m.flatten()[: ELEMENTS // 64 * 64] for m in masks(p).values()]).double()
                sums = kept.reshape(-1, 64).sum(1)
                ratio = float(sums.var() / (64 * p * (1 - p)))
                print(f"  p {p}: variance of blocks of 64 is {ratio:.4f} x that of independent draws")
                self.assertAlmostEqual(ratio, 1.0, delta=5 * math.sqrt(2 / len(sums)))

    def test_neighbours(self):
        """An element says nothing about the next ones in its row, in its column, or in a group of four."""
        for p, distance in itertools.product((0.1, 0.5), (1, 2, 3, 4, SHAPE[1])):
            with self.subTest(p=p, distance=distance):
                both = trials = 0
                for mask in masks(p).values():
                    flat = mask.flatten()
                    both += int((flat[distance:] & flat[:-distance]).sum())
                    trials += ELEMENTS - distance
                keep = (1 - p) ** 2
                self.assertLess(deviations(both, keep * trials, keep, trials), 7)  # pairs overlap: a little wider


class OtherKindsTest(unittest.TestCase):
    """Dropout of whole channels, and alpha dropout: the archive equals the module to the bit, masks included, and in runs what is kept and what
    is dropped has torch's gradients."""

    def test_kinds(self):
        p, nn = 0.15, torch.nn
        cases = (
            (nn.Dropout1d(p), (64, 65, 3), 2),
            (nn.Dropout2d(p, inplace=True), (64, 65, 2, 3), 2),
            (nn.Dropout3d(p), (64, 65, 2, 1, 2), 2),
            (nn.AlphaDropout(p), (64, 65), 2),
            (nn.FeatureAlphaDropout(p), (64, 65, 4), 2),
        )
        for dropout, shape, drawn in cases:
            with self.subTest(dropout=dropout):
                path, data = running.fresh(".pt2"), running.fresh(".safetensors")
                model = OneOf(dropout, shape)
                report = export_train_step(model, {"scale": torch.ones(1)}, path)
                self.assertIn("equal eager exactly", report.check)
                save_file({"scale": torch.ones(2)}, data)
                plan = running.compile_plan(path, 1, 0, config=running.train_config(optimizer={"kind": "sgd", "lr": 1.0}))
                got = 1 - load_file(running.train(plan, path, 1, 1, data=data).saved)["values"]
                (expected,) = torch.autograd.grad(model(torch.ones(1)), model.values)
                kept = got != 0
                self.assertTrue(torch.equal(got, expected.max() * kept))
                of_draws = kept.flatten(drawn).float().mean(-1) if kept.dim() > drawn else kept.float()
                self.assertTrue(torch.equal(of_draws, of_draws.round()), "a channel is kept or dropped as a whole")
                self.assertLess(deviations(of_draws.sum(), (1 - p) * of_draws.numel(), p, of_draws.numel()), 5)

    def test_in_place(self):
        """As a plain one, also where it is off."""
        for p, training in ((0.15, True), (0.0, True), (0.15, False)):
            with self.subTest(p=p, training=training):
                path, data = running.fresh(".pt2"), running.fresh(".safetensors")
                report = export_train_step(OneOf(torch.nn.Dropout(p, inplace=True), (64, 65)).train(training), {"scale": torch.ones(1)}, path)
                self.assertRegex(report.check, "eager")
                save_file({"scale": torch.ones(1)}, data)
                plan = running.compile_plan(path, 1, 0, config=running.train_config(optimizer={"kind": "sgd", "lr": 1.0}))
                got = 1 - load_file(running.train(plan, path, 1, 1, data=data).saved)["values"]
                kept, dropped = got != 0, p if training else 0.0
                torch.testing.assert_close(got, kept / (1 - dropped))
                if dropped:
                    self.assertLess(deviations(kept.sum(), (1 - p) * kept.numel(), p, kept.numel()), 5)
                else:
                    self.assertTrue(kept.all())


class DifferenceTest(unittest.TestCase):
    def test_every_mask_is_its_own(self):
        """Ranks, steps, micro-batches and the two dropouts of the model: any two masks agree only by chance."""
        for p in (0.1, 0.5):
            found = masks(p)
            self.assertEqual(len(found), 2 * STEPS * ACCUMULATION * 2)
            agree = p**2 + (1 - p) ** 2
            for one, other in itertools.combinations(found, 2):
                same = int((found[one] == found[other]).sum())
                self.assertLess(deviations(same, agree * ELEMENTS, agree, ELEMENTS), 5, f"p {p}: {one} and {other}")

    def test_seed(self):
        same, other = masks(0.5), masks(0.5, seed=1)
        for key, mask in same.items():
            agreeing = int((mask == other[key]).sum())
            self.assertLess(deviations(agreeing, ELEMENTS / 2, 0.5, ELEMENTS), 5, key)


class EqualityTest(unittest.TestCase):
    def assert_same(self, expected, got):
        self.assertEqual(expected.keys(), got.keys())
        self.assertEqual([key for key in expected if not torch.equal(expected[key], got[key])], [])

    def test_stages(self):
        for zero in (1, 2, 3):
            with self.subTest(zero=zero):
                self.assert_same(masks(0.1), masks(0.1, zero=zero))

    def test_launchers(self):
        for launcher in ("mpirun", "torchrun"):
            with self.subTest(launcher):
                self.assert_same(masks(0.1), masks(0.1, launcher=launcher))
        self.assert_same(masks(0.1), masks(0.1, launcher="mpirun", options=("--comm", "mpi")))

    def test_worlds(self):
        """A rank draws the same mask in a world of another size."""
        larger = masks(0.5, world=3)
        self.assert_same(masks(0.5), {key: mask for key, mask in larger.items() if key[-1] < 2})

    def test_views(self):
        """Elements are drawn in the order in which they lie, so a transposed tensor has the mask of the tensor; what is left out of a slice has no gradient."""
        plain, found = masks(0.5), masks(0.5, model=OfViews)
        self.assert_same({key: mask for key, mask in plain.items() if key[0] == "first"}, {key: mask for key, mask in found.items() if key[0] == "first"})
        for key in (key for key in found if key[0] == "second"):
            self.assertFalse(found[key][:, 1::2].any(), key)
            kept = found[key][:, ::2]
            self.assertLess(deviations(kept.sum(), kept.numel() / 2, 0.5, kept.numel()), 5, key)

    def test_poison(self):
        self.assert_same(masks(0.1), masks(0.1, options=("--poison",)))


if __name__ == "__main__":
    unittest.main()
