"""Bits do not depend on the chain: every named chain, every pass alone and every legal pair of passes, with poisoned memory.

A cell is (model, world, accumulation, clipping, budget). The short run gives each chain one cell, in turn; the slow run gives every pair
of passes a cell and every chain all cells.
"""

import functools
import itertools
import json
import os
import unittest

import bits_case
import cases
import rotation
import running
from compile_test import dcc

LINES = [line.split() for line in dcc("passes").stdout.splitlines()]
# hsdp sums in another order; HostChains has it.
# fusion_chains_test.py has those that fuse and join as others do; they are for whole parameters.
FUSION_PASSES = ("fuse-greedily", "disco", "fuse-jointly", "bucket-by-size", "bucket-as-ddp")
NAMED = [words[1] for words in LINES if words[0] == "--chain" and words[1] not in ("hsdp", *cases.FUSION_CHAINS)]
NAMES = [words[0].removesuffix("[=N]") for words in LINES if words[0] not in ("--chain", "N:")]
FIRST, LAST = NAMES.index("schedule") + 1, NAMES.index("layout-arenas")
MOVABLE = [name for name in NAMES[FIRST:LAST] if name not in FUSION_PASSES]
BEGIN = "normalize-graph,fuse-loss,fuse-output-layer,fuse-products,fuse-elementwise,shard-parameters=3,insert-collectives,add-update,schedule"

CELLS = [
    (subject, world, accumulation, settings, budget)
    for subject, world, accumulation, settings, budget in (
        ("tiny-llama", 2, 1, "clipped", 1.04),
        ("mlp", 3, 4, "unclipped", None),
        ("tiny-gpt2 dropout", 2, 4, "clipped", 1.2),
        ("tiny-mixtral", 2, 1, "unclipped", None),
        ("tiny-llama bfloat16", 4, 1, "clipped", 1.06),
        ("tiny-llama", 1, 4, "clipped", None),
        ("tiny-llama autocast", 3, 1, "unclipped", 1.5),
        ("mlp", 4, 1, "clipped", 1.04),
        ("tiny-llama-tied", 2, 2, "unclipped", 1.1),
    )
]


def chain_of(*passes):
    return ",".join((BEGIN, *passes, "layout-arenas"))


@functools.cache
def need(subject, world, accumulation, settings):
    """Device bytes of the just-in-time plan. Budgets are 4 % above it or more: another order may take a layout up to 3 % more."""
    model = running.archive(*bits_case.SUBJECTS[subject])
    config = running.train_config(**bits_case.SETTINGS[settings])
    plan = running.compile_plan(model, world, 3, accumulation, config=config)
    return running.inspect(plan)["arena_bytes"][0]


def compiled(subject, settings, *options):
    """What `dcc compile --json` says."""
    config = running.train_config(**bits_case.SETTINGS[settings])
    return json.loads(
        dcc("compile", running.archive(*bits_case.SUBJECTS[subject]), "--config", config, "--no-cache", "--json", "-o", running.fresh(), *options).stdout
    )


@functools.cache
def slow_link(subject, world, settings):
    """The profile of a link that is busy for 0.35 of a micro-batch's compute with its gradients; the backward phase takes half of it or more."""
    said = compiled(subject, settings, "--world", str(world), "--zero", "2")
    busy = 0.35 * said["prediction"]["compute_ns"]
    with open(os.path.join(running.ROOT, "examples", "profiles", "h100x32.json")) as file:
        profile = json.load(file)
    # Kernels as `dcc compile` takes them without a profile.
    profile["rates"].update(
        {
            "f64_flops_per_s": 40 * 10**9,
            "f32_flops_per_s": 80 * 10**9,
            "half_flops_per_s": 160 * 10**9,
            "memory_bytes_per_s": 8 * 10**9,
            "kernel_launch_ns": 2000,
        }
    )
    slow = {size: round(size * (world - 1) / world / said["wire_bytes"]["reduce_scatter"] * busy) for size in (64, 1 << 30)}
    profile["collectives"] = [
        {"kind": kind, "ranks": world, "bytes": size, "median_ns": ns, "fastest_ns": ns, "deviation_ns": 0, "samples": 1}
        for kind in ("all_gather", "reduce_scatter", "all_reduce")
        for size, ns in slow.items()
    ]
    path = running.fresh(".json")
    with open(path, "w") as file:
        json.dump(profile, file)
    return path


def fits(chain, cell):
    """The published rules do not know our budget: their plan may be larger than it."""
    return (
        not any(blind in chain for blind in ("greedily", "fast-free", "by-block", "by-trace"))
        and not chain.startswith(("deepcompile", "zero", "fsdp"))
        and cell[4]
    )


@rotation.taking_turns(2)
class FirstOperatorTest(unittest.TestCase):
    def test_reads_several_parameters(self):
        """A convolution with a bias: its gathers follow each other, with nothing before them that they could hide behind."""
        for chain in {"zero3-trace", "zero-offload", *rotation.of_today(NAMED, 4)}:
            with self.subTest(chain=chain):
                done = dcc("compile", running.archive("small-vgg19"), "--world", "2", "--chain", chain, "--no-cache", "-o", running.fresh(".dcp"))
                self.assertEqual(done.returncode, 0, done.stderr)


