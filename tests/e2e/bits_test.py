"""Equal bits: ZeRO stages, launchers, repeated runs, poisoned memory, schedules, recomputation, offloading.

Parameters after 20 steps are compared byte by byte. ZeRO 0-3 agree at one world size within each order of
reduction over micro-batches (with one micro-batch there is only one order); launchers and --poison never
change a bit.

    build/venv/bin/python tests/e2e/bits_test.py
    DCC_SLOW_TESTS=1 build/venv/bin/python tests/e2e/bits_test.py     # every combination
"""

import functools
import os
import re
import struct
import subprocess
import unittest

import running

STEPS = 20
TO_SCHEDULE = "normalize-graph,shard-parameters={},insert-collectives,add-update,schedule"
SUBJECTS = {
    "mlp": ("mlp",),
    "tiny-llama": ("tiny-llama",),
    "tiny-llama-tied": ("tiny-llama-tied",),
    "tiny-mixtral": ("tiny-mixtral",),
    "tiny-gpt2 dropout": ("tiny-gpt2", "--dropout", "0.1"),
    "tiny-llama bfloat16": ("tiny-llama", "--dtype", "bfloat16"),
    "tiny-llama autocast": ("tiny-llama", "--dtype", "autocast-bfloat16"),
}
# Of RecomputeTest only: with batch norm.
MORE_SUBJECTS = {"resnet18": ("resnet18",)}
# Of OffloadTest only: with values of 5 MiB.
LARGE_SUBJECTS = {"mlp of many rows": ("mlp", "--batch", "20480")}
CLIPPED = {"optimizer": {"kind": "adamw", "lr": 1e-3}, "clip_norm": 1.0}
UNCLIPPED = {"optimizer": {"kind": "sgd", "lr": 1e-2, "momentum": 0.9}}


ANOTHER_RATE = {"optimizer": {"kind": "adamw", "lr": 1.001e-3}, "clip_norm": 1.0}
SETTINGS = {"clipped": CLIPPED, "unclipped": UNCLIPPED, "another rate": ANOTHER_RATE}


def run_new(subject, world, zero, accumulation=1, order=None, settings="clipped", options=(), launcher="dcrun", passes=(), compile_options=()):
    """`passes`: those that run between `schedule` and the layout."""
    model = running.archive(*{**SUBJECTS, **MORE_SUBJECTS, **LARGE_SUBJECTS}[subject])
    compile_options = [*compile_options, *(["--reduction-order", order] if order else [])]
    chain = ",".join((TO_SCHEDULE.format(zero), *passes, "layout-arenas")) if passes else zero
    config = running.train_config(**SETTINGS[settings])
    plan = running.compile_plan(model, world, chain, accumulation, *compile_options, config=config)
    return running.train(plan, model, world, STEPS, *options, launcher=launcher)


run_once = functools.cache(run_new)


class BitsTest(unittest.TestCase):

    def assert_same(self, expected, got, label, steps=STEPS):
        self.assertEqual(len(got.steps), steps)
        self.assertEqual(expected.numbers(), got.numbers(), f"{label}: losses or norms")
        expected, got = expected.tensors(), got.tensors()
        self.assertEqual(expected.keys(), got.keys())
        different = [name for name in expected if expected[name] != got[name]]
        self.assertEqual(different, [], f"{label}: {len(different)} of {len(expected)} tensors")

    def verify_stages(self, subject, world, accumulation=1, order=None, settings="clipped", stages=(0, 1, 2, 3)):
        label = f"{subject} world {world} accumulation {accumulation} {order or 'default order'} {settings}"
        with self.subTest(label):
            expected = run_once(subject, world, stages[0], accumulation, order, settings)
            for zero in stages[1:]:
                got = run_once(subject, world, zero, accumulation, order, settings)
                self.assert_same(expected, got, f"{label} zero {zero}")
            return expected
        return None


EVERYTHING = [(subject, world) for subject in SUBJECTS for world in (2, 3)]
SOME = [("mlp", 3), ("tiny-llama", 2), ("tiny-llama-tied", 2), ("tiny-gpt2 dropout", 2), ("tiny-llama bfloat16", 3), ("tiny-llama autocast", 2)]


class ZeroTest(BitsTest):
    """The four stages give the same parameters."""

    def test_one_micro_batch(self):
        for subject, world in EVERYTHING if running.SLOW else SOME:
            self.verify_stages(subject, world)

    def test_the_default_chain(self):
        """As users type it, without a profile and with one."""
        profile = ("--profile", os.path.join(running.ROOT, "examples", "profiles", "h100x32.json"))
        for index, (subject, world) in enumerate(EVERYTHING if running.SLOW else SOME):
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
        for subject, world in EVERYTHING if running.SLOW else SOME:
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


