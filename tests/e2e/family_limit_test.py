"""The time that scripts/families.py gives a family ends the program that it waits for, and is the only limit.

build/venv/bin/python tests/e2e/family_limit_test.py
"""

import subprocess
import tempfile
import time
import types
import unittest
from unittest import mock

import running  # noqa: F401 (puts scripts/ on the path)

from family import pool, trial

FAMILY = types.SimpleNamespace(key="sleeper", kind="sleeper", task=types.SimpleNamespace(name="none"))


class LimitTest(unittest.TestCase):
    def run_for(self, limit, command):
        """The result of a family whose compile is `command`."""

        def attempt(family, folder, programs, until):
            trial._command("compile", command, until)
            return trial.Outcome(trial.TRAINED)

        results = []
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(trial, "attempt", attempt):
            pool.run_all([FAMILY], pool.Store(folder, "digest"), "", 1, limit, lambda family, result: results.append(result))
        return results[0]

    def test_a_program_that_does_not_end(self):
        since = time.monotonic()
        result = self.run_for(2, ["sleep", "60"])
        self.assertLess(time.monotonic() - since, 30)
        self.assertEqual(result["status"], trial.CRASH)
        self.assertRegex(result["detail"], r"^compile: no end after \d s, .*--limit")

    def test_a_program_that_ends_in_time(self):
        self.assertEqual(self.run_for(60, ["true"])["status"], trial.TRAINED)

    def test_a_longer_limit_reaches_the_program(self):
        given = []

        def run(command, timeout, **_):
            given.append(timeout)
            return subprocess.CompletedProcess(command, 0, "", "")

        with mock.patch.object(subprocess, "run", run):
            trial._command("dcrun", ["true"], time.monotonic() + 1000)
        self.assertGreater(given[0], 900)


if __name__ == "__main__":
    unittest.main()