class Chains(bits_case.BitsCase):
    def verify(self, chain, cell):
        subject, world, accumulation, settings, budget = cell
        with self.subTest(chain, cell=cell):
            order = "per-micro-batch"
            expected = bits_case.run_once(subject, world, 3, accumulation, order, settings)
            options = ("--memory", str(int(need(subject, world, accumulation, settings) * budget))) if fits(chain, cell) else ()
            got = bits_case.run_new(subject, world, chain, accumulation, order, settings, options=("--poison",), compile_options=options)
            self.assert_same(expected, got, chain)

    def test_named_chains_and_single_passes(self):
        chains = [*NAMED, "auto", *map(chain_of, MOVABLE)]
        if running.SLOW:
            for chain, cell in itertools.product(chains, CELLS):
                self.verify(chain, cell)
            return
        for chain, cell in zip(chains, itertools.cycle(CELLS)):
            self.verify(chain, cell)

    def test_gathers_that_cross_the_end_of_the_step(self):
        for stage, cell in zip(itertools.cycle((2, 1)), CELLS):
            passes = chain_of("bucket-reductions", "overlap-reductions", "overlap-update").replace("shard-parameters=3", f"shard-parameters={stage}")
            self.verify(passes, (*cell[:4], None))

    def test_state_whole_for_some(self):
        """On a link that has time for a part of the gradients."""
        for stage, (subject, world, accumulation, settings, _) in zip(itertools.cycle((2, 1)), CELLS):
            if world == 1:
                continue
            chain = chain_of("bucket-reductions", "overlap-reductions", "overlap-update").replace(
                "shard-parameters=3", f"shard-parameters={stage},replicate-state"
            )
            profile = slow_link(subject, world, settings)
            with self.subTest(chain, subject=subject, world=world):
                placed = compiled(subject, settings, "--world", str(world), "--passes", chain, "--profile", profile)["parameters"]
                self.assertTrue(0 < placed["sharded_state"] < placed["count"], placed)
                expected = bits_case.run_once(subject, world, 3, accumulation, "per-micro-batch", settings)
                got = bits_case.run_new(
                    subject, world, chain, accumulation, "per-micro-batch", settings, options=("--poison",), compile_options=("--profile", profile)
                )
                self.assert_same(expected, got, chain)

    def test_pairs(self):
        model, refused, pairs = running.archive("mlp"), [], []
        for pair in itertools.combinations(MOVABLE, 2):
            tried = dcc("compile", model, "--world", "2", "--passes", chain_of(*pair), "--no-cache", "-o", running.fresh(), check=False)
            self.assertIn(tried.returncode, (0, 64), tried.stderr)
            (pairs if tried.returncode == 0 else refused).append(pair)
        self.assertEqual(
            set(refused),
            {
                ("keep-resident", "keep-resident-greedily"),
                ("keep-jointly", "keep-parameters"),
                ("fuse-gathers", "prefetch-gathers-greedily"),
                ("prefetch-gathers", "prefetch-gathers-greedily"),
                *(("offload-update", other) for other in ("offload-optimizer", "offload-optimizer-greedily", "overlap-update")),
                *((name, f"{name}-greedily") for name in ("offload-optimizer", "offload-activations", "offload-parameters")),
                *(("gather-by-block", other) for other in ("fuse-gathers", "bucket-reductions", "prefetch-gathers", "prefetch-gathers-greedily")),
                *(("gather-again-by-block", other) for other in ("fuse-gathers", "prefetch-gathers", "prefetch-gathers-greedily")),
                *((o, "prefetch-gathers-by-trace") for o in ("gather-by-block", "fuse-gathers", "prefetch-gathers", "prefetch-gathers-greedily")),
            },
        )
        for pair, cell in zip(pairs if running.SLOW else pairs[::7], itertools.cycle(CELLS)):
            self.verify(chain_of(*pair), cell)


class HostChains(bits_case.BitsCase):
    """On two hosts of two ranks: sums inside a host first, then across, whatever the placement, schedule or budget."""

    BEGIN = "split-by-host=2,normalize-graph,shard-parameters="
    MIDDLE = ",insert-collectives,add-update,schedule"
    CHAINS = (
        "3,recompute,gather-by-block,overlap-reductions=1",
        "3,recompute,keep-resident,fuse-gathers,bucket-reductions,prefetch-gathers,overlap-reductions",
        "3,schedule-fast-free,bucket-reductions=1000000000,prefetch-gathers-greedily,keep-resident-greedily,overlap-reductions=1000000000",
        "3,offload-optimizer-greedily,offload-activations-greedily=1,overlap-reductions",
        "2,bucket-reductions,overlap-reductions,overlap-update",
        "2,replicate-state,bucket-reductions,overlap-update",
        "1,overlap-reductions",
        "0,bucket-reductions",
    )

    def chain(self, text):
        stage, *passes = text.split(",")
        before = [one for one in passes if one == "replicate-state"]
        return ",".join((self.BEGIN + stage, *before)) + ",".join((self.MIDDLE, *(one for one in passes if one not in before), "layout-arenas"))

    def test_every_placement_and_schedule(self):
        cells = [(subject, accumulation, settings) for subject, _, accumulation, settings, _ in CELLS]
        for text, (subject, accumulation, settings) in itertools.product(self.CHAINS, cells) if running.SLOW else zip(self.CHAINS, cells):
            with self.subTest(text, subject=subject, accumulation=accumulation):
                trained = [
                    bits_case.run_new(
                        subject, 4, chain, accumulation, "per-micro-batch", settings, options=("--poison",), compile_options=("--ranks-per-host", "2")
                    )
                    for chain in ("hsdp", self.chain(text))
                ]
                self.assert_same(*trained, text)


if __name__ == "__main__":
    unittest.main()