class LauncherTest(BitsTest):
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
        for subject, world in (("tiny-gpt2 dropout", 2), ("tiny-llama bfloat16", 3)):
            with self.subTest(subject):
                self.assert_same(run_once(subject, world, 3), run_new(subject, world, 3), "second run")

    def test_mpi_communicator(self):
        """MPI sums in an order of its own: equal within rounding; with two ranks there is only one order."""
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


class PoisonTest(BitsTest):
    """Memory is filled with NaN after its last use: a read of dead memory would show."""

    def test_poison(self):
        cases = [("tiny-llama", 2, 0, 4), ("tiny-llama", 2, 3, 4), ("mlp", 3, 2, 1), ("tiny-gpt2 dropout", 2, 1, 1),
                 ("tiny-llama bfloat16", 3, 3, 1), ("tiny-llama autocast", 2, 2, 1)]
        if running.SLOW:
            cases = [(s, w, z, a) for s in SUBJECTS for w in (1, 2, 3) for z in (0, 1, 2, 3) for a in (1, 4)]
        for subject, world, zero, accumulation in cases:
            with self.subTest(subject, world=world, zero=zero, accumulation=accumulation):
                expected = run_once(subject, world, zero, accumulation)
                got = run_once(subject, world, zero, accumulation, options=("--poison",))
                self.assert_same(expected, got, "poisoned")



class ScheduleTest(BitsTest):
    """Passes that move collectives change no number; memory is poisoned, so that a slice given up too early would show."""

    CHAINS = (("prefetch-gathers",), ("overlap-reductions",), ("prefetch-gathers", "overlap-reductions"),
              ("keep-resident",), ("keep-resident=64KiB", "prefetch-gathers", "overlap-reductions"),
              ("fuse-gathers", "bucket-reductions"),
              ("keep-resident=64KiB", "fuse-gathers=32KiB", "bucket-reductions=32KiB", "prefetch-gathers", "overlap-reductions"),
              ("bucket-reductions=16KiB", "overlap-reductions=16KiB"))

    def test_moved_collectives(self):
        cases = [("mlp", 3, 3, 1, 2), ("tiny-llama", 2, 3, 4, 2), ("tiny-llama", 3, 0, 4, 1), ("tiny-gpt2 dropout", 2, 2, 1, 2),
                 ("tiny-llama bfloat16", 4, 3, 1, 2), ("tiny-llama autocast", 2, 3, 1, 0), ("tiny-llama bfloat16", 2, 1, 4, 1),
                 ("mlp", 3, 3, 4, 3), ("tiny-gpt2 dropout", 2, 3, 4, 4), ("tiny-llama autocast", 3, 3, 4, 3), ("tiny-llama bfloat16", 2, 3, 1, 4),
                 ("tiny-llama", 3, 3, 4, 5), ("tiny-llama bfloat16", 4, 0, 4, 5), ("mlp", 4, 2, 1, 6), ("tiny-gpt2 dropout", 3, 3, 1, 6),
                 ("tiny-llama autocast", 2, 3, 4, 6), ("tiny-llama", 3, 3, 4, 7), ("tiny-llama bfloat16", 2, 1, 1, 7)]
        if running.SLOW:
            cases = [(s, w, z, a, c) for s in SUBJECTS for w in (2, 3, 4) for z in (0, 1, 2, 3) for a in (1, 4) for c in range(len(self.CHAINS))]
        for subject, world, zero, accumulation, chain in cases:
            with self.subTest(subject, world=world, zero=zero, accumulation=accumulation, passes=self.CHAINS[chain]):
                expected = run_once(subject, world, zero, accumulation)
                got = run_once(subject, world, zero, accumulation, options=("--poison",), passes=self.CHAINS[chain])
                self.assert_same(expected, got, "moved")


