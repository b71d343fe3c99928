"""dcc profile, and what plans say against what happened: predicted time, bytes on the wire.

build/venv/bin/python tests/e2e/profile_test.py
"""

import collections
import copy
import functools
import itertools
import json
import os
import pty
import re
import signal
import subprocess
import time
import unittest

import rotation
import running

DCC = os.path.join(running.BIN, "dcc")


def dcc(*arguments, environment=None):
    return subprocess.run([DCC, *arguments], capture_output=True, text=True, timeout=180, env={**os.environ, **(environment or {})})


def launched(launcher, ranks, arguments):
    command = running.launch(launcher, ranks, arguments)
    return [DCC if word == os.path.join(running.BIN, "dcrun") else word for word in command]


@functools.cache
def profile(model, ranks=2, *options):
    """(path, document)"""
    path = running.fresh(".json")
    running.run([DCC, "profile", model, "-n", str(ranks), *options, "-o", path])
    with open(path) as file:
        return path, json.load(file)


def written(document):
    path = running.fresh(".json")
    with open(path, "w") as file:
        json.dump(document, file)
    return path


def report(model, *options):
    plan = running.fresh(".dcp")
    result = running.run([DCC, "compile", model, "--no-cache", "--json", "-o", plan, *options])
    return json.loads(result.stdout), plan, result.stderr


