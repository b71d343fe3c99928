"""A job under a memory limit of what compile predicts for all ranks and memory_test.CONSTANT for each survives; under less it is killed.

Needs root and a memory controller of cgroups (version 1 or 2), in which a new group is made; skipped elsewhere.

    build/venv/bin/python tests/e2e/cgroup_test.py
"""

import json
import os
import subprocess
import time
import unittest

import jobs
import memory_test
import rotation
import running

MIB = memory_test.MIB
WORLD = 2
STEPS = 4
ROOTS = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")  # of version 1; of version 2


class Group:
    """A memory cgroup without swap."""

    def __init__(self, limit):
        root = next((r for r in ROOTS if os.path.exists(os.path.join(r, "cgroup.procs"))), None)
        if root is None:
            raise unittest.SkipTest("no cgroup file system is mounted under /sys/fs/cgroup")
        self.path = os.path.join(root, f"dcc-test-{os.getpid()}")
        try:
            os.mkdir(self.path)
            first = os.path.exists(self.file("memory.limit_in_bytes"))
            self.write("memory.limit_in_bytes" if first else "memory.max", limit)
            for swap, value in (("memory.memsw.limit_in_bytes", limit), ("memory.swap.max", 0)):
                if os.path.exists(self.file(swap)):
                    self.write(swap, value)
        except OSError as error:
            self.remove()
            raise unittest.SkipTest(f"no memory cgroup can be made here: {error}") from error
        self.peak_file, self.events_file = ("memory.max_usage_in_bytes", "memory.oom_control") if first else ("memory.peak", "memory.events")

    def file(self, name):
        return os.path.join(self.path, name)

    def write(self, name, value):
        with open(self.file(name), "w") as file:
            file.write(str(value))

    def inside(self, command):
        """The command, started in the group: all its descendants are in it from their first page on."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', self.file("cgroup.procs"), *command]

    def kills(self):
        with open(self.file(self.events_file)) as file:
            return dict(line.split() for line in file)["oom_kill"]

    def peak(self):
        """Bytes; page cache, which is given back under pressure, counts."""
        if not os.path.exists(self.file(self.peak_file)):
            return 0
        with open(self.file(self.peak_file)) as file:
            return int(file.read())

    def remove(self):
        for _ in range(50):  # the last page of an ended process may take a moment
            try:
                return os.rmdir(self.path)
            except FileNotFoundError:
                return None
            except OSError:
                time.sleep(0.1)
        return None


@rotation.taking_turns(3)
class CgroupTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        Group(1 << 30).remove()  # skips before anything is made
        cls.model = running.archive("small-llama", "--batch", "8")
        cls.plan = running.fresh(".dcp")
        command = [os.path.join(running.BIN, "dcc"), "compile", cls.model, "--world", str(WORLD), "--chain", "zero3", "--no-cache", "--json"]
        said = json.loads(running.run([*command, "-o", cls.plan]).stdout)
        cls.arenas = WORLD * said["memory"]["arena_bytes"]["device"]
        cls.limit = cls.arenas + WORLD * memory_test.CONSTANT
        cls.copies = WORLD * said["memory"]["save_copy_bytes"]

    def train(self, launcher, limit, *options):
        group = Group(limit)
        self.addCleanup(group.remove)
        metrics = running.fresh(".jsonl")
        arguments = [self.plan, "--weights", self.model, "--data", "synthetic:1", "--steps", str(STEPS), "--poison", "--metrics", metrics, *options]
        job = jobs.Job(group.inside(running.launch(launcher, WORLD, arguments)))
        self.addCleanup(job.end)
        return group, job.finish(180), metrics

    def check(self, launcher):
        with self.subTest("the predicted total"):
            group, result, metrics = self.train(launcher, self.limit)
            self.assertEqual((result.code, group.kills()), (0, "0"), result.err)
            self.assertEqual(len(running.read_metrics(metrics)[1]), STEPS)
            print(
                f"  {launcher}: arenas {WORLD} x {self.arenas / WORLD / MIB:.0f} MiB, limit {self.limit / MIB:.0f} MiB,"
                f" the group's peak {group.peak() / MIB:.0f} MiB"
            )
            group.remove()
        with self.subTest("clearly less"):
            self.assertLess(0.6 * self.limit, self.arenas)  # so that it cannot fit
            group, result, _ = self.train(launcher, self.limit * 6 // 10)
            self.assertNotEqual(result.code, 0)
            self.assertNotEqual(group.kills(), "0")

    def test_the_copy_of_the_state(self):
        """The copy that --save-every takes is in the figures: with it the job survives, and without room for it dcrun says so before step 1."""
        self.assertGreater(self.copies, 100 * MIB)
        saving = ("--save", os.path.join(running.scratch(), "cgroup"), "--save-every", "2", "--overwrite")
        group, result, metrics = self.train("dcrun", self.limit + self.copies, *saving)
        self.assertEqual((result.code, group.kills()), (0, "0"), result.err)
        self.assertEqual(WORLD * running.read_metrics(metrics)[0]["save_bytes"], self.copies)
        group.remove()
        group, result, metrics = self.train("dcrun", self.arenas + self.copies, *saving)  # the processes themselves need some of it
        self.assertEqual((result.code, group.kills()), (80, "0"), result.err)
        self.assertRegex(result.err, r"error\[DC6862\]: .*copy of the state that --save-every takes, 2 ranks are on this host.*leave out --save-every")
        self.assertNotIn("step 1 ", result.out)

    def test_own_ranks(self):
        self.check("dcrun")

    def test_under_mpirun(self):
        if subprocess.run(["sh", "-c", "command -v mpirun"], capture_output=True).returncode:
            self.skipTest("no mpirun")
        self.check("mpirun")


if __name__ == "__main__":
    unittest.main()
