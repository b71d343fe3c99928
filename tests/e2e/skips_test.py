"""scripts/check_skips.py: skipped tests are counted, and a reason that is not on the list fails."""

import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

GTEST = """[ RUN      ] Cpu.Slices
/build/cpu_test.cpp:59: Skipped
{reason}

[  SKIPPED ] Cpu.Slices (0 ms)
[ RUN      ] Cpu.Other
[       OK ] Cpu.Other (0 ms)
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Cpu.Slices
"""


class Skips(unittest.TestCase):
    def check(self, name, text):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, name)
            if text is not None:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            result = subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "check_skips.py"), path], capture_output=True, text=True)
        return result.returncode, result.stdout + result.stderr

    def test_allowed_reasons_are_counted(self):
        code, said = self.check("LastTest.log", GTEST.format(reason="this kernel has no slices of a thread's own"))
        self.assertEqual(code, 0, said)
        self.assertIn("1 tests skipped", said)
        code, said = self.check("list", "a.B.test_x\tno chromium here\na.B.test_y\tno chromium here\n")
        self.assertEqual(code, 0, said)
        self.assertIn("2 x no chromium here", said)

    def test_other_reasons_fail(self):
        for name, text in (
            ("LastTest.log", GTEST.format(reason="it is broken today")),
            ("LastTest.log", GTEST.format(reason="")),
            ("list", "a.B.test_x\tit is broken today\n"),
            ("list", "a.B.test_x\t\n"),
        ):
            code, said = self.check(name, text)
            self.assertEqual(code, 1, said)
            self.assertIn("NOT ALLOWED", said)

    def test_a_missing_log_fails(self):
        code, said = self.check("LastTest.log", None)
        self.assertEqual(code, 66, said)

    def test_nothing_skipped(self):
        self.assertEqual(self.check("list", ""), (0, "0 tests skipped\n"))


if __name__ == "__main__":
    unittest.main()
