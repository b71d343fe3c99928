"""DisCo and the chains that it is compared with: every one trains to the bits of zero0, whatever it fuses and joins, and its plan passes all levels.

build/venv/bin/python tests/e2e/fusion_chains_test.py
"""

import itertools
import os
import unittest

import bits_case
import cases
import rotation
import running

CHAINS = cases.FUSION_CHAINS
# Chains that fuse and join, by what they have before and behind recompute.
FUSING = {"default-fusion": ("fuse-greedily,", "bucket-by-size,"), "disco": ("disco,", ""), "fuse-jointly": ("fuse-jointly,", "")}
STAGED = "normalize-graph,fuse-loss,fuse-output-layer,fuse-products,shard-parameters={},insert-collectives,add-update,schedule,{}recompute,{}overlap-reductions,layout-arenas"
NATIVE = ("--providers", "native")
STEPS = 4


@rotation.taking_turns(2)
class FusionChains(bits_case.BitsCase):
    def compiled(self, model, world, chain, accumulation, *options, config=None):
        """A plan that passes all levels of the verifier."""
        plan = running.compile_plan(model, world, chain, accumulation, *NATIVE, *options, config=config)
        said = running.run([os.path.join(running.BIN, "dcc"), "verify", plan]).stdout
        self.assertIn("levels 0 (digest), 1 (structure), 2 (memory, shapes, effects) and 3", said)
        return plan

    def verify(self, preset, world, accumulation, chains=CHAINS):
        model = running.archive(preset)
        config = running.train_config(**bits_case.CLIPPED)
        expected = running.train(running.compile_plan(model, world, 0, accumulation, *NATIVE, config=config), model, world, STEPS, "--poison")
        for chain in chains:
            with self.subTest(chain, preset=preset, world=world, accumulation=accumulation):
                plan = self.compiled(model, world, chain, accumulation, config=config)
                self.assert_same(expected, running.train(plan, model, world, STEPS, "--poison"), chain, STEPS)

    def test_bits_are_those_of_zero0(self):
        for world, accumulation in itertools.product((1, 2, 3), (1, 4)) if running.SLOW else ((1, 4), (2, 1), (3, 4)):
            self.verify("tiny-llama", world, accumulation)

    def test_bits_of_every_stage(self):
        """The fused plans of each stage train to the bits of the plain plans of all stages, twice. Where parameters are gathered nothing is fused."""
        subjects = ("tiny-gpt2 dropout", "tiny-mixtral", "tiny-llama bfloat16")
        cells = list(zip((1, 2, 3), subjects, (2, 1, 2)))
        if running.SLOW:
            cells = list(itertools.product((1, 2, 3), subjects, (1, 2)))
        config = running.train_config(**bits_case.CLIPPED)
        for world, subject, accumulation in cells:
            model = running.archive(*bits_case.SUBJECTS[subject])
            order = ("--reduction-order", "per-micro-batch")
            cell = f"{subject} world {world} accumulation {accumulation}"
            expected = running.train(self.compiled(model, world, 0, accumulation, *order, config=config), model, world, STEPS)
            for stage in (1, 2, 3):
                plain = self.compiled(model, world, stage, accumulation, *order, config=config)
                self.assert_same(expected, running.train(plain, model, world, STEPS), f"{cell} zero {stage}", STEPS)
            for stage, (chain, passes) in itertools.product((0, 1, 2, 3), FUSING.items()):
                with self.subTest(cell, chain=chain, stage=stage):
                    plan = self.compiled(model, world, STAGED.format(stage, *passes), accumulation, *order, config=config)
                    has_fused = any(one.get("provider") == "fused" for program in running.inspect(plan)["programs"] for one in program["instructions"])
                    self.assertEqual(has_fused, stage < 3 or world == 1)
                    for launcher in ("dcrun", "mpirun" if stage == 0 else "dcrun"):
                        self.assert_same(expected, running.train(plan, model, world, STEPS, "--poison", launcher=launcher), chain, STEPS)

    def test_bits_of_a_larger_model(self):
        cases = itertools.product((1, 2, 3), (1, 4)) if running.SLOW else ((3, 4),)
        for world, accumulation in cases:
            self.verify("small-llama", world, accumulation, CHAINS if running.SLOW else ("default-fusion", "disco", "fuse-jointly"))

    def test_what_they_fuse_and_join(self):
        model = running.archive("tiny-llama")
        counts = {}
        for chain in CHAINS:
            programs = running.inspect(running.compile_plan(model, 2, chain, 4, *NATIVE))["programs"]
            fused = [sum(one.get("provider") == "fused" for one in program["instructions"]) for program in programs]
            joined = sum(len(one.get("buffers", [])) > 1 for one in programs[-1]["instructions"])
            counts[chain] = (fused, joined)
            self.assertEqual(len(set(fused)), 1, "every micro-batch runs the same kernels")
        for chain, (fused, joined) in counts.items():
            self.assertEqual(fused[0] > 0, chain in ("op-fusion", "default-fusion", "disco", "fuse-jointly"), chain)
            self.assertEqual(joined > 0, chain in ("allreduce-fusion", "default-fusion", "ddp", "disco", "fuse-jointly"), chain)

    def test_a_search_is_the_same_every_time(self):
        model = running.archive("tiny-llama")
        for chain in FUSING:
            plans = []
            for _ in range(2):
                with open(running.compile_plan(model, 2, chain, 1, *NATIVE), "rb") as file:
                    plans.append(file.read())
            self.assertEqual(*plans, chain)


if __name__ == "__main__":
    unittest.main()
