"""Ranks on hosts of a network lab (scripts/netlab.sh): bits and bytes on shaped links, cables taken out.

Needs root and network namespaces; skipped elsewhere.

    build/venv/bin/python tests/e2e/netlab_test.py
    DCC_SLOW_TESTS=1 build/venv/bin/python tests/e2e/netlab_test.py     # also the cables: a minute of silence
"""

import os
import re
import subprocess
import unittest

import bits_case
import jobs
import running

LAB = os.path.join(running.ROOT, "scripts", "netlab.sh")
WORLD = 3
NAME = {"NETLAB": "test"}


def lab(*arguments):
    return subprocess.run([LAB, *arguments], env={**os.environ, **NAME}, capture_output=True, text=True, timeout=60)


class LabTest(bits_case.BitsCase, jobs.JobTest):
    @classmethod
    def setUpClass(cls):
        lab("down")
        raised = lab("up", str(WORLD), "1gbit")
        cls.addClassCleanup(lab, "down")
        if raised.returncode != 0:
            raise unittest.SkipTest("no network lab here: " + raised.stderr.strip())
        cls.model = running.archive("tiny-llama")
        cls.plan = running.compile_plan(cls.model, WORLD, 3, config=running.train_config(**bits_case.CLIPPED))

    def train(self, steps, *options):
        dcrun = [os.path.join(running.BIN, "dcrun"), self.plan, "--weights", self.model, "--data", "synthetic:1"]
        job = jobs.Job([LAB, "run", *dcrun, "--steps", str(steps), *options], NAME)
        self.addCleanup(job.end)
        return job

    def test_bits_and_bytes(self):
        files = ["--metrics", self.path("metrics.jsonl"), "--save", self.path("model.safetensors")]
        result = self.train(bits_case.STEPS, *files).finish()
        self.assertEqual(result.code, 0, result.err)
        got = running.Run(*running.read_metrics(self.path("metrics.jsonl")), self.path("model.safetensors"))
        self.assertEqual(got.header["communicator"], "tcp")
        self.assert_same(bits_case.run_once("tiny-llama", WORLD, 3), got, "on three hosts")
        payload = sum(sum(row["wire_bytes"].values()) for row in got.steps)
        sent = [int(count) for count in re.findall(r"sent (\d+) bytes", result.err)]
        self.assertEqual(len(sent), WORLD)
        for count in sent:  # many small collectives: what is more is the packets' own headers
            self.assertLess(payload, count)
            self.assertLess(count, 1.05 * payload)

    def test_a_folder_that_the_hosts_do_not_share(self):
        """Found out before the first step, not after the last."""
        os.mkdir(self.path("saved"))
        hide = f'[ "$RANK" = 0 ] || mount -t tmpfs none {self.path("saved")}; exec "$0" "$@"'
        dcrun = [os.path.join(running.BIN, "dcrun"), self.plan, "--weights", self.model, "--data", "synthetic:1"]
        job = jobs.Job([LAB, "run", "unshare", "-m", "sh", "-c", hide, *dcrun, "--save", self.path("saved")], NAME)
        self.addCleanup(job.end)
        result = job.finish()
        self.assertEqual(result.code, 73, result.err)
        self.assertIn("give a folder that their hosts share", result.of_rank(1))
        self.assertNotIn("step 1 loss", result.out)
        self.assertEqual(os.listdir(self.path("saved")), [])

    @unittest.skipUnless(running.SLOW, "waits half a minute")
    def test_a_cut_cable(self):
        job = self.train(1000000)
        job.await_steps(2)
        lab("cut", "1")
        self.addCleanup(lab, "mend", "1")
        result = job.finish(60)
        self.assertEqual(result.code, 83, result.err)
        self.assertRegex(result.of_rank(0), r"rank 1 at 10\.77\.0\.2 cannot be reached any more .*\(exit 83\)")
        self.assertRegex(result.of_rank(1), r"rank [02] at 10\.77\.0\.[13] cannot be reached any more .*\(exit 83\)")

    @unittest.skipUnless(running.SLOW, "waits ten seconds")
    def test_a_cable_that_comes_back(self):
        job = self.train(1000000)
        job.await_steps(2)
        lab("cut", "2")
        with self.assertRaises(subprocess.TimeoutExpired):
            job.finish(10)
        lab("mend", "2")
        last = re.findall(r"^step (\d+) ", os.pread(job.out.fileno(), 1 << 20, 0).decode(), re.MULTILINE)[-1]
        job.await_steps(int(last) + 50)


if __name__ == "__main__":
    unittest.main()
