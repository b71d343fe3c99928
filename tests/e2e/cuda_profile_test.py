"""`dcc profile --device cuda` on the doubles of CUDA's libraries (tests/double): it has figures for all that a plan needs, plans are made and run with them,
and what is missing or fails is told.

Nothing about GPUs follows from the figures.
"""

import collections
import copy
import functools
import json
import os
import time
import unittest

import torch

import running
from cuda_test import CUDA, Classifier, environment
from export_case import export_train_step

DCC = os.path.join(running.BIN, "dcc")


class Arctangent(torch.nn.Module):
    """`aten.atan` is libtorch's on every device."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(9, 9)

    def forward(self, x):
        return self.layer(x).atan().square().mean()


@functools.cache
def classifier():
    torch.manual_seed(0)
    path = running.fresh(".pt2")
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    export_train_step(model, (torch.randn(16, 12), torch.randint(5, (16,))), path, optimizer=optimizer, clip_norm=1.0)
    return path


def profile(model, ranks, *options, **more):
    """(path, document, what was said)"""
    path = running.fresh(".json")
    surroundings = {**os.environ, **environment(**{"DOUBLE_PAUSE_US": "2", "DOUBLE_GPUS": str(ranks), **more})}
    said = running.run([DCC, "profile", model, "-n", str(ranks), *CUDA, *options, "-o", path], env=surroundings, anew=True).stdout
    with open(path) as file:
        return path, json.load(file), said


@functools.cache
def profile_of(ranks):
    return profile(classifier(), ranks)


class CudaProfileTest(unittest.TestCase):
    def check(self, document, ranks):
        machine = document["machine"]
        self.assertEqual((machine["device"], machine["ranks"]), ("cuda", ranks))
        self.assertEqual(machine["communicator"], "nccl" if ranks > 1 else "local")
        gpu = machine["gpu"]
        self.assertEqual((gpu["name"], gpu["compute_capability"], gpu["driver"], gpu["multiprocessors"]), ("a GPU that is none", "9.0", "13.0", 4))
        self.assertEqual((gpu["memory_bytes"], gpu["clock_khz"], gpu["memory_clock_khz"]), (2**32, 1_000_000, 2_000_000))
        self.assertEqual({row["provider"] for row in document["kernels"]}, {"native", "fused"})
        for row in document["kernels"]:
            self.assertGreater(row["median_ns"], 0, row["key"])
            self.assertLess(row["median_ns"], 10**10, row["key"])
            self.assertGreaterEqual(row["samples"], 9)
            if row["provider"] == "fused" and "dim=[" in row["key"]:
                continue  # totals of columns' parts, where it folds columns
            is_product = row["key"].split(" ")[0] in ("aten.mm.default", "aten.addmm.default")
            self.assertEqual(row["scratch_bytes"] > 0, is_product or row["key"].startswith(("dc.square_sum", "dc.linear_cross_entropy")), row["key"])
        tables = [document[name] for name in ("collectives", "during_compute")] if ranks > 1 else []
        for table in tables:
            kinds = collections.Counter(row["kind"] for row in table)
            self.assertEqual(set(kinds), {"all_gather", "all_reduce", "reduce_scatter"})
            for row in table:
                self.assertEqual(row["ranks"], ranks)
                self.assertGreater(row["median_ns"], 0)
                self.assertLessEqual(1000, row.get("compute_permille", 1000))
        spaces = collections.Counter((row["from"], row["to"]) for row in document["copies"])
        self.assertEqual(spaces, {("device", "host"): 7, ("host", "device"): 7})
        for row in document["copies"]:
            self.assertGreater(row["median_ns"], 0)
        self.assertEqual(document["complete"], {"kernels": True, "collectives": ranks > 1, "during_compute": ranks > 1, "copies": True})

    def test_one_rank(self):
        _, document, said = profile_of(1)
        self.check(document, 1)
        self.assertIn("1 rank with a GPU each, a GPU that is none", said)

    def test_two_ranks(self):
        _, document, said = profile_of(2)
        self.check(document, 2)
        self.assertIn("2 ranks with a GPU each, a GPU that is none", said)

    def test_two_ranks_on_one_gpu(self):
        _, document, said = profile(classifier(), 2, DOUBLE_GPUS="1")
        self.assertEqual(document["machine"]["communicator"], "ipc")
        self.assertIn("2 ranks with 1 GPU together, a GPU that is none", said)

    def compiled(self, model, *options):
        """(the report, path of the plan, notes on stderr)"""
        plan = running.fresh(".dcp")
        result = running.run([DCC, "compile", model, "--no-cache", "--json", "-o", plan, *options])
        return json.loads(result.stdout), plan, result.stderr

    def test_plans_are_for_the_gpu_that_was_measured(self):
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                report, plan, said = self.compiled(classifier(), "--profile", profile_of(ranks)[0], "--world", str(ranks))
                self.assertEqual(running.inspect(plan)["device"], "cuda")
                for word in ("profile-", "warning"):
                    self.assertNotIn(word, said)
                self.assertGreater(report["prediction"]["step_ns"], 0)
                figures = report["prediction"]["figures_ns"]
                self.assertGreater(2 * figures["measured"], sum(figures.values()), figures)
                expected = running.train(running.compile_plan(classifier(), ranks, 0), classifier(), ranks, 2)
                got = running.train(plan, classifier(), ranks, 2, environment=environment(DOUBLE_GPUS=str(ranks)))  # on the plan's device
                self.assertEqual(got.header["communicator"], "nccl" if ranks > 1 else "local")
                for one, other in zip(expected.steps, got.steps, strict=True):
                    self.assertAlmostEqual(one["loss"], other["loss"], delta=2e-5 * abs(one["loss"]))
                with self.assertRaises(running.CommandFailed) as caught:
                    running.train(plan, classifier(), ranks, 1, "--device", "cpu")
                self.assertEqual(caught.exception.code, 76)
                self.assertIn("DC6606", str(caught.exception))

    def test_memory_beyond_the_arena(self):
        """What a context takes is in the profile and in plans that are made with it; those that do not fit the GPU with it say which budget does."""
        context = 100 << 20  # tests/double/nvml.cpp
        for ranks in (1, 2):
            taken = profile_of(ranks)[1]["machine"]["gpu"]["library_bytes"]
            self.assertGreaterEqual(taken, context)
            self.assertLess(taken, context + (1 << 20))  # and what is allocated for kernels
        path, document, _ = profile_of(1)
        taken = document["machine"]["gpu"]["library_bytes"]
        report, plan, said = self.compiled(classifier(), "--profile", path, "--world", "1")
        self.assertEqual(report["memory"]["library_bytes"], taken)
        self.assertEqual(running.inspect(plan)["prediction"]["library_bytes"], taken)
        self.assertNotIn("beyond-gpu", said)
        shown = running.run([DCC, "inspect", plan, "--as=summary"]).stdout
        self.assertRegex(shown, rf"beyond it +[0-9.]+ MiB \({taken} bytes\) more of each rank's GPU")
        document = copy.deepcopy(document)  # other tests read it too
        document["machine"]["gpu"]["memory_bytes"] = size = taken + report["memory"]["arena_bytes"]["device"] - 1
        small = running.fresh(".json")
        with open(small, "w") as file:
            json.dump(document, file)
        _, _, said = self.compiled(classifier(), "--profile", small, "--world", "1")
        self.assertIn(f"--memory {size - taken} fits it", said)
        self.compiled(classifier(), "--profile", small, "--world", "1", "--device", "cpu", "--chain", "zero0")

    def test_memory_that_is_not_known(self):
        """Where NVIDIA's management library is not there, and where ranks share a GPU."""
        for ranks, more in ((1, {"missing": ("nvml",)}), (2, {"DOUBLE_GPUS": "1"})):
            path, document, _ = profile(classifier(), ranks, **more)
            self.assertNotIn("library_bytes", document["machine"]["gpu"])
        report, plan, _ = self.compiled(classifier(), "--profile", path, "--world", "2")
        self.assertEqual(report["memory"]["library_bytes"], 0)
        self.assertIn("which the profile does not say", running.run([DCC, "inspect", plan, "--as=summary"]).stdout)

    def test_workspace_is_the_plans(self):
        report, plan, _ = self.compiled(classifier(), "--profile", profile_of(1)[0], "--world", "1", "--zero", "0")
        products = {row["key"]: row["scratch_bytes"] for row in profile_of(1)[1]["kernels"] if row["key"].startswith(("aten.mm", "aten.addmm"))}
        described = running.inspect(plan)
        scratch = [
            described["slices"][instruction["scratch"]]["bytes"]
            for program in described["programs"]
            for instruction in program["instructions"]
            if instruction.get("op", "").startswith(("aten.mm", "aten.addmm"))
        ]
        self.assertEqual(sorted(set(scratch)), sorted({-(-size // 64) * 64 for size in products.values()}))

    def test_a_profile_of_another_device_is_noted(self):
        _, plan, said = self.compiled(classifier(), "--profile", profile_of(1)[0], "--world", "1", "--zero", "0", "--device", "cpu")
        self.assertIn("profile-device: the profile was measured on device 'cuda', the plan is for device 'cpu'", said)
        self.assertEqual(running.inspect(plan)["device"], "cpu")
        said = running.run(
            running.launch("dcrun", 1, [plan, "--weights", "init:1", "--data", "synthetic:1", "--steps", "1", *CUDA]),
            env={**os.environ, **environment()},
            anew=True,
        ).stderr
        self.assertEqual(said.count("a profile of device 'cpu' and runs on 'cuda'"), 1)

    def test_published_figures_make_plans_for_gpus(self):
        example = os.path.join(running.ROOT, "examples", "profiles", "h200x8.json")
        report, plan, _ = self.compiled(classifier(), "--profile", example, "--world", "2", "--zero", "3", "--device", "cuda")
        self.assertEqual(running.inspect(plan)["device"], "cuda")

    def test_operators_without_kernels_are_named_when_a_plan_is_compiled(self):
        model = running.fresh(".pt2")
        export_train_step(Arctangent(), (torch.randn(4, 2, 9),), model)
        with self.assertRaises(running.CommandFailed) as caught:
            self.compiled(model, "--world", "1", "--device", "cuda")
        self.assertEqual(caught.exception.code, 81)
        for text in ("DC7038", "aten.atan.default"):
            self.assertIn(text, str(caught.exception))

    def refused(self, code, text, *options, ranks=1, model=None, **more):
        begin = time.monotonic()
        with self.assertRaises(running.CommandFailed) as caught:
            profile(model or classifier(), ranks, *options, **more)
        self.assertEqual(caught.exception.code, code, caught.exception)
        self.assertIn(text, str(caught.exception))
        self.assertLess(time.monotonic() - begin, 60)

    def test_what_is_missing_is_named(self):
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                self.refused(69, "DC6140", ranks=ranks, missing=("cuda",))
                self.refused(69, "DC6142", ranks=ranks, DOUBLE_GPUS="0")
                self.refused(69, "DC6150", ranks=ranks, missing=("nvrtc",))
                self.refused(69, "DC6157", ranks=ranks, missing=("cublasLt",))
        self.refused(69, "DC6160", "--comm", "tcp", ranks=2, missing=("nccl",))

    def test_a_full_gpu(self):
        self.refused(80, "end what else uses it", DOUBLE_MEMORY="20000")
        self.refused(80, "end what else uses it", ranks=2, DOUBLE_MEMORY="20000")

    def test_a_gpu_that_fails(self):
        self.refused(69, "DC6143", DOUBLE_FAIL="cuLaunchKernel:20:719")
        self.refused(69, "DC6148", DOUBLE_FAIL="cuEventElapsedTime:20:999")

    def test_what_is_not_there(self):
        self.refused(81, "--offload-dir", "--offload-dir", running.scratch())
        self.refused(81, "--fusions", "--fusions", "10")
        model = running.fresh(".pt2")
        export_train_step(Arctangent(), (torch.randn(4, 2, 9),), model)
        self.refused(81, "aten.atan", model=model)


if __name__ == "__main__":
    unittest.main()
