"""Saving and resuming with programs built without libtorch, so also with a sanitizer: plans of native kernels only, over local and tcp, with and without hosts.

build/venv/bin/python tests/e2e/native_resume_test.py
DCC_BIN_DIR=build/asan/bin build/venv/bin/python tests/e2e/native_resume_test.py
"""

import functools
import os
import unittest

import checkpoints
import jobs
import running
import tcp_test

MAKE_PLAN = os.path.join(running.BIN, "make_training_plan")
STEPS, HALF = 6, 3
COMMUNICATORS = ("local", "tcp")
FLAT, HOSTS = ((2, 1), (3, 1)), (4, 2)  # (ranks, hosts)


@functools.cache
def plan(world, hosts):
    path = running.fresh(".dcp")
    running.run([MAKE_PLAN, path, str(world), "2", str(hosts)])
    return path


@unittest.skipUnless(os.path.exists(MAKE_PLAN), "make_training_plan was not built (cmake --build build/release --target make_training_plan)")
class NativeResumeTest(jobs.JobTest):
    def arguments(self, shape, name, steps, *options):
        """Of a run that saves to the test's folder `name`."""
        source = () if "--resume" in options else ("--weights", "init:1")
        return [plan(*shape), "--data", "synthetic:2", "--steps", str(steps), "--save", self.path(name), *source, *options]

    def train(self, comm, shape, *arguments):
        result = jobs.dcrun("-n", str(shape[0]), *self.arguments(shape, *arguments), "--comm", comm)
        self.assertEqual(result.code, 0, result.err)
        self.assertIn(f"communicator {comm} ", result.out)
        return result

    def state(self, name):
        return checkpoints.state(checkpoints.newest(self.path(name)), checksums=True)

    def assert_same_state(self, one, other, label):
        self.assertEqual(checkpoints.different(one, other), [], label)

    def test_stopped_and_resumed(self):
        for shape in (*FLAT, HOSTS):
            ends = []
            for comm in COMMUNICATORS:
                with self.subTest(shape, comm=comm):
                    straight, halves = (f"{name}-{shape}-{comm}" for name in ("straight", "halves"))
                    self.train(comm, shape, straight, STEPS, "--save-every", "1", "--poison")
                    self.train(comm, shape, halves, HALF)
                    said = self.train(comm, shape, halves, STEPS, "--resume", "latest", "--save-every", "1", "--keep", "2", "--poison").out
                    self.assertNotIn(f"step {HALF} loss", said)
                    self.assertIn(f"step {HALF + 1} loss", said)
                    ends += [self.state(straight), self.state(halves)]
            for end in ends[1:]:
                self.assert_same_state(ends[0], end, shape)

    def test_onto_other_ranks_and_back(self):
        self.train("local", FLAT[0], "straight", STEPS)
        self.train("local", FLAT[0], "hop0", HALF, "--save-every", "1")
        start = self.state("hop0")
        for hop, shape in enumerate((FLAT[1], HOSTS, (1, 1), (6, 3), HOSTS, FLAT[0])):
            comm = COMMUNICATORS[hop % 2] if shape[0] > 1 else "local"
            self.train(comm, shape, f"hop{hop + 1}", HALF, "--resume", self.path(f"hop{hop}"))
            self.assert_same_state(start, self.state(f"hop{hop + 1}"), shape)
        self.train("tcp", FLAT[0], "end", STEPS, "--resume", self.path(f"hop{hop + 1}"))
        self.assert_same_state(self.state("straight"), self.state("end"), "the same ranks again")

    def test_two_hosts(self):
        """As ranks that do not know that they share a host."""
        self.train("local", HOSTS, "straight", STEPS)
        for steps, options in ((HALF, ("--save-every", "1")), (STEPS, ("--resume", "latest"))):
            port = tcp_test.free_port()
            command = [jobs.DCRUN, *self.arguments(HOSTS, "hosts", steps, *options)]
            ranks = [jobs.Job(command, tcp_test.by_hand(rank, HOSTS[0], port, HOSTS[0] // HOSTS[1])) for rank in range(HOSTS[0])]
            for job in ranks:
                self.addCleanup(job.end)
            for job in ranks:
                result = job.finish()
                self.assertEqual(result.code, 0, result.err)
        self.assert_same_state(self.state("straight"), self.state("hosts"), "two hosts")

    def test_a_stop_on_request(self):
        for comm in COMMUNICATORS:
            with self.subTest(comm):
                job = jobs.Job([jobs.DCRUN, "-n", "3", *self.arguments(FLAT[1], comm, 1000000, "--save-every", "1", "--keep", "2", "--comm", comm)])
                self.addCleanup(job.end)
                job.await_steps(5)
                job.process.terminate()
                result = job.finish()
                self.assertEqual(result.code, 75, result.err)
                step = checkpoints.index(checkpoints.newest(self.path(comm)))["step"]
                self.assertIn(f"stopped on request after step {step} ", result.err)
                self.train(comm, FLAT[1], comm, step + 2, "--resume", "latest")
                self.train("local", FLAT[1], "straight-" + comm, step + 2)
                self.assert_same_state(self.state("straight-" + comm), self.state(comm), comm)

    def test_a_folder_that_becomes_read_only(self):
        disk = self.mounted("disk")
        job = jobs.Job([jobs.DCRUN, "-n", "2", *self.arguments(FLAT[0], "disk/saved", 1000000, "--save-every", "20", "--keep", "2")])
        self.addCleanup(job.end)
        self.outlives_its_disk(job, disk)
        self.train(
            "local", FLAT[0], "elsewhere", checkpoints.index(checkpoints.newest(self.path("disk/saved")))["step"] + 1, "--resume", self.path("disk/saved")
        )


if __name__ == "__main__":
    unittest.main()
