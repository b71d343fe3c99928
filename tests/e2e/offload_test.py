"""Plans that offload to disk: folders, full disks, damage while the job runs, budgets.

build/venv/bin/python tests/e2e/offload_test.py
"""

import os
import unittest

import jobs
import running

PASSES = "normalize-graph,shard-parameters=3,insert-collectives,add-update,schedule,offload-optimizer,offload-activations,offload-parameters,layout-arenas"


class OffloadTest(jobs.JobTest):
    @classmethod
    def setUpClass(cls):
        cls.model = running.archive("tiny-llama")
        cls.plan = cls.compiled("--offload-space", "disk")
        cls.bytes = running.inspect(cls.plan)["arena_bytes"]

    @classmethod
    def compiled(cls, *options):
        return running.compile_plan(cls.model, 2, PASSES, 1, "--memory", "800KiB", *options)

    def setUp(self):
        super().setUp()
        self.disk = self.path("disk")
        os.mkdir(self.disk)

    def arguments(self, *options):
        return ["-n", "2", self.plan, "--weights", self.model, "--data", "synthetic", *options]

    def train(self, *options):
        return jobs.dcrun(*self.arguments("--save", self.path("out"), *options))

    def left_nothing(self):
        self.nothing_at("out")
        self.assertEqual(os.listdir(self.disk), [])

    def test_the_disk_must_be_named(self):
        self.refused(self.train(), 64, "to disk", "--offload-dir DIR")
        self.left_nothing()

    def test_a_folder_that_takes_no_file(self):
        for folder in (self.path("not-there"), "/proc/nowhere", self.write("a-file"), "/proc/self"):
            self.refused(self.train("--offload-dir", folder), 73, f"--offload-dir {folder}", "choose a folder")
        self.left_nothing()

    def test_a_full_disk(self):
        """Files may not grow as large as the plan wants, which says the same as a disk without room."""
        limited = ["prlimit", f"--fsize={self.bytes[2] - 4096}", os.path.join(running.BIN, "dcrun")]
        result = jobs.finished([*limited, *self.arguments("--save", self.path("out"), "--offload-dir", self.disk)])
        self.refused(result, 73, "there is no room", str(self.bytes[2]), "free space")
        self.left_nothing()

    def test_a_disk_that_is_too_small_for_all_ranks(self):
        self.disk = self.mounted("small", self.bytes[2] * 3 // 2)
        self.refused(self.train("--offload-dir", self.disk), 73, "there is no room", "No space left on device")
        self.left_nothing()
        space = os.statvfs(self.disk)
        self.assertEqual(space.f_bfree, space.f_blocks)

    def test_damage_while_the_job_runs(self):
        job = jobs.Job([os.path.join(running.BIN, "dcrun"), *self.arguments("--offload-dir", self.disk, "--steps", "100000")])
        try:
            job.await_steps(2)
            self.damage(job.ranks()[1])
            result = job.finish()
        finally:
            job.end()
        self.assertEqual(result.code, 74, result.err)
        said = result.of_rank(1)
        self.assertRegex(said, r"error\[DC6705\]: '\S+' came back from disk damaged")
        self.assertIn("choose another --offload-dir", said)
        self.left_nothing()

    def damage(self, pid):
        """Overwrites the rank's file, again and again until it is noticed: what is written anew in between is sound again."""
        for number in os.listdir(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{number}"
            if not os.readlink(path).startswith(self.disk):
                continue
            with open(path, "r+b", buffering=0) as file:
                for _ in range(10000):
                    try:
                        os.pwrite(file.fileno(), b"\xa5" * self.bytes[2], 0)
                        os.stat(path)
                    except OSError:
                        return
            return
        raise AssertionError("the rank has no file in its folder")

    def test_ranks_that_are_killed_leave_nothing(self):
        job = jobs.Job([os.path.join(running.BIN, "dcrun"), *self.arguments("--offload-dir", self.disk, "--steps", "100000")])
        try:
            job.await_steps(2)
            self.assertEqual(os.listdir(self.disk), [])
            os.kill(job.ranks()[0], 9)
            self.assertEqual(job.finish().code, 83)
        finally:
            job.end()
        self.left_nothing()

    def test_budgets_of_both_spaces(self):
        def refused(space, *words):
            result = jobs.dcc(
                "compile",
                self.model,
                "--world",
                "2",
                "--passes",
                PASSES,
                "--no-cache",
                "--memory",
                "400KiB",
                "--offload-space",
                space,
                f"--{space}-memory",
                "64KiB",
                "-o",
                self.path("plan"),
            )
            self.refused(result, 80, *words)

        # What finds no room outside stays, so it is the device that is too small.
        refused("host", "the arena of each rank needs", "budget is 409600")
        refused("disk", "the arena of each rank needs", "budget is 409600")
        self.nothing_at("plan")
        plan = self.compiled("--host-memory", "1MiB")
        self.assertLessEqual(running.inspect(plan)["arena_bytes"][1], 1 << 20)


if __name__ == "__main__":
    unittest.main()
