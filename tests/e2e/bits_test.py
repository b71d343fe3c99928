"""Equal bits: ZeRO stages, launchers, repeated runs, poisoned memory, schedules.

build/venv/bin/python tests/e2e/bits_test.py
DCC_SLOW_TESTS=1 build/venv/bin/python tests/e2e/bits_test.py     # every combination
"""

import os
import struct
import unittest

import running
from bits_case import STEPS, SUBJECTS, BitsCase, run_new, run_once
from rotation import of_today

EVERYTHING = [(subject, world) for subject in SUBJECTS for world in (2, 3)]
SOME = [("mlp", 3), ("tiny-llama", 2), ("tiny-llama-tied", 2), ("tiny-gpt2 dropout", 2), ("tiny-llama bfloat16", 3), ("tiny-llama autocast", 2)]


class ZeroTest(BitsCase):
    """The four stages give the same parameters."""

    def test_one_micro_batch(self):
        for subject, world in EVERYTHING if running.SLOW else of_today(SOME, 2):
            self.verify_stages(subject, world)

    def test_the_default_chain(self):
        """As users type it, without a profile and with one."""
        profile = ("--profile", os.path.join(running.ROOT, "examples", "profiles", "h100x32.json"))
        for index, (subject, world) in enumerate(EVERYTHING if running.SLOW else of_today(SOME, 2)):
            for options in ((), profile) if running.SLOW else ((), profile)[index % 2 :][:1]:
                with self.subTest(subject, world=world, options=options):
                    got = run_once(subject, world, "auto", compile_options=options)
                    self.assert_same(run_once(subject, world, 3), got, "default chain")

    def test_without_clipping(self):
        for subject, world in EVERYTHING if running.SLOW else (("tiny-llama", 3),):
            self.verify_stages(subject, world, settings="unclipped")

    def verify_orders(self, subject, world, stages):
        per_step = self.verify_stages(subject, world, 4, "per-step", stages=stages)
        per_micro_batch = self.verify_stages(subject, world, 4, "per-micro-batch", stages=stages)
        if per_step is None or per_micro_batch is None:
            return
        with self.subTest(f"{subject} world {world}: the two orders"):
            bound = 1e-2 if "bfloat16" in subject or "autocast" in subject else 1e-4
            for one, other in zip(per_step.numbers()[0], per_micro_batch.numbers()[0], strict=True):
                self.assertAlmostEqual(one, other, delta=bound * abs(one))

    def test_four_micro_batches(self):
        for subject, world in EVERYTHING if running.SLOW else of_today((("tiny-llama", 2), ("tiny-llama-tied", 2), ("tiny-llama bfloat16", 3)), 2):
            every_stage = running.SLOW or subject == "tiny-llama"
            self.verify_orders(subject, world, (0, 1, 2, 3) if every_stage else (0, 3))

    def test_default_orders(self):
        """Without --reduction-order, stages 0 and 1 reduce per step, 2 and 3 per micro-batch."""
        for zero, order in ((0, "per-step"), (3, "per-micro-batch")):
            with self.subTest(zero=zero):
                self.assert_same(run_once("tiny-llama", 2, zero, 4, order), run_once("tiny-llama", 2, zero, 4), f"zero {zero}")

    def test_the_comparison_sees_a_difference(self):
        with self.assertRaises(AssertionError):
            self.assert_same(run_once("mlp", 3, 0), run_once("mlp", 3, 0, settings="another rate"), "another rate")


class LauncherTest(BitsCase):
    def test_launchers_on_local(self):
        for subject, world, zero in (("tiny-llama", 2, 3), ("mlp", 3, 0)):
            expected = run_once(subject, world, zero)
            for launcher in ("mpirun", "torchrun"):
                with self.subTest(launcher, subject=subject):
                    got = run_once(subject, world, zero, launcher=launcher)
                    self.assertEqual((got.header["world"], got.header["communicator"]), (world, "local"))
                    self.assertNotEqual(got.header["launcher"], expected.header["launcher"])
                    self.assert_same(expected, got, launcher)

    def test_two_runs(self):
        """The second in processes that load their libraries themselves."""
        for subject, world in (("tiny-gpt2 dropout", 2), ("tiny-llama bfloat16", 3)):
            with self.subTest(subject):
                self.assert_same(run_once(subject, world, 3), run_new(subject, world, 3, anew=True), "second run")

    def test_mpi_communicator(self):
        """MPI sums in another order: equal within rounding; with two ranks there is only one order."""
        for world, exact in ((2, True), (3, False)):
            for zero in (0, 3):
                with self.subTest(world=world, zero=zero):
                    expected = run_once("tiny-llama", world, zero)
                    got = run_once("tiny-llama", world, zero, options=("--comm", "mpi"), launcher="mpirun")
                    self.assertEqual(got.header["communicator"], "mpi")
                    self.verify_close(expected, got, exact)

    def verify_close(self, expected, got, exact):
        if exact:
            return self.assert_same(expected, got, "mpi")
        for one, other in zip(expected.numbers()[0], got.numbers()[0], strict=True):
            self.assertAlmostEqual(one, other, delta=1e-5 * abs(one))
        theirs, worst = got.tensors(), 0.0
        for name, (_, _, body) in expected.tensors().items():
            a, b = (struct.unpack(f"<{len(x) // 4}f", x) for x in (body, theirs[name][2]))
            worst = max(worst, *(abs(x - y) for x, y in zip(a, b, strict=True)))
        print(f"  --comm mpi, 3 ranks: parameters differ by at most {worst:.2g} after {STEPS} steps")
        self.assertLess(worst, 2e-3)  # AdamW moves a parameter by lr = 1e-3 per step, whatever the gradient's size
        return None


