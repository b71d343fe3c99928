"""Bits do not depend on the chain: every named chain, every pass alone and every legal pair of passes, with poisoned memory.

A cell is (model, world, accumulation, clipping, budget). The short run gives each chain one cell, in turn; the slow run gives every pair
of passes a cell and every chain all cells.
"""

import functools
import itertools
import unittest

import bits_test
import running
from compile_test import dcc

LINES = [line.split() for line in dcc("passes").stdout.splitlines()]
NAMED = [words[1] for words in LINES if words[0] == "--chain"]
NAMES = [words[0].removesuffix("[=N]") for words in LINES if words[0] not in ("--chain", "N:")]
FIRST, LAST = NAMES.index("schedule") + 1, NAMES.index("layout-arenas")
MOVABLE = NAMES[FIRST:LAST]
BEGIN = "normalize-graph,shard-parameters=3,insert-collectives,add-update,schedule"

CELLS = [(subject, world, accumulation, settings, budget)
         for subject, world, accumulation, settings, budget in (
             ("tiny-llama", 2, 1, "clipped", 1.04), ("mlp", 3, 4, "unclipped", None), ("tiny-gpt2 dropout", 2, 4, "clipped", 1.2),
             ("tiny-mixtral", 2, 1, "unclipped", None), ("tiny-llama bfloat16", 4, 1, "clipped", 1.06), ("tiny-llama", 1, 4, "clipped", None),
             ("tiny-llama autocast", 3, 1, "unclipped", 1.5), ("mlp", 4, 1, "clipped", 1.04))]


def chain_of(*passes):
    return ",".join((BEGIN, *passes, "layout-arenas"))


@functools.cache
def need(subject, world, accumulation, settings):
    """Device bytes of the just-in-time plan. Budgets are 4 % above it or more: another order may take a layout up to 3 % more."""
    model = running.archive(*bits_test.SUBJECTS[subject])
    config = running.train_config(**bits_test.SETTINGS[settings])
    plan = running.compile_plan(model, world, 3, accumulation, config=config)
    return running.inspect(plan)["arena_bytes"][0]


def fits(chain, cell):
    """The published rules do not know our budget: their plan may be larger than it."""
    return "greedily" not in chain and "fast-free" not in chain and "by-block" not in chain and not chain.startswith(("deepcompile", "zero", "fsdp")) and cell[4]


class Chains(bits_test.BitsTest):
    def verify(self, chain, cell):
        subject, world, accumulation, settings, budget = cell
        with self.subTest(chain, cell=cell):
            order = "per-micro-batch"
            expected = bits_test.run_once(subject, world, 3, accumulation, order, settings)
            options = ("--memory", str(int(need(subject, world, accumulation, settings) * budget))) if fits(chain, cell) else ()
            got = bits_test.run_new(subject, world, chain, accumulation, order, settings, options=("--poison",), compile_options=options)
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

    def test_pairs(self):
        model, refused, pairs = running.archive("mlp"), [], []
        for pair in itertools.combinations(MOVABLE, 2):
            tried = dcc("compile", model, "--world", "2", "--passes", chain_of(*pair), "--no-cache", "-o", running.fresh(), check=False)
            self.assertIn(tried.returncode, (0, 64), tried.stderr)
            (pairs if tried.returncode == 0 else refused).append(pair)
        self.assertEqual(set(refused), {("keep-resident", "keep-resident-greedily"), ("fuse-gathers", "prefetch-gathers-greedily"),
                                        ("prefetch-gathers", "prefetch-gathers-greedily"),
                                        *((name, f"{name}-greedily") for name in ("offload-optimizer", "offload-activations", "offload-parameters")),
                                        *(("gather-by-block", other) for other in ("fuse-gathers", "bucket-reductions", "prefetch-gathers",
                                                                                   "prefetch-gathers-greedily"))})
        for pair, cell in zip(pairs if running.SLOW else pairs[::7], itertools.cycle(CELLS)):
            self.verify(chain_of(*pair), cell)


if __name__ == "__main__":
    unittest.main()
