"""dcc frontier: the step's time over memory.

build/venv/bin/python tests/e2e/frontier_test.py
"""

import json
import os
import re
import unittest

import jobs
import running


class FrontierTest(jobs.JobTest):
    @classmethod
    def setUpClass(cls):
        cls.model = running.archive("tiny-llama")

    def dcc(self, *options):
        return jobs.finished([os.path.join(running.BIN, "dcc"), "frontier", self.model, "--world", "2", "--no-cache", *options])

    def points(self, *options):
        result = self.dcc("--json", *options)
        self.assertEqual(result.code, 0, result.err)
        said = json.loads(result.out)
        self.assertEqual(said["schema"], "dcc.frontier/1")
        return said["points"]

    def test_the_curve_and_its_plans(self):
        plans, page = self.path("plans"), self.path("page.html")
        points = self.points("--points", "5", "--plans", plans, "-o", page)
        self.assertEqual(len(points), 5)
        for before, after in zip(points, points[1:], strict=False):
            self.assertLess(before["budget_bytes"], after["budget_bytes"])
            self.assertLessEqual(after["step_ns"], before["step_ns"])
            self.assertLessEqual(after["bound_ns"], before["bound_ns"])
            self.assertEqual(after["saved_ns"], before["step_ns"] - after["step_ns"])
        self.assertLess(points[-1]["step_ns"], points[0]["step_ns"])
        for i, point in enumerate(points, 1):
            plan = running.inspect(os.path.join(plans, f"{i}.dcp"))
            self.assertEqual(plan["arena_bytes"][0], point["memory_bytes"])
            self.assertLessEqual(point["memory_bytes"], point["budget_bytes"])
            self.assertLessEqual(point["bound_ns"], point["step_ns"])
        # The largest budget is what a plan without one takes; another that keeps it may be shorter by a hair.
        compiled = jobs.finished([os.path.join(running.BIN, "dcc"), "compile", self.model, "--world", "2", "--no-cache", "--json", "-o", self.path("x.dcp")])
        unlimited = json.loads(compiled.out)["prediction"]["step_ns"]
        self.assertLessEqual(points[-1]["step_ns"], unlimited)
        self.assertLess(unlimited, points[-1]["step_ns"] * 1.005)
        # Less than the first one fits nowhere: the curve begins there all the same, unless it would end below.
        least = points[0]["budget_bytes"]
        result = self.dcc("--json", "--memory", f"{least * 9 // 10}:{least * 2}", "--points", "2")
        self.assertEqual(result.code, 0, result.err)
        said = json.loads(result.out)
        self.assertEqual(said["too_small_bytes"], least * 9 // 10)
        self.assertEqual([point["budget_bytes"] for point in said["points"]], [least, least * 2])
        self.assertEqual(said["points"][0]["step_ns"], points[0]["step_ns"])
        self.assertIn(f"note: no schedule was found that keeps {least * 9 // 10} bytes", result.err)
        self.assertIn(f"the frontier begins at {least} bytes", result.err)
        self.refused(self.dcc("--memory", f"{least // 2}:{least * 9 // 10}"), 80, "DC7010", "of the frontier", f"takes --memory {least}")
        self.refused(self.dcc("--memory", f":{least * 9 // 10}"), 80, "DC7010", "of the frontier")
        # The table counts what `dcc inspect` lists.
        for i, point in enumerate(points, 1):
            plan = os.path.join(plans, f"{i}.dcp")
            listed = json.loads(jobs.finished([os.path.join(running.BIN, "dcc"), "inspect", plan, "--as=decisions-json"]).out)["decisions"]
            again = [one for one in listed if one["decided"] == "made again"]
            whole = {one["name"] for one in listed if one["of"] == "parameter" and "holds_bytes" in one}
            self.assertTrue(again or whole)
            if again:
                self.assertRegex(point["decided"], rf"\b{len(again)} activations? made again")
            if whole:
                self.assertIn(f"{len(whole)} of ", point["decided"])
        # A plan is no output of the frontier that starts from it.
        self.refused(self.dcc("--start-from", os.path.join(plans, "1.dcp"), "--plans", plans), 64, os.path.join(plans, "1.dcp"))
        # The page needs nothing else.
        with open(page) as file:
            text = file.read()
        self.assertEqual(text.count("<circle"), 5)
        self.assertIsNone(re.search(r"(src|href)=|url\(", text))
        self.assertIn("default-src 'none'", text)
        # The first and the last train with the same bits.
        losses = []
        for i in (1, 5):
            result = jobs.dcrun("-n", "2", os.path.join(plans, f"{i}.dcp"), "--weights", self.model, "--data", "synthetic:1", "--steps", "3")
            self.assertEqual(result.code, 0, result.err)
            losses.append(re.findall(r"loss (\S+)", result.out))
        self.assertEqual(losses[0], losses[1])
        self.assertEqual(len(losses[0]), 3)
        fewer = self.dcc("--points", "2", "--plans", plans)
        self.assertEqual(fewer.code, 0, fewer.err)
        self.assertRegex(fewer.err, rf"note: {plans}/3.dcp, and plans with higher numbers, are of an earlier frontier")

    def test_what_makes_no_curve(self):
        self.refused(self.dcc("--memory", "1MiB"), 64, "FROM:TO")
        self.refused(self.dcc("--memory", "1GiB:1MiB"), 64, "ends below that")
        self.refused(self.dcc("--memory", "x:1MiB"), 64, "x")
        self.refused(self.dcc("--memory", "0:1GiB"), 64, "DC2801", "0 bytes")
        self.refused(self.dcc("--points", "1"), 64, "--points")
        self.refused(self.dcc("-o", "/proc/nowhere/page.html"), 73, "/proc/nowhere")
        self.refused(self.dcc("--plans", "/proc/nowhere/plans"), 73, "/proc/nowhere")


if __name__ == "__main__":
    unittest.main()
