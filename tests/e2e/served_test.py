"""A dcrun forked from one that has libtorch loaded does what a dcrun started anew does.

build/venv/bin/python tests/e2e/served_test.py
"""

import concurrent.futures
import os
import signal
import subprocess
import time
import unittest
import unittest.mock

import jobs
import running
import served

WORLD = 2


class ServedTest(jobs.JobTest):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(served.server(running.launch("dcrun", WORLD, [])[0]))
        cls.enterClassContext(unittest.mock.patch.object(served, "possible", lambda _: True))  # under DCC_SLOW_TESTS=1 too
        cls.model = running.archive("tiny-gpt2", "--dropout", "0.1")
        cls.plan = running.compile_plan(cls.model, WORLD, 3)

    def command(self, *options, world=WORLD, steps=3):
        return running.launch("dcrun", world, [self.plan, "--weights", self.model, "--data", "synthetic:1", "--steps", str(steps), *options])

    def both(self, command):
        environment = jobs.environment_of({})
        return (served.run(command, environment, jobs.LIMIT), subprocess.run(command, capture_output=True, text=True, env=environment, timeout=jobs.LIMIT))

    def test_equal_bits(self):
        one, other = (running.train(self.plan, self.model, WORLD, 5, anew=anew) for anew in (False, True))
        self.assertEqual(one.numbers(), other.numbers())
        self.assertEqual(one.tensors(), other.tensors())
        places = [header.pop("save") for header in (one.header, other.header)]
        self.assertNotEqual(*places)
        for header in (one.header, other.header):
            del header["start"]  # times
        self.assertEqual(one.header, other.header)

    def test_equal_words_and_codes(self):
        """Relative paths, refusals on the command line and in the ranks."""
        for command in (self.command("--nonsense"), self.command(world=3), self.command("--resume", "nowhere"), self.command("--config", "nowhere")):
            with self.subTest(command[-1]):
                one, other = self.both(command)
                self.assertNotEqual(one.returncode, 0)
                self.assertEqual((one.returncode, one.stdout, one.stderr), (other.returncode, other.stdout, other.stderr))

    def test_a_killed_rank(self):
        with served.server(running.launch("dcrun", WORLD, [])[0]) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
            result = pool.submit(served.run, self.command(steps=1_000_000), jobs.environment_of({}), jobs.LIMIT)
            # The server's child waits for the launcher, which starts the ranks.
            os.kill(self.until(lambda: len(ranks := descendants(server, 3)) == WORLD and ranks)[1], signal.SIGKILL)
            self.assertEqual(result.result().returncode, 83, result.result().stderr)
            self.assertIn("rank 1 was killed by signal 9", result.result().stderr.splitlines()[-1])

    def test_a_job_that_takes_too_long_is_ended(self):
        with served.server(running.launch("dcrun", WORLD, [])[0]) as server:
            with self.assertRaises(subprocess.TimeoutExpired):
                served.run(self.command(steps=1_000_000), jobs.environment_of({}), 2)
            self.until(lambda: not any(descendants(server, depth) for depth in (1, 2, 3)))

    def until(self, condition):
        limit = time.monotonic() + jobs.LIMIT
        while not (answer := condition()):
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.01)
        return answer


def descendants(pid, depth):
    """Processes that run, `depth` generations down."""
    found = [pid]
    for _ in range(depth):
        found = [child for parent in found for child in children(parent)]
    return found


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [child for child in map(int, file.read().split()) if jobs.await_end([child], 0)]
    except FileNotFoundError:
        return []


if __name__ == "__main__":
    unittest.main()
