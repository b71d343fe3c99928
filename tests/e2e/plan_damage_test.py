"""A damaged plan is refused, wherever the damage is, and nothing crashes over it. (tests/runtime/plan flips every byte of a small one.)

build/venv/bin/python tests/e2e/plan_damage_test.py
DCC_SLOW_TESTS=1 build/venv/bin/python tests/e2e/plan_damage_test.py     # more bytes
"""

import os
import unittest

import jobs
import running

STRIDE = 11 if running.SLOW else 97


class PlanDamageTest(jobs.JobTest):
    @classmethod
    def setUpClass(cls):
        model = running.archive("mlp")
        with open(running.compile_plan(model, 2, 3), "rb") as file:
            cls.plan = file.read()

    def refused_by_verify(self, data, what):
        result = jobs.dcc("verify", self.write("bad.dcp", data))
        self.assertEqual(result.code, 65, f"{what}: {result.err}{result.out}")
        self.assertRegex(result.err, r"^error\[DC3\d{3}\]: bad plan: .*; recompile", what)

    def test_the_whole_plan_is_good(self):
        self.assertEqual(jobs.dcc("verify", self.write("good.dcp", self.plan)).code, 0)

    def test_a_flipped_byte_is_found_wherever_it_is(self):
        header = range(48)
        for at in [*header, *range(48, len(self.plan), STRIDE), len(self.plan) - 1]:
            bad = bytearray(self.plan)
            bad[at] ^= 1 << at % 8 if at % 3 else 0xFF
            self.refused_by_verify(bad, f"byte {at}")

    def test_a_truncated_plan_is_refused(self):
        lengths = {0, 1, 7, 8, 39, 47, 48, 49, len(self.plan) - 1, *range(0, len(self.plan), 23 * STRIDE)}
        for length in sorted(lengths):
            self.refused_by_verify(self.plan[:length], f"{length} bytes")

    def test_dcrun_and_inspect_refuse_it_too(self):
        model = running.archive("mlp")
        for at in (60, len(self.plan) // 2, len(self.plan) - 9):
            bad = bytearray(self.plan)
            bad[at] ^= 0x10
            path = self.write("bad.dcp", bad)
            save = self.path("out")
            result = jobs.dcrun("-n", "2", path, "--weights", model, "--data", "synthetic", "--save", save)
            self.refused(result, 65, "bad plan")
            self.assertFalse(os.path.exists(save))
            self.refused(jobs.dcc("inspect", path, "--as=text"), 65, "bad plan")


if __name__ == "__main__":
    unittest.main()