@rotation.taking_turns(2)
class Profile(unittest.TestCase):
    def check(self, document, launcher, ranks, threads=1):
        machine = document["machine"]
        self.assertEqual((document["format"], document["version"]), ("dcc-profile", 2))
        self.assertEqual((machine["ranks"], machine["threads"], machine["launcher"]), (ranks, threads, launcher))
        keys = [(row["key"], row["provider"]) for row in document["kernels"]]
        self.assertEqual(keys, sorted(set(keys)))
        for row in document["kernels"]:
            self.assertGreater(row["median_ns"], 0, row["key"])
            self.assertLessEqual(row["fastest_ns"], row["median_ns"])
            self.assertGreaterEqual(row["samples"], 5)
        kinds = collections.Counter(row["kind"] for row in document["collectives"])
        self.assertEqual(set(kinds), {"all_gather", "all_reduce", "reduce_scatter"} if ranks > 1 else set())
        self.assertEqual(len(set(kinds.values())), 1 if ranks > 1 else 0)
        size = lambda row: (row["kind"], row["ranks"], row["bytes"])
        self.assertEqual([size(row) for row in document["during_compute"]], [size(row) for row in document["collectives"]])
        for row in document["during_compute"]:
            self.assertGreater(row["median_ns"], 0)
            self.assertLessEqual(1000, row["compute_permille"])
        large = sorted({row["bytes"] for row in document["collectives"] if 2**16 <= row["bytes"] <= 2**24})
        both = [("all_gather", "reduce_scatter"), ("reduce_scatter", "all_gather")]
        together = document.get("together", [])
        self.assertEqual([(row["bytes"], row["kind"], row["other"]) for row in together], [(bytes, *pair) for bytes in large for pair in both])
        for row in together:
            self.assertGreater(min(row["median_ns"], row["samples"]), 0)
            self.assertEqual(row["ranks"], ranks)
        self.assertEqual(document["origin"], "measured")
        self.assertEqual(document["complete"], {"kernels": True, "collectives": ranks > 1, "during_compute": ranks > 1, "copies": True})
        spaces = collections.Counter((row["from"], row["to"]) for row in document["copies"])
        self.assertEqual(spaces, {("device", "host"): 7, ("host", "device"): 7})

    def test_own_ranks(self):
        self.check(profile(running.archive("tiny-llama"))[1], "dcrun -n", 2)

    def test_one_rank_and_threads(self):
        document = profile(running.archive("mlp"), 1, "--threads", "2")[1]
        self.check(document, document["machine"]["launcher"], 1, threads=2)

    def test_other_launchers(self):
        model, names = running.archive("mlp"), {}
        for launcher in ("mpirun", "torchrun"):
            path = running.fresh(".json")
            running.run(launched(launcher, 2, ["profile", model, "-o", path]))
            with open(path) as file:
                document = json.load(file)
            names[launcher] = document["machine"]["launcher"]
            self.check(document, names[launcher], 2)
        self.assertIn("torchrun", names["torchrun"])
        self.assertIn("MPI", names["mpirun"])
        command = launched("mpirun", 2, ["profile", model, "-n", "3", "-o", running.fresh()])
        failed = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(failed.returncode, 78)
        self.assertIn("contradicts the launcher", failed.stderr)

    def test_an_unwritable_output_is_noticed_first(self):
        model = running.archive("tiny-llama")
        for ranks in ("1", "2"):
            start = time.monotonic()
            failed = dcc("profile", model, "-n", ranks, "-o", "/nonexistent/prof.json")
            self.assertEqual((failed.returncode, failed.stdout), (73, ""))
            self.assertIn("/nonexistent/prof.json", failed.stderr)
            self.assertEqual(failed.stderr.count("error["), 1)
            self.assertLess(time.monotonic() - start, 1)

    def test_bad_input(self):
        output = running.fresh(".json")
        self.assertEqual(dcc("profile", "/nonexistent.pt2", "-n", "2", "-o", output).returncode, 66)
        self.assertEqual(dcc("profile", __file__, "-n", "2", "-o", output).returncode, 65)
        for option, bad in (("--threads", "0"), ("--threads", "9999"), ("-n", "0"), ("-n", "-1"), ("-n", "100000"), ("-n", "two")):
            self.assertEqual(dcc("profile", running.archive("mlp"), option, bad, "-o", output).returncode, 64, (option, bad))
        self.assertFalse(os.path.exists(output))

    def on_a_terminal(self, *arguments):
        """(what dcc shows on a terminal, what it prints)"""
        ours, theirs = pty.openpty()
        with subprocess.Popen([DCC, *arguments], stderr=theirs, stdout=subprocess.PIPE) as process:
            os.close(theirs)
            shown = b""
            while True:
                try:
                    chunk = os.read(ours, 4096)
                except OSError:  # the other side is closed
                    break
                if not chunk:
                    break
                shown += chunk
            said = process.stdout.read().decode()
        os.close(ours)
        self.assertEqual(process.returncode, 0)
        return shown.decode(), said

    def test_a_bar_on_a_terminal(self):
        model, output = running.archive("mlp"), running.fresh(".json")
        shown, said = self.on_a_terminal("profile", model, "-n", "2", "-o", output)
        self.assertRegex(shown, r"\r\[#*\.+\] +\d+ % kernels")
        self.assertRegex(shown, r"\r\[#{40}\] 100 % collectives *\r?\n")
        self.assertRegex(said, r"^\S+: \d+ kernels, \d+ collective sizes, 2 ranks with 1 thread each on ")
        self.assertEqual(dcc("profile", model, "-o", output).stderr, "")  # no bar in a file

    def test_a_bar_of_fusions_follows_that_of_kernels(self):
        shown, _ = self.on_a_terminal("profile", running.archive("tiny-llama"), "--fusions", "40", "-o", running.fresh(".json"))
        percent = {what: [int(n) for n in re.findall(rf"(\d+) % {what}", shown)] for what in ("kernels", "fusions")}
        self.assertTrue(percent["kernels"] and percent["fusions"], shown)
        self.assertLessEqual(max(percent["kernels"]), min(percent["fusions"]))
        self.assertEqual(percent["fusions"], sorted(percent["fusions"]))

    def test_a_dead_rank_ends_the_others(self):
        model, output = running.archive("small-llama"), running.fresh(".json")
        process = subprocess.Popen([DCC, "profile", model, "-n", "2", "-o", output], stderr=subprocess.PIPE, text=True)
        children = f"/proc/{process.pid}/task/{process.pid}/children"
        ranks = []
        while len(ranks) < 2:
            with open(children) as file:
                ranks = [int(word) for word in file.read().split()]
        time.sleep(1.5)  # they measure for longer than this
        os.kill(ranks[1], signal.SIGKILL)
        start = time.monotonic()
        _, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 83, said)
        self.assertLess(time.monotonic() - start, 10)
        self.assertRegex(said, r"rank 1 was killed by signal 9")
        self.assertTrue(said.strip().splitlines()[-1].startswith("dcc: exit 83"), said)
        self.assertFalse(os.path.exists(output))
        for rank in ranks:
            self.assertFalse(os.path.exists(f"/proc/{rank}"))


