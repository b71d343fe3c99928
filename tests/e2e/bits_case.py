"""Training of small models for tests that compare bits: parameters after some steps, byte by byte.

ZeRO 0-3 agree at one world size within each order of reduction over micro-batches (with one micro-batch there is only one order);
launchers and --poison never change a bit.
"""

import functools
import unittest

import running

# A bit that differs goes on to differ. What a step hands to the next one is there from the second step on, and repeats in the third.
STEPS = 20 if running.SLOW else 8
TO_SCHEDULE = "normalize-graph,fuse-loss,fuse-output-layer,fuse-products,fuse-elementwise,shard-parameters={},insert-collectives,add-update,schedule"
SUBJECTS = {
    "mlp": ("mlp",),
    "tiny-llama": ("tiny-llama",),
    "tiny-llama-tied": ("tiny-llama-tied",),
    "tiny-mixtral": ("tiny-mixtral",),
    "tiny-gpt2 dropout": ("tiny-gpt2", "--dropout", "0.1"),
    "tiny-llama bfloat16": ("tiny-llama", "--dtype", "bfloat16"),
    "tiny-llama autocast": ("tiny-llama", "--dtype", "autocast-bfloat16"),
}
# For recomputation only: with batch norm.
MORE_SUBJECTS = {"resnet18": ("resnet18",)}
# For offloading only: with values of 5 MiB.
LARGE_SUBJECTS = {"mlp of many rows": ("mlp", "--batch", "20480")}
CLIPPED = {"optimizer": {"kind": "adamw", "lr": 1e-3}, "clip_norm": 1.0}
UNCLIPPED = {"optimizer": {"kind": "sgd", "lr": 1e-2, "momentum": 0.9}}
ANOTHER_RATE = {"optimizer": {"kind": "adamw", "lr": 1.001e-3}, "clip_norm": 1.0}
SETTINGS = {"clipped": CLIPPED, "unclipped": UNCLIPPED, "another rate": ANOTHER_RATE}


def run_new(subject, world, zero, accumulation=1, order=None, settings="clipped", options=(), launcher="dcrun", passes=(), compile_options=(), anew=False):
    """`passes`: those that run between `schedule` and the layout. `anew`: as in running.train."""
    model = running.archive(*{**SUBJECTS, **MORE_SUBJECTS, **LARGE_SUBJECTS}[subject])
    compile_options = [*compile_options, *(["--reduction-order", order] if order else [])]
    chain = ",".join((TO_SCHEDULE.format(zero), *passes, "layout-arenas")) if passes else zero
    config = running.train_config(**SETTINGS[settings])
    plan = running.compile_plan(model, world, chain, accumulation, *compile_options, config=config)
    return running.train(plan, model, world, STEPS, *options, launcher=launcher, anew=anew)


run_once = functools.cache(run_new)


class BitsCase(unittest.TestCase):
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
