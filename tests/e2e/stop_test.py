"""A stop on request: every rank ends after the same step, the state is saved whole, exit code 75.

SIGTERM to dcrun -n, to one rank, to torchrun, at random moments from the first breath of the ranks on, to jobs
that do not end by themselves; and around the end of a job that does. What mpirun does with its own signals is in runtime/comm/README.md.

    build/venv/bin/python tests/e2e/stop_test.py
    DCC_SLOW_TESTS=1 build/venv/bin/python tests/e2e/stop_test.py     # twenty moments each
"""

import contextlib
import fcntl
import os
import pty
import random
import re
import signal
import subprocess
import termios
import time
import unittest

from safetensors import safe_open

import jobs
import rotation
import running

WORLD = 3
STEPS = 1600  # of a job that ends by itself
MORE_STEPS = 1000000  # than a test has time for


@rotation.taking_turns(2)
class StopTest(jobs.JobTest):
    @classmethod
    def setUpClass(cls):
        cls.model = running.archive("mlp")
        cls.plan = running.compile_plan(cls.model, WORLD, 3)
        started = time.monotonic()
        running.train(cls.plan, cls.model, WORLD, STEPS, anew=True)  # its length counts
        cls.length = time.monotonic() - started

    def train(self, launcher, steps=MORE_STEPS, environment=None):
        self.save = os.path.join(self.folder, "save" + str(random.getrandbits(40)))
        arguments = [self.plan, "--weights", self.model, "--data", "synthetic", "--steps", str(steps), "--save", self.save]
        return self.start(launcher, WORLD, arguments, environment)

    def moments(self, count, first=0.0, last=1.0):
        """Seconds after the start of a job: from part `first` to part `last` of what STEPS steps take."""
        count = 20 if running.SLOW else count
        random.seed(count)
        return [(first + (i + random.random()) / count * (last - first)) * self.length for i in range(count)]

    def saved_step(self):
        whole = os.listdir(self.save)
        self.assertEqual(len(whole), 1, whole)
        with safe_open(os.path.join(self.save, whole[0], "model.safetensors"), "pt") as file:
            names = list(file.keys())
            self.assertEqual(len(names), 6)
            for name in names:
                self.assertTrue(file.get_tensor(name).isfinite().all())
            self.assertEqual(whole, [f"step-{int(file.metadata()['step']):08}"])
            return int(file.metadata()["step"])

    def stopped_together(self, result):
        """All ranks name one step; the file holds it. False: the job was over before the signal came, and has all steps."""
        said = [re.search(r"stopped on request after step (\d+) \(exit 75\), and the state after step \1 is in ", result.of_rank(r)) for r in range(WORLD)]
        self.assertEqual({bool(words) for words in said}, {bool(said[0])}, result.err)
        step = self.saved_step()
        if not said[0]:
            self.assertEqual(step, STEPS, result.err)
            return False
        self.assertEqual([int(words[1]) for words in said], [step] * WORLD)
        return True

    def test_dcrun(self):
        for moment in self.moments(4):
            with self.subTest(moment=moment):
                job = self.train("dcrun")
                # At once, where the ranks may not even have been started.
                job.await_launcher()
                time.sleep(moment)
                self.assertTrue(self.signal_and_check(job, job.process.pid))

    def test_one_rank_of_dcrun(self):
        for i, moment in enumerate(self.moments(3)):
            with self.subTest(moment=moment):
                job = self.train("dcrun")
                ranks = job.await_ranks(WORLD)
                time.sleep(moment)
                self.assertTrue(self.signal_and_check(job, ranks[i % WORLD]))

    def test_around_the_end(self):
        """Of a job that may be over when the signal comes: all ranks agree on whether it was."""
        for moment in self.moments(3, 0.8, 1.1):
            with self.subTest(moment=moment):
                job = self.train("dcrun", STEPS)
                job.await_launcher()
                time.sleep(moment)
                self.signal_and_check(job, job.process.pid)

    def signal_and_check(self, job, pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        result = job.finish()
        stopped = self.stopped_together(result)
        self.assertEqual(result.code, 75 if stopped else 0, result.err)
        if stopped:
            self.assertEqual(result.last_line, "dcrun: exit 75: stopped on request")
        self.assertEqual(job.processes(), {})
        return stopped

    def test_torchrun(self):
        for i, moment in enumerate(self.moments(3)):
            with self.subTest(moment=moment):
                job = self.train("torchrun")
                ranks = job.await_ranks(WORLD)
                time.sleep(moment)
                os.kill(job.process.pid if i % 3 else ranks[i % WORLD], signal.SIGTERM)
                result = job.finish()
                self.assertTrue(self.stopped_together(result))
                self.assertEqual(job.processes(), {})

    def test_one_rank_of_mpirun(self):
        job = self.train("mpirun")
        ranks = job.await_ranks(WORLD)
        job.await_steps(2)
        os.kill(ranks[2], signal.SIGTERM)
        result = job.finish()
        self.assertEqual(result.code, 75, result.err)
        self.assertTrue(self.stopped_together(result))

    def test_a_second_signal_ends_at_once(self):
        job = self.train("dcrun")
        ranks = job.await_ranks(WORLD)
        job.await_steps(2)
        os.kill(ranks[1], signal.SIGSTOP)  # so that the step cannot be finished
        job.process.terminate()
        time.sleep(0.3)
        self.assertIsNone(job.process.poll())
        job.process.terminate()
        result = job.finish(3)
        self.assertEqual(result.code, 128 + signal.SIGTERM, result.err)
        self.assertEqual(result.last_line, "dcrun: exit 143: killed on a second Terminated")
        self.assertEqual(job.processes(), {})
        self.assertEqual(os.listdir(self.save), [])

    def test_a_terminal_that_stops_background_writers(self):
        """`stty tostop`: the ranks' process groups are in the background, and rank 0 prints each step."""
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        settings = termios.tcgetattr(theirs)
        settings[3] |= termios.TOSTOP
        termios.tcsetattr(theirs, termios.TCSANOW, settings)
        command = running.launch("dcrun", WORLD, [self.plan, "--weights", self.model, "--data", "synthetic", "--steps", "3"])

        def own_terminal():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, preexec_fn=own_terminal)
        self.addCleanup(process.kill)
        os.close(theirs)
        self.assertEqual(process.wait(jobs.LIMIT), 0)
        self.assertIn(b"step 3 ", os.read(ours, 1 << 16))

    def test_a_second_signal_to_a_rank_ends_it(self):
        job = self.train("dcrun")
        ranks = job.await_ranks(WORLD)
        job.await_steps(2)
        os.kill(ranks[1], signal.SIGSTOP)
        for _ in range(2):
            os.kill(ranks[0], signal.SIGTERM)
            time.sleep(0.2)
        self.assertEqual(jobs.await_end([ranks[0]], 1), [])
        os.kill(ranks[1], signal.SIGCONT)
        result = job.finish()
        self.assertNotEqual(result.code, 0)
        self.assertIn(f"rank 0 (process {ranks[0]}) died", result.of_rank(2))


if __name__ == "__main__":
    unittest.main()