class Notes(unittest.TestCase):
    """What makes a profile doubtful is said by name, and recorded in the plan."""

    def notes(self, document, *options):
        said, plan, errors = report(running.archive("mlp"), "--profile", written(document), *(options or ("--world", "2")))
        self.assertEqual(running.inspect(plan)["notes"], said["notes"])
        for note in said["notes"]:
            self.assertIn("note: " + note, errors)
        return {note.split(":")[0] for note in said["notes"] if re.match(r"[a-z]+-[a-z]+: ", note)}

    def test_names(self):
        _, good = profile(running.archive("mlp"))
        self.assertEqual(self.notes(good), set())
        changed = copy.deepcopy(good)
        changed["machine"]["software"] = "dcc 0.0.1"
        self.assertEqual(self.notes(changed), {"stale-profile"})
        self.assertEqual(self.notes(good, "--world", "2", "--threads", "2"), {"profile-threads"})
        self.assertEqual(self.notes(good, "--world", "3"), {"profile-ranks", "beyond-profile"})
        changed = copy.deepcopy(good)
        changed["complete"]["during_compute"] = False
        self.assertEqual(self.notes(changed), {"partial-profile"})
        changed = copy.deepcopy(good)
        changed["origin"] = "synthetic"
        changed["machine"]["software"] = changed["model_digest"] = "none"
        self.assertEqual(self.notes(changed), {"synthetic-profile"})
        changed = copy.deepcopy(good)
        changed["collectives"] = [row for row in good["collectives"] if row["bytes"] <= 4096]
        for row in changed["collectives"]:
            row["median_ns"] = 10**6
        self.assertEqual(self.notes(changed), {"beyond-profile"})
        for digest in ("f" * 64, ""):
            changed = copy.deepcopy(good)
            changed["model_digest"] = digest
            self.assertEqual(self.notes(changed), {"foreign-profile"})

    def test_of_another_model(self):
        path, _ = profile(running.archive("tiny-llama"))
        said, _, _ = report(running.archive("mlp"), "--profile", path, "--world", "2")
        self.assertTrue(any(note.startswith("foreign-profile") for note in said["notes"]))
        self.assertTrue(any(re.match(r"the profile lacks \d+ of \d+ figures", note) for note in said["notes"]))

    def test_another_machine_is_said_but_not_recorded(self):
        path, good = profile(running.archive("mlp"))
        good = copy.deepcopy(good)
        good["machine"]["cpu"] = "Another CPU"
        said, _, errors = report(running.archive("mlp"), "--profile", written(good), "--world", "2")
        self.assertIn("warning: other-machine: ", errors)
        self.assertNotIn("Another CPU", json.dumps(said))
        self.assertNotIn("warning", report(running.archive("mlp"), "--profile", path, "--world", "2")[2])


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


class Disk(unittest.TestCase):
    """dcc profile --offload-dir: plans that offload to disk take the time of a copy from there."""

    def test_copies_to_disk(self):
        model, folder = running.archive("tiny-llama"), os.path.dirname(running.fresh())
        before = sorted(os.listdir(folder))
        path, document = profile(model, 2, "--offload-dir", folder)
        self.assertEqual(sorted(set(os.listdir(folder)) - {os.path.basename(path)}), before)
        spaces = collections.Counter((row["from"], row["to"]) for row in document["copies"])
        self.assertEqual(spaces, dict.fromkeys((("device", "host"), ("host", "device"), ("device", "disk"), ("disk", "device")), 7))
        need, _, _ = report(model, "--profile", path, "--world", "2", "--zero", "1")
        slower = copy.deepcopy(document)
        for row in slower["copies"]:
            if "disk" in (row["from"], row["to"]):
                row["median_ns"] = 10**9
        times = []
        for figures in (path, written(slower)):
            said, _, _ = report(
                model,
                "--profile",
                figures,
                "--world",
                "2",
                "--chain",
                "deepcompile-offload-optimizer",
                "--offload-space",
                "disk",
                "--memory",
                str(need["memory"]["arena_bytes"]["device"] * 9 // 10),
            )
            times.append(said["prediction"]["copy_ns"])
        self.assertGreater(times[0], 0)
        self.assertGreater(times[1], 10**9)

    def test_a_folder_that_is_none(self):
        output = running.fresh(".json")
        said = dcc("profile", running.archive("mlp"), "-n", "2", "--offload-dir", "/nowhere", "-o", output)
        self.assertEqual(said.returncode, 73, said.stderr)
        self.assertIn("/nowhere", said.stderr)
        self.assertFalse(os.path.exists(output))


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
