"""When a rank dies, the others say so and end: no hang, nothing left behind.

SIGKILL and SIGSEGV of one rank at a random moment of training, under every launcher. torchrun and mpirun
send SIGTERM to the survivors meanwhile; they still end with 83 and name the dead rank.

    build/venv/bin/python tests/e2e/peers_test.py
    DCC_SLOW_TESTS=1 build/venv/bin/python tests/e2e/peers_test.py     # every rank, several times
"""

import itertools
import os
import random
import signal
import time
import unittest

import jobs
import running

WORLD = 3
PATIENCE = 5  # seconds in which survivors end
SIGNALS = (signal.SIGKILL, signal.SIGSEGV)


class PeersTest(jobs.JobTest):
    @classmethod
    def setUpClass(cls):
        cls.model = running.archive("mlp")
        cls.plan = running.compile_plan(cls.model, WORLD, 3)

    def train(self, launcher, *options):
        arguments = [self.plan, "--weights", self.model, "--data", "synthetic", "--steps", "1000000", *options]
        return self.start(launcher, WORLD, arguments)

    def kill_one(self, launcher, victim, number, moment):
        job = self.train(launcher)
        ranks = job.await_ranks(WORLD)
        job.await_steps(2)
        time.sleep(moment)
        files = job.shared_memory()
        os.kill(ranks[victim], number)
        survivors = [pid for rank, pid in ranks.items() if rank != victim]
        self.assertEqual(jobs.await_end(survivors, PATIENCE), [], "survivors still run")
        result = job.finish()
        for rank in set(ranks) - {victim}:
            said = result.of_rank(rank)
            self.assertIn("(exit 83)", said, f"rank {rank}: {result.err}")
            self.assertIn(f"rank {victim} (process {ranks[victim]}) died", said)
        self.assertNotIn("(exit 75)", result.err)
        self.assertEqual(job.processes(), {})
        self.assertEqual([path for path in files if os.path.exists(path)], [])
        return result

    def cases(self, rounds):
        random.seed(7)
        everything = list(itertools.product(range(WORLD), SIGNALS))
        if running.SLOW:
            return [(*case, random.random()) for case in everything * 3]
        return [(*case, random.random() / 2) for case in random.sample(everything, rounds)]

    def test_dcrun(self):
        for victim, number, moment in self.cases(4):
            with self.subTest(victim=victim, signal=number):
                result = self.kill_one("dcrun", victim, number, moment)
                self.assertEqual(result.code, 83, result.err)
                self.assertRegex(result.last_line, rf"^dcrun: exit 83: rank {victim} was killed by signal {int(number)} ")

    def test_mpirun(self):
        for victim, number, moment in self.cases(3):
            with self.subTest(victim=victim, signal=number):
                self.assertNotEqual(self.kill_one("mpirun", victim, number, moment).code, 0)

    def test_torchrun(self):
        for victim, number, moment in self.cases(2):
            with self.subTest(victim=victim, signal=number):
                self.assertNotEqual(self.kill_one("torchrun", victim, number, moment).code, 0)

    def test_a_rank_that_stands_still_is_named_after_the_timeout(self):
        job = self.train("dcrun", "--timeout", "2")
        ranks = job.await_ranks(WORLD)
        job.await_steps(2)
        os.kill(ranks[1], signal.SIGSTOP)
        left = jobs.await_end([ranks[0], ranks[2]], 2 + PATIENCE)
        self.assertEqual(left, [])
        result = job.finish()  # dcrun ends the stopped one
        self.assertEqual(result.code, 82, result.err)
        said = [result.of_rank(rank) for rank in (0, 2)]
        for line in said:  # its own words, or those of the rank that gave up first
            self.assertRegex(line, r"waited 2\.0 s for rank 1, .*--timeout")
        self.assertTrue(any("(exit 82)" in line for line in said), said)
        self.assertIn("rank 1 did not end by itself and was killed", result.last_line)

    def test_a_job_that_was_stopped_goes_on(self):
        """Ctrl-Z for longer than the timeout, then fg: no rank was late."""
        for comm in ("local", "tcp"):
            with self.subTest(comm):
                job = self.train("dcrun", "--timeout", "2", "--comm", comm)
                job.await_ranks(WORLD)
                job.await_steps(2)
                job.process.send_signal(signal.SIGTSTP)
                time.sleep(4)
                before = job.steps()
                job.process.send_signal(signal.SIGCONT)
                job.await_steps(before + 50)
                job.process.terminate()
                result = job.finish()
                self.assertEqual(result.code, 75, result.err)

    def test_ranks_die_with_their_launcher(self):
        job = self.train("dcrun")
        ranks = job.await_ranks(WORLD)
        job.process.kill()
        self.assertEqual(jobs.await_end(ranks.values(), PATIENCE), [])


if __name__ == "__main__":
    unittest.main()
