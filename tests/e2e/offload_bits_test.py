"""Equal bits with offloading to host memory and disk, under budgets and by the published rules."""

import os
import unittest

import running
from bits_case import CLIPPED, SUBJECTS, TO_SCHEDULE, BitsCase, run_new, run_once
from rotation import of_today


def largest_instruction(plan):
    """The most bytes that one instruction of a plan, as inspect shows it, reads, writes and works in."""

    def bytes_of(instruction):
        slices = {plan["tensors"][t]["slice"] for t in (*instruction["reads"], *instruction["writes"])} | {instruction.get("scratch", -1)}
        return sum(plan["slices"][s]["bytes"] for s in slices if s >= 0)

    return max(bytes_of(i) for p in plan["programs"] for i in p["instructions"])


class OffloadTest(BitsCase):
    """What spends time in host or disk memory comes back as it went; memory is poisoned where it is dead."""

    # Passes and the part of the memory without them that must do.
    CHAINS = {
        "optimizer": (("offload-optimizer",), 0.9),
        "activations": (("offload-activations",), 0.9),
        "parameters": (("offload-parameters",), 0.9),
        "all": (("offload-optimizer", "offload-activations", "offload-parameters"), 0.68),
        "all and others": (
            (
                "keep-resident",
                "fuse-gathers",
                "bucket-reductions",
                "offload-optimizer",
                "offload-activations",
                "offload-parameters",
                "prefetch-gathers",
                "overlap-reductions",
            ),
            0.75,
        ),
    }

    def verify(self, subject, world, zero, accumulation, chain, space, settings="clipped"):
        with self.subTest(subject, world=world, zero=zero, accumulation=accumulation, chain=chain, space=space, settings=settings):
            expected = run_once(subject, world, zero, accumulation, settings=settings)
            passes, part = self.CHAINS[chain]
            budget = int(expected.header["arena_bytes"] * part)
            disk = os.path.dirname(running.fresh())
            got = run_new(
                subject,
                world,
                zero,
                accumulation,
                settings=settings,
                passes=passes,
                options=("--poison", "--offload-dir", disk),
                compile_options=("--memory", f"{budget}B", "--offload-space", space),
            )
            self.assertLessEqual(got.header["arena_bytes"], budget)
            self.assertGreater(got.header[f"{space}_bytes"], 0)
            self.assertGreater(got.header["providers"]["copies"], 0)
            self.assert_same(expected, got, "offloaded")
            self.assertEqual(os.listdir(disk), [])

    def test_offloaded(self):
        cases = [("tiny-llama", w, 3, a, "all", s) for w in (1, 2) for a in (1, 4) for s in ("host", "disk")]
        cases += [
            ("tiny-gpt2 dropout", 1, 0, 4, "all", "disk"),
            ("tiny-gpt2 dropout", 2, 2, 1, "all", "host"),
            ("mlp", 1, 0, 1, "all", "disk"),
            ("mlp", 2, 3, 4, "all", "disk"),
            ("tiny-llama", 2, 3, 1, "optimizer", "disk"),
            ("tiny-llama", 2, 1, 4, "parameters", "disk"),
            ("tiny-gpt2 dropout", 2, 3, 4, "activations", "disk"),
            ("mlp", 2, 0, 4, "optimizer", "host"),
            ("mlp", 2, 2, 1, "parameters", "host"),
            ("tiny-llama bfloat16", 2, 2, 4, "all", "disk"),
            ("tiny-llama bfloat16", 2, 3, 1, "all", "host"),
            ("tiny-llama bfloat16", 3, 1, 1, "all", "disk"),
            ("tiny-llama autocast", 2, 3, 4, "all", "disk"),
            ("tiny-llama", 2, 3, 4, "all and others", "disk"),
            ("tiny-gpt2 dropout", 2, 3, 1, "all and others", "host"),
        ]
        if running.SLOW:
            cases = [(s, w, z, a, "all", p) for s in SUBJECTS for w in (1, 2, 3) for z in (0, 1, 2, 3) for a in (1, 4) for p in ("host", "disk")]
        for case in of_today(cases, 2):
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
    PUBLISHED = (
        ("deepcompile-offload-optimizer", "tiny-llama"),
        ("deepcompile-offload-parameters", "tiny-llama"),
        ("deepcompile-offload-activations", "mlp of many rows"),
        (SMALL_VALUES, "tiny-llama"),
    )

    def verify_published(self, chain, subject, accumulation, settings, space=None):
        with self.subTest(chain, subject=subject, accumulation=accumulation, settings=settings, space=space):
            expected = run_once(subject, 2, 3, accumulation, settings=settings)
            disk = os.path.dirname(running.fresh())
            budget = ("--memory", f"{expected.header['arena_bytes']}B", "--recompute", "off")
            got = run_new(
                subject,
                2,
                chain,
                accumulation,
                settings=settings,
                options=("--poison", "--offload-dir", disk),
                compile_options=(*budget, *(("--offload-space", space) if space else ())),
            )
            self.assertLessEqual(got.header["arena_bytes"], expected.header["arena_bytes"])
            self.assertGreater(got.header[f"{space or 'host'}_bytes"], 0)
            self.assert_same(expected, got, chain)

    def test_published_rules(self):
        for index, (chain, subject) in enumerate(self.PUBLISHED):
            ways = [(accumulation, settings) for accumulation in (1, 4) for settings in ("clipped", "unclipped")]
            for way in ways if running.SLOW else (ways[index % 2], ways[3 - index % 2]):  # both of each
                self.verify_published(chain, subject, *way)
        for chain, _ in of_today((self.PUBLISHED[0], self.PUBLISHED[1], self.PUBLISHED[3]), 3):
            self.verify_published(chain, "tiny-llama bfloat16", 4, "clipped", "disk")
            self.verify_published(chain, "tiny-llama autocast", 1, "unclipped")

    def test_updates_on_the_host(self):
        """The optimizer and its state on the host: bits of an update on the device, in every placement."""
        cases = [
            ("tiny-llama", 1, 3, 1, "clipped"),
            ("tiny-llama", 2, 3, 4, "unclipped"),
            ("tiny-llama", 4, 3, 1, "clipped"),
            ("tiny-llama bfloat16", 3, 3, 4, "clipped"),
            ("tiny-llama bfloat16", 2, 1, 1, "unclipped"),
            ("tiny-llama autocast", 2, 3, 1, "clipped"),
            ("tiny-gpt2 dropout", 2, 2, 4, "clipped"),
            ("mlp", 4, 0, 4, "clipped"),
            ("mlp", 1, 0, 4, "unclipped"),
        ]
        if running.SLOW:
            cases = [(s, w, z, a, c) for s in SUBJECTS for w in (1, 2, 3, 4) for z in (0, 1, 2, 3) for a in (1, 4) for c in ("clipped", "unclipped")]
        for subject, world, zero, accumulation, settings in of_today(cases, 3):
            with self.subTest(subject, world=world, zero=zero, accumulation=accumulation, settings=settings):
                expected = run_once(subject, world, zero, accumulation, settings=settings)
                got = run_new(
                    subject,
                    world,
                    zero,
                    accumulation,
                    settings=settings,
                    passes=("offload-update", "overlap-reductions", "offload-gradients"),
                    options=("--poison",),
                )
                self.assertGreater(got.header["host_bytes"], 0)
                self.assertLess(got.header["arena_bytes"], expected.header["arena_bytes"])
                self.assert_same(expected, got, "updated on the host")

    def test_without_clipping(self):
        """Updates start before the last gradient is there."""
        for case in (("tiny-llama", 2, 3, 1, "all", "disk"), ("mlp", 2, 1, 4, "all", "host")):
            self.verify(*case, settings="unclipped")


if __name__ == "__main__":
    unittest.main()