class RecomputeTest(BitsTest):
    """What is made again has the same bits, from loose to tight budgets. Poison shows reads of what was given up."""

    # (subject, world, zero, accumulation), and what of the way from no pressure to the least possible budget is gone.
    # In mlp the kernels that would run again need as much room as they would free.
    CASES = [("tiny-llama", 2, 3, 4), ("tiny-gpt2 dropout", 2, 3, 1), ("tiny-mixtral", 1, 0, 1),
             ("resnet18", 2, 3, 1), ("tiny-llama autocast", 2, 2, 1), ("tiny-gpt2 dropout", 1, 0, 4),
             ("tiny-llama bfloat16", 2, 1, 4)]
    TIGHTNESS = (0.3, 0.7, 0.95)

    def dcc(self, subject, world, zero, accumulation, *options):
        """(the finished compiler, path of its plan)"""
        plan, config = running.fresh(".dcp"), running.train_config(**CLIPPED)
        command = [os.path.join(running.BIN, "dcc"), "compile", running.archive(*{**SUBJECTS, **MORE_SUBJECTS}[subject]),
                   "--world", str(world), "--zero", str(zero), "--grad-accum", str(accumulation), "--config", config, "--no-cache"]
        return subprocess.run([*command, *options, "-o", plan], capture_output=True, text=True), plan

    def budgets(self, *case):
        need = running.inspect(self.dcc(*case)[1])["arena_bytes"][0]
        failed, _ = self.dcc(*case, "--memory", "1")
        self.assertEqual(failed.returncode, 80)
        least = int(re.search(r"needs (\d+) bytes", failed.stderr).group(1))
        self.assertLess(least, need)
        return [int(need - part * (need - least)) for part in self.TIGHTNESS]

    def verify(self, case, *memory, passes=()):
        with self.subTest(case, memory=memory, passes=passes):
            remarks = running.inspect(self.dcc(*case, *memory)[1])["remarks"]
            self.assertTrue(any(remark.startswith("recompute: ") for remark in remarks))
            got = run_new(*case, options=("--poison",), compile_options=memory, passes=passes)
            self.assert_same(run_once(*case), got, "recomputed")

    def test_budgets(self):
        cases = self.CASES
        if running.SLOW:
            subjects = (*SUBJECTS, *MORE_SUBJECTS)
            cases = [(s, w, z, a) for s in subjects if s != "mlp" for w in (1, 2) for z in (0, 3) for a in (1, 4)]
        for case in cases:
            for budget in self.budgets(*case):
                self.verify(case, "--memory", str(budget))

    def test_full(self):
        for case in self.CASES:
            self.verify(case, "--recompute", "full")

    def test_before_collectives_move(self):
        for case in self.CASES[:2]:
            passes = ("recompute", "prefetch-gathers", "overlap-reductions")
            self.verify(case, "--memory", str(self.budgets(*case)[1]), passes=passes)
            self.verify(case, "--recompute", "full", passes=passes)


def largest_instruction(plan):
    """The most bytes that one instruction of a plan, as inspect shows it, reads, writes and works in."""
    def bytes_of(instruction):
        slices = {plan["tensors"][t]["slice"] for t in (*instruction["reads"], *instruction["writes"])} | {instruction.get("scratch", -1)}
        return sum(plan["slices"][s]["bytes"] for s in slices if s >= 0)
    return max(bytes_of(i) for p in plan["programs"] for i in p["instructions"])


