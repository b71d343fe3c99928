"""The default chain against all named ones over budgets: the two smallest cases of scripts/benchmark/joint.py."""

import os
import subprocess
import sys
import unittest

import running


class Joint(unittest.TestCase):
    def test_no_named_chain_is_faster_and_more_memory_is_not_slower(self):
        script = os.path.join(running.ROOT, "scripts", "benchmark", "joint.py")
        options = ["--cases", "mlp-2,mlp-4-ga4-host", "--budgets", "6", "--check", "--dcc", os.path.join(running.BIN, "dcc")]
        ran = subprocess.run([sys.executable, script, *options], capture_output=True, text=True, timeout=600)
        self.assertEqual(ran.returncode, 0, ran.stdout[-6000:] + ran.stderr[-2000:])
        self.assertIn("2 cases, 12 points", ran.stdout)


if __name__ == "__main__":
    unittest.main()
