"""Equal bits with recomputation, under budgets and of everything."""

import os
import re
import subprocess
import unittest

import running
from bits_case import CLIPPED, MORE_SUBJECTS, SUBJECTS, BitsCase, run_new, run_once


class RecomputeTest(BitsCase):
    """What is made again has the same bits, from loose to tight budgets. Poison shows reads of what was given up."""

    # (subject, world, zero, accumulation), and what of the way from no pressure to the least possible budget is gone.
    # In mlp the kernels that would run again need as much room as they would free.
    CASES = [
        ("tiny-llama", 2, 3, 4),
        ("tiny-gpt2 dropout", 2, 3, 1),
        ("tiny-mixtral", 1, 0, 1),
        ("resnet18", 2, 3, 1),
        ("tiny-llama autocast", 2, 2, 1),
        ("tiny-gpt2 dropout", 1, 0, 4),
        ("tiny-llama bfloat16", 2, 1, 4),
    ]
    TIGHTNESS = (0.3, 0.7, 0.95)

    def dcc(self, subject, world, zero, accumulation, *options):
        """(the finished compiler, path of its plan)"""
        plan, config = running.fresh(".dcp"), running.train_config(**CLIPPED)
        command = [
            os.path.join(running.BIN, "dcc"),
            "compile",
            running.archive(*{**SUBJECTS, **MORE_SUBJECTS}[subject]),
            "--world",
            str(world),
            *(("--zero", str(zero)) if isinstance(zero, int) else ("--chain", zero)),
            "--grad-accum",
            str(accumulation),
            "--config",
            config,
            "--no-cache",
        ]
        return subprocess.run([*command, *options, "-o", plan], capture_output=True, text=True), plan

    def budgets(self, *case):
        need = running.inspect(self.dcc(*case)[1])["arena_bytes"][0]
        failed, _ = self.dcc(*case, "--memory", "1")
        self.assertEqual(failed.returncode, 80)
        least = int(re.search(r"needs (\d+) bytes", failed.stderr).group(1))
        self.assertLess(least, need)
        return [int(need - part * (need - least)) for part in self.TIGHTNESS]

    def verify(self, case, *memory, passes=()):
        with self.subTest(case, memory=memory, passes=passes):
            remarks = running.inspect(self.dcc(*case, *memory)[1])["remarks"]
            self.assertTrue(any(remark["code"] == "recomputed" for remark in remarks))
            got = run_new(*case, options=("--poison",), compile_options=memory, passes=passes)
            self.assert_same(run_once(*case), got, "recomputed")

    def test_budgets(self):
        cases = self.CASES
        if running.SLOW:
            subjects = (*SUBJECTS, *MORE_SUBJECTS)
            cases = [(s, w, z, a) for s in subjects if s != "mlp" for w in (1, 2) for z in (0, 3) for a in (1, 4)]
        for index, case in enumerate(cases):
            budgets = self.budgets(*case)
            for budget in budgets if running.SLOW else budgets[index % len(budgets) :][:1]:
                self.verify(case, "--memory", str(budget))

    def test_full(self):
        for case in self.CASES:
            self.verify(case, "--recompute", "full")

    def test_baselines(self):
        """A third gather for gradients where blocks run again, and prefetch by a trace."""
        for chain, code in (("fsdp-hf", "gathers-again"), ("zero3-trace", "gathers-earlier")):
            for subject, accumulation in (("tiny-llama", 1), ("tiny-mixtral", 4)):
                with self.subTest(chain, subject=subject):
                    full = ("--recompute", "full")
                    remarks = running.inspect(self.dcc(subject, 2, chain, accumulation, *full)[1])["remarks"]
                    self.assertIn(code, [remark["code"] for remark in remarks])
                    got = run_new(subject, 2, chain, accumulation, "per-micro-batch", options=("--poison",), compile_options=full)
                    self.assert_same(run_once(subject, 2, 3, accumulation, "per-micro-batch"), got, chain)

    def test_before_collectives_move(self):
        for case in self.CASES[:2]:
            passes = ("recompute", "prefetch-gathers", "overlap-reductions")
            self.verify(case, "--memory", str(self.budgets(*case)[1]), passes=passes)
            self.verify(case, "--recompute", "full", passes=passes)


if __name__ == "__main__":
    unittest.main()
