"""What plans say against what happened: predicted time, scratch memory, bytes on the wire.

build/venv/bin/python tests/e2e/prediction_test.py
"""

import collections
import copy
import itertools
import unittest

import rotation
import running
from profile_case import profile, report, written


class Prediction(unittest.TestCase):
    def test_one_slower_kernel_counts_exactly(self):
        """Ten times one row's time raises the prediction by nine times that, as often as the step runs it."""
        model = running.archive("tiny-llama")
        path, document = profile(model)
        used = [row for row in document["kernels"] if row["provider"] == "aten"]  # of an operator that has both
        names = collections.Counter(row["key"].split(" ")[0] for row in used)
        options = ("--world", "2", "--zero", "3", "--grad-accum", "3", "--providers", "aten")  # which has no choices to make by the times
        before, plan, _ = report(model, "--profile", path, *options)
        runs = collections.Counter()
        whole = running.inspect(plan)
        for part in whole["step"]:
            for instruction in whole["programs"][part["program"]]["instructions"]:
                runs[instruction.get("op")] += part["repeat"]
        tried = 0
        for index, row in enumerate(document["kernels"]):
            name = row["key"].split(" ")[0]
            if row["provider"] != "aten" or names[name] > 1:
                continue  # where the operator has one key, its runs can be counted by name
            changed = copy.deepcopy(document)
            changed["kernels"][index]["median_ns"] *= 10
            after, _, _ = report(model, "--profile", written(changed), *options)
            rise = 9 * row["median_ns"] * runs[name]
            self.assertGreater(rise, 0, name)
            for figure in ("compute_ns", "step_ns"):
                self.assertEqual(after["prediction"][figure] - before["prediction"][figure], rise, name)
            self.assertEqual(after["prediction"]["communication_ns"], before["prediction"]["communication_ns"])
            tried += 1
        self.assertGreaterEqual(tried, 5)

    def test_scratch_comes_from_the_profile(self):
        model = running.archive("tiny-llama")
        path, document = profile(model)
        said, _, _ = report(model, "--profile", path, "--world", "2")
        self.assertFalse(said["memory"]["scratch_is_estimated"])
        self.assertTrue(said["prediction"]["origin"].startswith("profile " + said["profile_digest"]))
        changed = copy.deepcopy(document)
        for row in changed["kernels"]:
            if row["provider"] == "native" and row["key"].startswith("aten.mm.default "):
                row["scratch_bytes"] += 1 << 20
        more, _, _ = report(model, "--profile", written(changed), "--world", "2")
        self.assertGreaterEqual(more["memory"]["peak"]["by_kind"]["scratch"], 1 << 20)


@rotation.taking_turns(3)
class Wire(unittest.TestCase):
    """The bytes that compile prints are those that rank 0's communicator counts in every step."""

    def check(self, world, zero, accumulation, comm, *options):
        model = running.archive("tiny-llama")
        said, plan, _ = report(model, "--world", str(world), "--zero", str(zero), "--grad-accum", str(accumulation), *options)
        expected = {kind: bytes_ for kind, bytes_ in said["wire_bytes"].items() if bytes_}
        launcher = "mpirun" if comm == "mpi" else "dcrun"
        steps = running.train(plan, model, world, 2, "--comm", comm, launcher=launcher).steps
        self.assertEqual(len(steps), 2)
        for row in steps:
            counted = {kind: bytes_ for kind, bytes_ in row["wire_bytes"].items() if bytes_}
            self.assertEqual(counted, expected)
        self.assertTrue(expected)

    def test_predicted_equals_counted(self):
        everything = list(itertools.product((2, 3), (0, 1, 2, 3), (1, 2), ("local", "mpi")))
        some = [case for i, case in enumerate(everything) if (i + i // 4) % 4 == 0]
        for case in everything if running.SLOW else some:
            with self.subTest(case):
                self.check(*case)

    def test_other_wire_types_and_orders(self):
        self.check(2, 3, 1, "local", "--reduce-dtype", "bfloat16")
        self.check(3, 0, 2, "local", "--reduction-order", "per-micro-batch")
        self.check(2, 3, 2, "mpi", "--reduction-order", "per-step")

    def test_gathers_that_go_on_into_the_next_step(self):
        """Each step counts what was sent while it ran, so only the run as a whole is as predicted."""
        model, count = running.archive("tiny-llama"), 5
        passes = "normalize-graph,shard-parameters=2,insert-collectives,add-update,schedule,bucket-reductions,overlap-reductions,overlap-update,layout-arenas"
        said, plan, _ = report(model, "--world", "2", "--passes", passes)
        (overlapped,) = (remark for remark in said["remarks"] if remark["pass"] == "overlap-update")
        self.assertGreater(overlapped["numbers"]["crossing_gathers"], 0)
        steps = running.train(plan, model, 2, count).steps
        for kind, bytes_ in said["wire_bytes"].items():
            self.assertEqual(sum(row["wire_bytes"].get(kind, 0) for row in steps), count * bytes_, kind)


if __name__ == "__main__":
    unittest.main()
