"""Profiles recorded from runs: bias and residual, calibration, runs that end too early for one, what changes when a plan is compiled again.

build/venv/bin/python tests/e2e/profile_recorded_test.py
"""

import collections
import copy
import json
import os
import re
import shutil
import signal
import unittest

import jobs
import rotation
import running
from profile_case import DCC, dcc, profile, report, written


@rotation.taking_turns(2)
class Recorded(unittest.TestCase):
    """dcrun --record-profile: the running step's own figures, in a profile that compile takes."""

    OPTIONS = ("--world", "2", "--zero", "3", "--grad-accum", "2", "--providers", "aten")  # which has no choices to make by the times

    @classmethod
    def setUpClass(cls):
        cls.model = running.archive("tiny-llama")
        _, cls.plan, _ = report(cls.model, *cls.OPTIONS)
        cls.path = running.fresh(".json")
        cls.trace = running.fresh(".json")
        command = [cls.plan, "--weights", cls.model, "--data", "synthetic:1", "--steps", "6", "--record-profile", cls.path, "--trace", cls.trace]
        cls.said = running.run(running.launch("dcrun", 2, command)).stdout
        with open(cls.path) as file:
            cls.document = json.load(file)

    def test_bias_and_residual_are_told_apart(self):
        lines = self.said[self.said.index(self.path) :].splitlines()
        self.assertRegex(lines[0], r": \d+ kernels, \d+ collective sizes, medians of 4 steps on the slowest of 2 ranks$")
        self.assertEqual(lines[1].split(), ["measured", "predicted", "bias", "residual"])
        rows = {line.split()[0]: line for line in lines[2:]}
        self.assertEqual(list(rows), ["step", "kernels", "collectives"])
        self.assertRegex(rows["step"], r"[\d.]+ \S+ +[\d.]+ \S+ +[+-][\d.]+ %$")
        for name in ("kernels", "collectives"):
            self.assertRegex(rows[name], r"[+-][\d.]+ % +[\d.]+ %$")

    def test_it_looks_like_any_profile(self):
        machine = self.document["machine"]
        self.assertEqual((machine["ranks"], machine["threads"], machine["communicator"]), (2, 1, "local"))
        keys = [(row["key"], row["provider"]) for row in self.document["kernels"]]
        self.assertEqual(keys, sorted(set(keys)))
        # Workspace is measured as dcc profile measures it.
        identity = lambda row: (row["key"], row["provider"])
        other = {identity(row): row["scratch_bytes"] for row in profile(self.model)[1]["kernels"]}
        shared = [row for row in self.document["kernels"] if identity(row) in other]
        self.assertGreater(len(shared), 30)
        self.assertEqual([row["scratch_bytes"] for row in shared], [other[identity(row)] for row in shared])
        self.assertEqual({row["kind"] for row in self.document["collectives"]}, {"all_gather", "reduce_scatter"})

    def test_compile_takes_every_figure_from_it(self):
        said, plan, errors = report(self.model, "--profile", self.path, *self.OPTIONS)
        self.assertNotIn("lacks", errors)
        for doubt in ("foreign-profile", "stale-profile", "profile-threads", "profile-ranks"):
            self.assertNotIn(doubt, errors)
        self.assertFalse(said["memory"]["scratch_is_estimated"])
        times = {(row["kind"], row["bytes"]): row["median_ns"] for row in self.document["collectives"]}
        whole, width = running.inspect(plan), {"f32": 4, "f64": 8, "bf16": 2}
        total = 0
        for part in whole["step"]:
            for instruction in whole["programs"][part["program"]]["instructions"]:
                if instruction["kind"] == "collective":
                    bytes_ = sum(b["elements"] * width[whole["tensors"][b["input"]]["dtype"]] for b in instruction["buffers"])
                    total += part["repeat"] * times[instruction["collective"], bytes_]
        self.assertEqual(said["prediction"]["communication_ns"], total)

    def test_a_median_of_the_trace(self):
        """A kernel that runs once per program is in the profile as the slowest rank's median over the counted steps."""
        with open(self.trace) as file:
            events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X" and e["args"]["step"] > 2]
        ops = collections.Counter(row["key"].split(" ")[0] for row in self.document["kernels"])
        tried = 0
        for row in self.document["kernels"]:
            op = row["key"].split(" ")[0]
            if ops[op] > 1:
                continue  # where the operator has one key, its events can be found by name
            medians = []
            for rank in (0, 1):
                times = sorted(round(1000 * e["dur"]) for e in events if e["pid"] == rank and e["name"] == op)
                self.assertEqual(len(times), row["samples"])
                medians.append(times[len(times) // 2])
            self.assertEqual(row["median_ns"], max(medians), op)
            tried += 1
        self.assertGreater(tried, 5)

    def calibrate(self, plan, recorded, output, profiled=None):
        return dcc("calibrate", plan, "--profile", profiled or profile(self.model)[0], "--recorded", recorded, "-o", output)

    def test_one_run_calibrates_a_profile(self):
        """By the calibrated profile the plan takes as long as it took, and the factors are those of its tables."""
        better = running.fresh(".json")
        said = self.calibrate(self.plan, self.path, better)
        self.assertEqual(said.returncode, 0, said.stderr)
        kernels, collectives = map(float, re.search(r"kernels x ([\d.]+), collectives x ([\d.]+)", said.stdout).groups())
        with open(better) as file:
            document = json.load(file)
        self.assertEqual(document["origin"], "calibrated")
        for table, factor in (("kernels", kernels), ("collectives", collectives), ("during_compute", collectives)):
            before, after = (sum(row["median_ns"] for row in whole[table]) for whole in (profile(self.model)[1], document))
            self.assertAlmostEqual(after / before / factor, 1, delta=0.01, msg=table)
        self.assertEqual(document["copies"], profile(self.model)[1]["copies"])
        measured = self.document["step"]["whole"]["median_ns"]
        predicted = json.loads(dcc("simulate", self.plan, "--profile", better, "--json").stdout)["prediction"]["step_ns"]
        # A link as fast as memory may not make up for what threads need to wake up.
        if 0.13 < collectives < 7.9:
            self.assertAlmostEqual(predicted / measured, 1, delta=0.01)
        again, _, errors = report(self.model, "--profile", better, *self.OPTIONS)
        self.assertNotIn("profile:", errors)
        self.assertGreater(again["prediction"]["step_ns"], 0)

    def test_calibration_needs_a_run_of_the_plan(self):
        output = running.fresh(".json")
        _, other, _ = report(self.model, "--world", "2", "--zero", "1")
        for arguments, code, words in (
            ((other, self.path), 76, "another plan"),
            ((self.plan, profile(self.model)[0]), 65, "--record-profile"),
            ((self.plan, output), 66, output),
            ((self.plan, self.path, written({**self.document, "kernels": []})), 65, "no measured kernels"),
        ):
            said = self.calibrate(*arguments[:2], output, *arguments[2:])
            self.assertEqual(said.returncode, code, said.stderr)
            self.assertIn(words, said.stderr)
            self.assertFalse(os.path.exists(output))
        said = self.calibrate(self.plan, self.path, "/nowhere/p.json")
        self.assertEqual(said.returncode, 73, said.stderr)


class Ends(jobs.JobTest):
    """--record-profile changes no end of a run: where too few steps were made a note says that there is no profile."""

    @classmethod
    def setUpClass(cls):
        cls.model = running.archive("mlp")
        cls.plan = running.compile_plan(cls.model, 2, 2)

    def arguments(self, steps, *options, profile="p.json"):
        source = ("--weights", self.model, "--data", "synthetic:1", "--save", self.path("run"), "--resume", "latest")
        return [self.plan, *source, "--steps", str(steps), "--record-profile", self.path(profile), *options]

    def train(self, steps, *options):
        return jobs.dcrun("-n", "2", *self.arguments(steps, *options))

    def stop(self, job):
        job.process.send_signal(signal.SIGTERM)
        result = job.finish()
        self.assertTrue(os.path.isdir(self.path("run")), result.err)
        [name] = os.listdir(self.path("run"))
        step = int(name.removeprefix("step-"))
        return result, f"after step {step}", f"and the state after step {step} is in {self.path('run')}/step-{step:08}"

    def no_profile(self, result, words):
        notes = [line for line in result.err.splitlines() if line.startswith("dcrun: note: no profile was written to " + self.path("p.json"))]
        self.assertEqual(len(notes), 1, result.err)
        self.assertIn(words, notes[0])
        self.assertNotIn("error[", result.err)
        self.nothing_at("p.json")

    def test_too_few_steps_left(self):
        self.assertEqual(self.train(4).code, 64)  # those of a job that is begun are counted before it
        self.assertEqual(self.train(6).code, 0)
        os.remove(self.path("p.json"))
        result = self.train(8)
        self.assertEqual(result.code, 0, result.err)
        self.no_profile(result, "this run had 2 steps left to make, and a profile takes 5, 2 of them to warm up; give --steps 11 or more")
        self.assertEqual(sorted(os.listdir(self.path("run"))), ["step-00000006", "step-00000008"])
        result = self.train(8)
        self.assertEqual(result.code, 0, result.err)
        self.assertIn("no step is left to run", result.err)
        self.no_profile(result, "this run had 0 steps left to make, and a profile takes 5, 2 of them to warm up; give --steps 13 or more")
        self.assertEqual(self.train(13).code, 0)
        self.assertTrue(os.path.exists(self.path("p.json")))

    def test_stopped_at_once(self):
        job = self.start("dcrun", 2, self.arguments(1000000))
        job.await_launcher()
        result, _, saved = self.stop(job)
        self.assertEqual(result.code, 75, result.err)
        self.assertIn("(exit 75), " + saved, result.of_rank(0))
        self.no_profile(result, "this run was stopped after ")

    def test_a_profile_that_cannot_be_written(self):
        os.mkdir(self.path("gone"))
        job = self.start("dcrun", 2, self.arguments(1000000, profile="gone/p.json"))
        job.await_steps(5)
        shutil.rmtree(self.path("gone"))
        result, step, saved = self.stop(job)
        self.refused(result, 73, "gone/p.json", f"the run was stopped on request {step}, {saved}")


@rotation.taking_turns(2)
class Changes(unittest.TestCase):
    """Compiling again into the same file: what the new profile changed, and nothing else."""

    OPTIONS = ("--world", "2", "--no-cache")

    @classmethod
    def setUpClass(cls):
        cls.model = running.archive("tiny-llama")
        cls.path, cls.document = cls.recorded()

    @classmethod
    def recorded(cls):
        _, plan, _ = report(cls.model, "--world", "2", "--profile", profile(cls.model)[0])
        path = running.fresh(".json")
        command = [plan, "--weights", cls.model, "--data", "synthetic:1", "--steps", "6", "--record-profile", path]
        running.run(running.launch("dcrun", 2, command))
        with open(path) as file:
            return path, json.load(file)

    def compile(self, plan, path, *options):
        """(what --json says, the plan's bytes)"""
        said = running.run([DCC, "compile", self.model, *self.OPTIONS, *options, "--profile", path, "--json", "-o", plan]).stdout
        with open(plan, "rb") as file:
            return json.loads(said), file.read()

    def with_links(self, nanoseconds):
        """The recorded profile, but every collective takes so long."""
        document = copy.deepcopy(self.document)
        for row in document["collectives"]:
            row["median_ns"] = row["fastest_ns"] = nanoseconds
        return written(document)

    def test_the_recorded_profile_again(self):
        plan = running.fresh(".dcp")
        said, first = self.compile(plan, profile(self.model)[0])
        self.assertNotIn("changes", said)  # there was no plan before
        said, second = self.compile(plan, self.path)
        self.assertTrue(any(line.startswith("predicted step: ") for line in said["changes"]), said["changes"])
        said, third = self.compile(plan, self.path)
        self.assertEqual(third, second)
        self.assertEqual(said["changes"], ["nothing changed: the same instructions at the same addresses"])
        text = running.run([DCC, "compile", self.model, *self.OPTIONS, "--profile", self.path, "-o", plan]).stdout
        self.assertTrue(text.endswith("\nchanges            against the plan that the file held before\n  " + said["changes"][0] + "\n"))

    def test_other_links(self):
        """With links that take no time every reduction is waited for at once, with slow ones as late as may be."""
        plan = running.fresh(".dcp")
        before, _ = self.compile(plan, self.with_links(1), "--chain", "fsdp")
        after, _ = self.compile(plan, self.with_links(10**9), "--chain", "fsdp")
        changes = dict(line.split(": ", 1) for line in after["changes"])
        self.assertNotIn("nothing changed", changes)
        self.assertNotIn("options", changes)
        self.assertNotIn("chain", changes)
        self.assertNotIn("compute", changes)  # only the links' figures differ
        self.assertIn(" becomes ", changes["communication"])
        self.assertRegex(changes["reductions"], r"^\d+ reductions? .*waited for elsewhere")
        self.assertGreater(after["prediction"]["step_ns"], before["prediction"]["step_ns"])

    def test_other_chains(self):
        plan = running.fresh(".dcp")
        passes = "normalize-graph,shard-parameters=3,insert-collectives,add-update,schedule,{}layout-arenas"
        self.compile(plan, self.path, "--passes", passes.format("bucket-reductions=1KiB,"))
        said, _ = self.compile(plan, self.path, "--passes", passes.format("keep-resident,bucket-reductions=64MiB,"))
        changes = dict(line.split(": ", 1) for line in said["changes"])
        self.assertEqual(changes["chain"], "with keep-resident, bucket-reductions=67108864 instead of bucket-reductions=1024")
        self.assertRegex(changes["gathers"], r"^\d+ gathers fewer")
        self.assertIn("now with another in one collective", changes["reductions"])
        self.assertIn("memory on the device", changes)
        again, _ = self.compile(plan, self.path, "--passes", passes.format("keep-resident,bucket-reductions=64MiB,"))
        self.assertEqual(again["changes"], ["nothing changed: the same instructions at the same addresses"])

    def test_figures_that_decide_nothing(self):
        """The same instructions with other figures: that nothing changed, and what is predicted now."""
        plan = running.fresh(".dcp")
        self.compile(plan, self.path, "--chain", "zero3")
        said, _ = self.compile(plan, self.with_links(10**9), "--chain", "zero3")
        names = [line.split(":")[0] for line in said["changes"]]
        self.assertEqual(names, ["nothing changed", "predicted step", "communication"])

    def test_what_is_no_plan_of_this_model_is_replaced(self):
        other = report(running.archive("mlp"), "--world", "2")[1]
        for target in (other, running.fresh(".dcp")):
            if target != other:
                with open(target, "w") as file:
                    file.write("not a plan")
            self.assertNotIn("changes", self.compile(target, self.path)[0])
            self.assertEqual(self.compile(target, self.path)[0]["changes"], ["nothing changed: the same instructions at the same addresses"])


if __name__ == "__main__":
    unittest.main()
