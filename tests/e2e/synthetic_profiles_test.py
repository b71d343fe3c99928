"""The profiles in examples/profiles: published figures of machines that are not here.

build/venv/bin/python tests/e2e/synthetic_profiles_test.py
"""

import json
import os
import re
import unittest

import running
from profile_case import report, written


class SyntheticMachines(unittest.TestCase):
    MODEL = os.path.join(running.ROOT, "tests", "data", "llama_70b_cuda.pt2")

    def test_published_figures(self):
        for name, ranks in (("h100x32", 32), ("h200x8", 8)):
            path = os.path.join(running.ROOT, "examples", "profiles", name + ".json")
            with open(path) as file:
                document = json.load(file)
            said, plan, errors = report(self.MODEL, "--profile", path, "--world", str(ranks), "--chain", "zero3")
            self.assertNotIn("warning", errors)
            notes = {note.split(":")[0] for note in said["notes"] if re.match(r"[a-z]+-[a-z]+: ", note)}
            self.assertEqual(notes, {"synthetic-profile"})
            self.assertFalse(any("the profile lacks" in note for note in said["notes"]))
            figures = said["prediction"]["figures_ns"]
            self.assertEqual(figures["extrapolated"], 0)
            self.assertGreater(figures["interpolated"] + figures["measured"], 0)  # collectives
            self.assertEqual(figures["table"], said["prediction"]["compute_ns"])
            # 6 operations for each of 70e9 parameters and 2048 tokens at this rate, and no more than that again.
            floor = 6 * 70.5e9 * 2048 / document["rates"]["half_flops_per_s"] * 1e9
            self.assertLess(floor, said["prediction"]["compute_ns"])
            self.assertLess(said["prediction"]["compute_ns"], 2 * floor)

    def test_the_all_gather_table(self):
        """2 GiB take 11.76 ms on 32 GPUs; nothing is read off beyond that size in silence."""
        with open(os.path.join(running.ROOT, "examples", "profiles", "h100x32.json")) as file:
            document = json.load(file)
        time = {(row["kind"], row["bytes"]): row["median_ns"] for row in document["collectives"] if "level" not in row}
        self.assertEqual(time["all_gather", 2 << 30], 11_760_000)
        self.assertEqual(time["all_reduce", 1 << 30], 2 * time["reduce_scatter", 1 << 30])
        document["collectives"] = [row for row in document["collectives"] if row["bytes"] < 1 << 28]
        said, _, _ = report(self.MODEL, "--profile", written(document), "--world", "32", "--chain", "zero3")
        self.assertTrue(any(note.startswith("beyond-profile") for note in said["notes"]))
        self.assertGreater(said["prediction"]["figures_ns"]["extrapolated"], 0)

    def test_rows_of_hosts_are_derived_from_those_of_all_ranks(self):
        """As the README of the profiles says; only plans that split by host use them."""
        path = os.path.join(running.ROOT, "examples", "profiles", "h100x32.json")
        with open(path) as file:
            document = json.load(file)
        time = {(row["kind"], row.get("level"), row["ranks"], row["bytes"]): row["median_ns"] for row in document["collectives"]}
        log = {row["bytes"]: row["median_ns"] for row in document["collectives"] if row["kind"] == "all_gather" and "level" not in row}
        for kind, times in (("all_gather", 1), ("reduce_scatter", 1), ("all_reduce", 2)):
            for size, all_ranks in log.items():
                self.assertAlmostEqual(time[kind, "inside", 8, size], times * (20_000 + 7 / 8 * size / 360), delta=1)
                across = log[64] + (all_ranks - log[64]) * 24 / 31
                self.assertAlmostEqual(time[kind, "across", 4, size // 8], times * across, delta=1)
        self.assertEqual(len(time), 3 * 3 * len(log))
        document["collectives"] = [row for row in document["collectives"] if "level" not in row]
        without = written(document)
        for options, uses_them in ((("--chain", "zero3"), False), (("--chain", "hsdp", "--ranks-per-host", "8"), True)):
            first, other = (report(self.MODEL, "--profile", profile, "--world", "32", *options)[0]["prediction"]["step_ns"] for profile in (path, without))
            self.assertEqual(first != other, uses_them)


if __name__ == "__main__":
    unittest.main()
