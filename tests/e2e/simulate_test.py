"""dcc simulate: a plan's step on another machine, without compiling it again.

build/venv/bin/python tests/e2e/simulate_test.py
"""

import functools
import json
import os
import subprocess
import unittest

import running

DCC = os.path.join(running.BIN, "dcc")
LLAMA_70B = os.path.join(running.ROOT, "tests", "data", "llama_70b_cuda.pt2")
H100 = os.path.join(running.ROOT, "examples", "profiles", "h100x32.json")
H200 = os.path.join(running.ROOT, "examples", "profiles", "h200x8.json")


def dcc(*arguments):
    return subprocess.run([DCC, *arguments], capture_output=True, text=True, timeout=300)


@functools.cache
def compiled(model, *options):
    """(path of the plan, what compile predicts)"""
    plan = running.fresh(".dcp")
    said = running.run([DCC, "compile", model, "--no-cache", "--json", "-o", plan, *options]).stdout
    return plan, json.loads(said)["prediction"]


def simulated(plan, *options):
    said = json.loads(running.run([DCC, "simulate", plan, "--json", *options]).stdout)
    assert said["schema"] == "dcc.simulate/1"
    return said


def large(chain="zero3"):
    return compiled(LLAMA_70B, "--world", "32", "--chain", chain, "--profile", H100)


class Repeats(unittest.TestCase):
    """With what the plan was compiled for, the simulation is the compiler's own."""

    def check(self, plan, prediction, *options):
        again = simulated(plan, *options)["prediction"]
        for key in ("step_ns", "compute_ns", "communication_ns", "copy_ns", "contention_ns", "figures_ns", "origin"):
            self.assertEqual(again[key], prediction[key], key)
        for bound in ("full_overlap", "with_ends", "with_contention", "without_norm"):
            self.assertEqual(again["bounds_ns"][bound], prediction["bounds_ns"][bound], bound)
        self.assertLessEqual(max(again["bounds_ns"].values()), again["step_ns"])
        self.assertEqual(again["exposed_ns"], again["step_ns"] - again["compute_ns"] - again["contention_ns"])

    def test_a_measured_profile(self):
        model, profile = running.archive("tiny-llama"), running.fresh(".json")
        running.run([DCC, "profile", model, "-n", "2", "-o", profile])
        for options in (
            ("--chain", "zero3"),
            ("--chain", "zero1", "--grad-accum", "3"),
            ("--chain", "fsdp"),
            ("--chain", "auto"),
            ("--chain", "zero2", "--recompute", "full"),
        ):
            with self.subTest(options=options):
                self.check(*compiled(model, "--world", "2", "--profile", profile, *options), "--profile", profile)

    def test_no_profile(self):
        self.check(*compiled(running.archive("tiny-llama"), "--world", "3", "--threads", "2"))

    def test_a_large_plan(self):
        for chain in ("zero3", "fsdp"):
            self.check(*large(chain), "--profile", H100, "--world", "32")


class OtherMachines(unittest.TestCase):
    def test_a_faster_link(self):
        plan, prediction = large()
        before = simulated(plan, "--profile", H100)
        self.assertLess(before["link"]["step_ns_with_1e9_more"], prediction["step_ns"])
        faster = simulated(plan, "--profile", H100, "--link", "400")
        self.assertEqual(faster["link"]["bytes_per_s"], 400 * 10**9)
        self.assertLess(faster["prediction"]["step_ns"], before["link"]["step_ns_with_1e9_more"])
        self.assertEqual(faster["prediction"]["compute_ns"], prediction["compute_ns"])
        one_more = simulated(plan, "--profile", H100, "--link", "401")["prediction"]["step_ns"]
        self.assertAlmostEqual(one_more, faster["link"]["step_ns_with_1e9_more"], delta=5000)  # a ns for each collective

    def test_another_profile(self):
        plan, prediction = large()
        other = dcc("simulate", plan, "--profile", H200)
        self.assertEqual(other.returncode, 0, other.stderr)
        self.assertNotIn(prediction["origin"], other.stdout)
        without = dcc("simulate", plan)
        self.assertIn("from generic cpu table", without.stdout)
        self.assertIn("compiled with profile " + prediction["origin"].split()[1], without.stderr)

    def test_more_memory(self):
        plan, _ = large()
        arena = simulated(plan)["memory"]["arena_bytes"]
        said = simulated(plan, "--memory", str(arena + 2**30))["memory"]
        self.assertEqual((said["arena_bytes"], said["budget_bytes"]), (arena, arena + 2**30))
        text = dcc("simulate", plan, "--memory", "128GiB").stdout
        self.assertRegex(text, r"memory +93\.9 GiB per rank, 34\.\d GiB to spare; 1 GiB more buys this plan nothing.*only dcc compile --memory says\n")

    def test_text_says_each_thing_once(self):
        text = dcc("simulate", large()[0], "--profile", H100).stdout
        names = [line.split("  ")[0] for line in text.splitlines()]
        self.assertEqual(names, ["plan", "predicted step", "communication", "bounds", "figures", "link", "memory"])
        self.assertRegex(text, r"link +\d+\.\d+ GB/s .*; 1 GB/s more: [\d.]+ m?s less \([\d.]+ %\)\n")


class Refusals(unittest.TestCase):
    def test_what_is_part_of_the_plan(self):
        plan, _ = compiled(running.archive("tiny-llama"), "--world", "3", "--threads", "2")
        for options, code, said in (
            (("--world", "2"), 78, r"error\[DC7102\]: the plan is for 3 ranks: .*compile the model with --world 2"),
            (("--memory", "1KiB"), 80, r"error\[DC7103\]: the plan takes \d+ bytes .*compile the model with --memory 1024"),
            (("--memory", "lots"), 64, r"error\[DC\d+\]: "),
            (("--link", "-1"), 64, r"error\[DC2800\]: "),
            (("--link", "1e9"), 64, r"error\[DC2806\]: --link is in GB/s"),
            (("--link", "fast"), 64, r"error\[DC2800\]: "),
            (("--profile", "/nonexistent.json"), 66, r"/nonexistent\.json"),
            (("--profile", plan), 65, r"measure again"),
        ):
            failed = dcc("simulate", plan, *options)
            self.assertEqual((failed.returncode, failed.stdout), (code, ""), (options, failed.stderr))
            self.assertRegex(failed.stderr, said)
        self.assertEqual(dcc("simulate", "/nonexistent.dcp").returncode, 66)
        self.assertEqual(dcc("simulate", __file__).returncode, 65)


if __name__ == "__main__":
    unittest.main()
