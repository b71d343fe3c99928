"""`dcc profile`: what it measures, on which machine, with which launcher; what plans say of a profile that is not theirs.

build/venv/bin/python tests/e2e/profile_test.py
"""

import collections
import copy
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
from profile_case import DCC, dcc, launched, profile, report, written


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


if __name__ == "__main__":
    unittest.main()
