#!/usr/bin/env python
"""scripts/benchmark/published.py: the fit finds known factors, plans are played with factors, and the published rows are whole."""

import json
import os
import shutil
import sys
import tempfile
import unittest

from running import BIN, ROOT

sys.path.insert(0, os.path.join(ROOT, "scripts", "benchmark"))
from published import BASE, CHAINS, RATIOS, Offloading, Runs
from published_fit import fit
from published_plans import Factors, Job, Plans

ARCHIVE = os.path.join(ROOT, "tests", "data", "llama_8b_cuda.pt2")


class MadeUpPlans:
    """Steps of compute that grows with tokens, next to collectives that do not: half of the shorter is hidden."""

    def step(self, job, factors):
        compute = factors.compute * job.shape[0] * job.shape[1] / 1000
        link = factors.link * 2.0
        return max(compute, link) + min(compute, link) / 2 + factors.intercept * job.accumulation


def jobs(truth):
    shapes = [Job("a", (batch, seq), "c") for batch in (1, 2, 4) for seq in (512, 1024, 2048)]
    return [(job, MadeUpPlans().step(job, truth)) for job in shapes]


class Fit(unittest.TestCase):
    def test_known_factors_are_found(self):
        truth = Factors(compute=1.3, link=0.6, intercept=0.4)
        found, errors = fit(MadeUpPlans(), jobs(truth), Factors(), ("compute", "link", "intercept"))
        for name in ("compute", "link", "intercept"):
            self.assertAlmostEqual(getattr(found, name), getattr(truth, name), delta=0.01)
        self.assertLess(max(map(abs, errors)), 0.005)

    def test_time_that_is_not_there_is_not_taken_away(self):
        truth = Factors(compute=1.3, link=0.6, intercept=-0.2)
        found, _ = fit(MadeUpPlans(), jobs(truth), Factors(), ("compute", "link", "intercept"))
        self.assertEqual(found.intercept, 0)
        self.assertGreater(found.compute, 0.5)


class Played(unittest.TestCase):
    def test_factors_lengthen_what_they_are_for(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(ARCHIVE, os.path.join(folder, "llama-3-8b-b1-s2048.pt2"))
            plans = Plans(os.path.join(BIN, "dcc"), folder, 84990000000)
            job = Job("llama-3-8b", (1, 2048), "zero3")
            plain = plans.step(job, Factors())
            self.assertAlmostEqual(plain, plans.report(job)["prediction"]["step_ns"] / 1e9)
            self.assertAlmostEqual(plans.step(job, Factors(intercept=0.5)), plain + 0.5)
            self.assertAlmostEqual(plans.step(job, Factors(compute=2, link=2)), 2 * plain, delta=0.01 * plain)
            # Attention as the cost model has it, then slower: its kernels are found in the plan.
            self.assertAlmostEqual(plans.step(job, Factors(attention=1.0001)), plain, delta=0.001 * plain)
            self.assertGreater(plans.step(job, Factors(attention=3)), 1.01 * plain)
            self.assertIsNone(Plans(os.path.join(BIN, "dcc"), folder, 1 << 30).step(Job("llama-3-8b", (1, 2048), "fsdp"), Factors()))


class Exported(unittest.TestCase):
    def test_an_archive_is_whole_or_absent(self):
        with tempfile.TemporaryDirectory() as folder:
            plans = Plans(os.path.join(BIN, "dcc"), folder, 84990000000)
            archive = plans.archive("tiny-llama", (1, 32))
            self.assertEqual(os.listdir(folder), [os.path.basename(archive)])
            self.assertGreater(plans.step(Job("tiny-llama", (1, 32), "zero-offload", ranks=2), Factors()), 0)


class OffloadedPlans:
    """Steps of ten seconds with the update on the host, of two with offloaded state."""

    def step(self, job, factors):
        return {"zero-offload": 10.0, "deepcompile-offload-optimizer": 2.0}[job.chain]


class Offloaded(unittest.TestCase):
    def test_both_columns_and_the_gain_are_played(self):
        with open(os.path.join(ROOT, "scripts", "benchmark", "deepcompile_h100.json")) as file:
            offloading = Offloading(json.load(file)["offload"])
        cells = offloading.cells(OffloadedPlans(), BASE, Factors())
        self.assertEqual(len(cells), 3 * 4)
        published = {shape: cell.published for (shape, what), cell in cells.items() if cell.kind == "ratio"}
        for shape, gain in {(1, 512): 6.98, (1, 1024): 7.00, (1, 2048): 5.39}.items():
            self.assertAlmostEqual(published[shape], gain, delta=0.01)
        self.assertEqual({cell.ours for cell in cells.values() if cell.kind == "ratio"}, {5.0})


class Data(unittest.TestCase):
    def test_rows_are_whole(self):
        with open(os.path.join(ROOT, "scripts", "benchmark", "deepcompile_h100.json")) as file:
            data = json.load(file)
        self.assertEqual(set(data["columns"][2:]), set(CHAINS))
        self.assertLessEqual({column for pair in RATIOS for column in pair}, set(CHAINS))
        for name in ("charts", "log"):
            for model in data[name]["models"]:
                runs = Runs(name, data, model)
                for row in [*runs.seconds.values(), *runs.peaks.values()]:
                    self.assertEqual(set(row), set(CHAINS))
                    self.assertTrue(all(value > 0 for value in row.values()))


if __name__ == "__main__":
    unittest.main()