class PoisonTest(BitsCase):
    """Memory is filled with NaN after its last use: a read of dead memory would show."""

    def test_poison(self):
        cases = [
            ("tiny-llama", 2, 0, 4),
            ("tiny-llama", 2, 3, 4),
            ("mlp", 3, 2, 1),
            ("tiny-gpt2 dropout", 2, 1, 1),
            ("tiny-llama bfloat16", 3, 3, 1),
            ("tiny-llama autocast", 2, 2, 1),
        ]
        if running.SLOW:
            cases = [(s, w, z, a) for s in SUBJECTS for w in (1, 2, 3) for z in (0, 1, 2, 3) for a in (1, 4)]
        for subject, world, zero, accumulation in of_today(cases, 2):
            with self.subTest(subject, world=world, zero=zero, accumulation=accumulation):
                expected = run_once(subject, world, zero, accumulation)
                got = run_once(subject, world, zero, accumulation, options=("--poison",))
                self.assert_same(expected, got, "poisoned")


class ScheduleTest(BitsCase):
    """Passes that move collectives change no number; memory is poisoned, so that a slice given up too early would show."""

    CHAINS = (
        ("prefetch-gathers",),
        ("overlap-reductions",),
        ("prefetch-gathers", "overlap-reductions"),
        ("keep-resident",),
        ("keep-resident=64KiB", "prefetch-gathers", "overlap-reductions"),
        ("fuse-gathers", "bucket-reductions"),
        ("keep-resident=64KiB", "fuse-gathers=32KiB", "bucket-reductions=32KiB", "prefetch-gathers", "overlap-reductions"),
        ("bucket-reductions=16KiB", "overlap-reductions=16KiB"),
        ("recompute=0", "fuse-gathers", "prefetch-gathers", "overlap-reductions", "keep-jointly=50"),
    )

    def test_moved_collectives(self):
        cases = [
            ("mlp", 3, 3, 1, 2),
            ("tiny-llama", 2, 3, 4, 2),
            ("tiny-llama", 3, 0, 4, 1),
            ("tiny-gpt2 dropout", 2, 2, 1, 2),
            ("tiny-llama bfloat16", 4, 3, 1, 2),
            ("tiny-llama autocast", 2, 3, 1, 0),
            ("tiny-llama bfloat16", 2, 1, 4, 1),
            ("mlp", 3, 3, 4, 3),
            ("tiny-gpt2 dropout", 2, 3, 4, 4),
            ("tiny-llama autocast", 3, 3, 4, 3),
            ("tiny-llama bfloat16", 2, 3, 1, 4),
            ("tiny-llama", 3, 3, 4, 5),
            ("tiny-llama bfloat16", 4, 0, 4, 5),
            ("mlp", 4, 2, 1, 6),
            ("tiny-gpt2 dropout", 3, 3, 1, 6),
            ("tiny-llama autocast", 2, 3, 4, 6),
            ("tiny-llama", 3, 3, 4, 7),
            ("tiny-llama bfloat16", 2, 1, 1, 7),
        ]
        if running.SLOW:
            cases = [(s, w, z, a, c) for s in SUBJECTS for w in (2, 3, 4) for z in (0, 1, 2, 3) for a in (1, 4) for c in range(len(self.CHAINS))]
        for subject, world, zero, accumulation, chain in of_today(cases, 2):
            with self.subTest(subject, world=world, zero=zero, accumulation=accumulation, passes=self.CHAINS[chain]):
                expected = run_once(subject, world, zero, accumulation)
                got = run_once(subject, world, zero, accumulation, options=("--poison",), passes=self.CHAINS[chain])
                self.assert_same(expected, got, "moved")

    def test_reductions_on_another_stream(self):
        """Each stream has its communicator; mpi sums in its own order, so there the plan with one stream is what to compare with."""
        chain = ("prefetch-gathers", "overlap-reductions")
        cases = (("local", "tiny-llama", 3, 3, 4), ("tcp", "tiny-llama bfloat16", 3, 3, 1), ("tcp", "tiny-gpt2 dropout", 2, 2, 4), ("mpi", "mlp", 2, 3, 4))
        for comm, subject, world, zero, accumulation in cases:
            with self.subTest(comm, subject=subject, world=world, zero=zero, accumulation=accumulation):
                how = {"options": ("--comm", comm, "--poison"), "launcher": "mpirun" if comm == "mpi" else "dcrun"}
                expected = run_once(subject, world, zero, accumulation, passes=chain, **how)
                got = run_once(subject, world, zero, accumulation, passes=(*chain, "separate-reductions"), **how)
                self.assert_same(expected, got, "separate")


if __name__ == "__main__":
    unittest.main()
