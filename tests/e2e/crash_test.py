"""Jobs that are killed, or whose disk fills up, while they save: the newest complete checkpoint always loads, and going on from it ends with the same bits.

libfault_at.so (fault_at.cpp) ends a rank at its k-th call that changes files of the checkpoints, or lets that call and all later
ones fail for lack of room. The model is a plan of native kernels only, so that a job takes a tenth of a second, also with programs built without
libtorch and with a sanitizer.

    build/venv/bin/python tests/e2e/crash_test.py
    DCC_BIN_DIR=build/tsan/bin build/venv/bin/python tests/e2e/crash_test.py
    DCC_SLOW_TESTS=1 build/venv/bin/python tests/e2e/crash_test.py     # every call of every rank, and 200 random moments
"""

import contextlib
import os
import random
import shutil
import signal
import time
import unittest

import checkpoints
import jobs
import running
import sanitized

FAULT_AT = os.path.join(running.LIB, "libfault_at.so")
MAKE_PLAN = os.path.join(running.BIN, "make_training_plan")
WORLD, STEPS = 2, 6
BEGUN = 2  # steps of the checkpoint that each job begins with
STRIDE = 1 if running.SLOW else 12
MOMENTS = 200 if running.SLOW else 20


@unittest.skipUnless(os.path.exists(MAKE_PLAN), "make_training_plan was not built (cmake --build build/release --target make_training_plan)")
class CrashTest(jobs.JobTest):
    COMM, STRIDE, MOMENTS = "local", STRIDE, MOMENTS

    @classmethod
    def setUpClass(cls):
        cls.plan = running.fresh(".dcp")
        running.run([MAKE_PLAN, cls.plan, str(WORLD), "2"])
        cls.begun = running.fresh()
        running.run([*cls.command(cls.begun, BEGUN), "--weights", "init:1"])
        straight = running.fresh()
        running.run([*cls.command(straight, STEPS), "--weights", "init:1"])
        cls.end = checkpoints.state(checkpoints.newest(straight))

    @classmethod
    def command(cls, root, steps, *options):
        return running.launch("dcrun", WORLD, [cls.plan, "--data", "synthetic:2", "--steps", str(steps), "--save", root, "--comm", cls.COMM, *options])

    def newest(self, root):
        """Step of the newest checkpoint; each of its bytes is what was written."""
        folder = checkpoints.newest(root)
        checkpoints.state(folder, checksums=True)
        return checkpoints.index(folder)["step"]

    def goes_on(self, root):
        """Without faults: to the end, with the same bits, and nothing is left of what was cut off."""
        result = jobs.finished(self.command(root, STEPS, "--resume", "latest", "--save-every", "1", "--keep", "2"))
        self.assertEqual(result.code, 0, result.err)
        self.assertEqual(checkpoints.different(self.end, checkpoints.state(checkpoints.newest(root))), [])
        self.assertLessEqual(len(os.listdir(root)), 2)
        self.assertEqual([name for name in os.listdir(root) if not name.startswith("step-")], [])

    def with_fault(self, root, kind, rank, call):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.begun, root)
        preloaded = sanitized.preloading(jobs.DCRUN, FAULT_AT)
        environment = {"LD_PRELOAD": preloaded, "DCC_FAULT_PATH": root, "DCC_FAULT": kind, "DCC_FAULT_RANK": str(rank), "DCC_FAULT_AT": str(call)}
        return jobs.finished(self.command(root, STEPS, "--resume", "latest", "--save-every", "1", "--keep", "2"), environment)

    @unittest.skipUnless(os.path.exists(FAULT_AT), "libfault_at.so was not built (cmake --build build/release --target fault_at)")
    def test_killed_at_every_call(self):
        for rank in range(WORLD):
            call, kills = 1 + rank, 0
            while True:
                with self.subTest(rank=rank, call=call):
                    root = self.path("saved")
                    result = self.with_fault(root, "kill", rank, call)
                    self.assertIn(result.code, (0, 83), result.err)
                    self.assertGreaterEqual(self.newest(root), BEGUN)
                    self.goes_on(root)
                if result.code == 0:
                    break
                kills += 1
                call += self.STRIDE
            self.assertGreater(kills * self.STRIDE, 25)  # the job has many such calls

    @unittest.skipUnless(os.path.exists(FAULT_AT), "libfault_at.so was not built (cmake --build build/release --target fault_at)")
    def test_no_room_from_any_call_on(self):
        for rank in range(WORLD):
            call, failures = 1 + rank, 0
            while True:
                with self.subTest(rank=rank, call=call):
                    root = self.path("saved")
                    result = self.with_fault(root, "full", rank, call)
                    self.assertIn(result.code, (0, 73, 74), result.err)
                    if result.code:
                        self.assertIn("No space left on device", result.err)
                    self.assertGreaterEqual(self.newest(root), BEGUN)
                    self.goes_on(root)
                if result.code == 0:
                    break
                failures += 1
                call += self.STRIDE
            self.assertGreater(failures * self.STRIDE, 20)

    def test_killed_at_random_moments(self):
        """One run, cut off again and again: as a whole or by one of its ranks."""
        root, chance, steps = self.path("saved"), random.Random(7), [0]
        for moment in range(self.MOMENTS):
            job = self.start(
                "dcrun",
                WORLD,
                [
                    self.plan,
                    "--weights",
                    "init:1",
                    "--data",
                    "synthetic:2",
                    "--steps",
                    "1000000",
                    "--comm",
                    self.COMM,
                    "--save",
                    root,
                    "--save-every",
                    "1",
                    "--keep",
                    "3",
                    "--resume",
                    "latest",
                ],
            )
            job.await_steps(steps[-1] + 3)  # by then one more is whole
            time.sleep(chance.random() * 0.05)
            ranks = job.ranks()
            victims = [job.process.pid] if moment % 3 else [chance.choice(sorted(ranks.values()))]
            for pid in victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            job.finish()
            self.assertEqual(jobs.await_end(ranks.values(), 5), [])
            steps.append(self.newest(root))
            self.assertGreater(steps[-1], steps[-2])
        result = jobs.finished(self.command(root, steps[-1] + 1, "--resume", "latest"))
        self.assertEqual(result.code, 0, result.err)
        straight = self.path("straight")
        running.run([*self.command(straight, steps[-1] + 1), "--weights", "init:1"])
        self.assertEqual(checkpoints.different(checkpoints.state(checkpoints.newest(straight)), checkpoints.state(checkpoints.newest(root))), [])


class CrashOverTcpTest(CrashTest):
    COMM, STRIDE, MOMENTS = "tcp", 2 * STRIDE, MOMENTS // 4


if __name__ == "__main__":
    unittest.main()