class OffloadTest(BitsTest):
    """What spends time in host or disk memory comes back as it went; memory is poisoned where it is dead."""

    # Passes and the part of the memory without them that must do.
    CHAINS = {
        "optimizer": (("offload-optimizer",), 0.9),
        "activations": (("offload-activations",), 0.9),
        "parameters": (("offload-parameters",), 0.9),
        "all": (("offload-optimizer", "offload-activations", "offload-parameters"), 0.6),
        "all and others": (("keep-resident", "fuse-gathers", "bucket-reductions", "offload-optimizer", "offload-activations",
                            "offload-parameters", "prefetch-gathers", "overlap-reductions"), 0.75),
    }

    def verify(self, subject, world, zero, accumulation, chain, space, settings="clipped"):
        with self.subTest(subject, world=world, zero=zero, accumulation=accumulation, chain=chain, space=space, settings=settings):
            expected = run_once(subject, world, zero, accumulation, settings=settings)
            passes, part = self.CHAINS[chain]
            budget = int(expected.header["arena_bytes"] * part)
            disk = os.path.dirname(running.fresh())
            got = run_new(subject, world, zero, accumulation, settings=settings, passes=passes, options=("--poison", "--offload-dir", disk),
                          compile_options=("--memory", f"{budget}B", "--offload-space", space))
            self.assertLessEqual(got.header["arena_bytes"], budget)
            self.assertGreater(got.header[f"{space}_bytes"], 0)
            self.assertGreater(got.header["providers"]["copies"], 0)
            self.assert_same(expected, got, "offloaded")
            self.assertEqual(os.listdir(disk), [])

    def test_offloaded(self):
        cases = [("tiny-llama", w, 3, a, "all", s) for w in (1, 2) for a in (1, 4) for s in ("host", "disk")]
        cases += [("tiny-gpt2 dropout", 1, 0, 4, "all", "disk"), ("tiny-gpt2 dropout", 2, 2, 1, "all", "host"), ("mlp", 1, 0, 1, "all", "disk"),
                  ("mlp", 2, 3, 4, "all", "disk"), ("tiny-llama", 2, 3, 1, "optimizer", "disk"), ("tiny-llama", 2, 1, 4, "parameters", "disk"),
                  ("tiny-gpt2 dropout", 2, 3, 4, "activations", "disk"), ("mlp", 2, 0, 4, "optimizer", "host"), ("mlp", 2, 2, 1, "parameters", "host"),
                  ("tiny-llama bfloat16", 2, 2, 4, "all", "disk"), ("tiny-llama bfloat16", 2, 3, 1, "all", "host"),
                  ("tiny-llama bfloat16", 3, 1, 1, "all", "disk"), ("tiny-llama autocast", 2, 3, 4, "all", "disk"),
                  ("tiny-llama", 2, 3, 4, "all and others", "disk"), ("tiny-gpt2 dropout", 2, 3, 1, "all and others", "host")]
        if running.SLOW:
            cases = [(s, w, z, a, "all", p) for s in SUBJECTS for w in (1, 2, 3) for z in (0, 1, 2, 3) for a in (1, 4) for p in ("host", "disk")]
        for case in cases:
            self.verify(*case)

    def test_two_fifths_of_the_memory(self):
        """A model of 10 million parameters in 40 % of the memory that ZeRO-3 needs, or what its largest kernel needs."""
        model, config = running.archive("small-llama"), running.train_config(**CLIPPED)
        whole = running.compile_plan(model, 2, 3, config=config)
        seen = running.inspect(whole)
        budget = max(2 * seen["arena_bytes"][0] // 5, largest_instruction(seen))
        passes = ",".join((TO_SCHEDULE.format(3), *self.CHAINS["all"][0], "layout-arenas"))
        small = running.compile_plan(model, 2, passes, 1, "--memory", f"{budget}B", "--offload-space", "disk", config=config)
        disk = os.path.dirname(running.fresh())
        expected = running.train(whole, model, 2, 3)
        got = running.train(small, model, 2, 3, "--poison", "--offload-dir", disk)
        self.assertLessEqual(got.header["arena_bytes"], budget)
        self.assert_same(expected, got, "two fifths", steps=3)

    # Where the published rules offload in the memory that zero3 needs, and smaller values leave than theirs.
    SMALL_VALUES = TO_SCHEDULE.format(3) + ",schedule-fast-free,offload-activations-greedily=1KiB,overlap-reductions,layout-arenas"
    PUBLISHED = (("deepcompile-offload-optimizer", "tiny-llama"), ("deepcompile-offload-parameters", "tiny-llama"),
                 ("deepcompile-offload-activations", "mlp of many rows"), (SMALL_VALUES, "tiny-llama"))

    def verify_published(self, chain, subject, accumulation, settings, space=None):
        with self.subTest(chain, subject=subject, accumulation=accumulation, settings=settings, space=space):
            expected = run_once(subject, 2, 3, accumulation, settings=settings)
            disk = os.path.dirname(running.fresh())
            budget = ("--memory", f"{expected.header['arena_bytes']}B", "--recompute", "off")
            got = run_new(subject, 2, chain, accumulation, settings=settings, options=("--poison", "--offload-dir", disk),
                          compile_options=(*budget, *(("--offload-space", space) if space else ())))
            self.assertLessEqual(got.header["arena_bytes"], expected.header["arena_bytes"])
            self.assertGreater(got.header[f"{space or 'host'}_bytes"], 0)
            self.assert_same(expected, got, chain)

    def test_published_rules(self):
        for chain, subject in self.PUBLISHED:
            for accumulation in (1, 4):
                for settings in ("clipped", "unclipped"):
                    self.verify_published(chain, subject, accumulation, settings)
        for chain, _ in (self.PUBLISHED[0], self.PUBLISHED[1], self.PUBLISHED[3]):
            self.verify_published(chain, "tiny-llama bfloat16", 4, "clipped", "disk")
            self.verify_published(chain, "tiny-llama autocast", 1, "unclipped")

    def test_without_clipping(self):
        """Updates start before the last gradient is there."""
        for case in (("tiny-llama", 2, 3, 1, "all", "disk"), ("mlp", 2, 1, 4, "all", "host")):
            self.verify(*case, settings="unclipped")


if __name__ == "__main__":
    unittest.main()
