"""What running ranks really occupy: the sum of their proportional set sizes is the arenas and one constant per rank. Ranks that share a
host touch every page of their arenas, so the predicted peak is not only enough but needed.

    build/venv/bin/python tests/e2e/memory_test.py
    DCC_SLOW_TESTS=1 build/venv/bin/python tests/e2e/memory_test.py     # the whole zoo
"""

import collections
import os
import signal
import subprocess
import time
import unittest

import running

MIB = 1 << 20
CONSTANT = 200 * MIB  # per rank, with libtorch loaded
WARM_UP = 3
SHARED = "/memfd:dcrun"
SMALL_PAGE, LARGE_PAGE = 4096, 2 * MIB  # slabs begin at multiples of these (runtime/comm/local.cpp)

ZOO = [("mlp",), ("tiny-llama",), ("tiny-llama", "--dtype", "bfloat16"), ("small-llama",), ("resnet18",)]
REST = [("tiny-llama-tied",), ("tiny-gpt2", "--dropout", "0.1"), ("tiny-bert",), ("tiny-mixtral",), ("tiny-llama", "--dtype", "autocast-bfloat16")]


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def proportional(pid):
    """Pss as the kernel counts it, in bytes."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))


def mappings(pid):
    """{(file, offset) or address: (bytes private to this process, bytes it shares with anyone)}; of memory that ranks share, its part of it as private."""
    found, key, of_ranks = collections.defaultdict(lambda: [0, 0]), None, False
    with open(f"/proc/{pid}/smaps") as file:
        for line in file:
            words = line.split()
            if "-" in words[0] and not words[0].endswith(":"):
                of_ranks = len(words) > 5 and words[5] == SHARED
                key = (words[5], words[2]) if len(words) > 5 and words[5].startswith("/") and not of_ranks else (pid, words[0])
            elif of_ranks:
                found[key][0] += int(words[1]) * 1024 if words[0] == "Pss:" else 0
            elif words[0] in ("Private_Clean:", "Private_Dirty:"):
                found[key][0] += int(words[1]) * 1024
            elif words[0] in ("Shared_Clean:", "Shared_Dirty:"):
                found[key][1] += int(words[1]) * 1024
    return found


def alone(pids):
    """The sum of Pss if only these processes mapped the same files (any Python with torch does, too)."""
    private, shared = 0, collections.Counter()
    for pid in pids:
        for key, (own, common) in mappings(pid).items():
            private += own
            shared[key] = max(shared[key], common)
    return private + sum(shared.values())


def touched(pids, arena):
    """Bytes of the ranks' slabs that have pages: of the mapping of all slabs, and of the private memory that a rank puts into its own."""
    page = LARGE_PAGE if arena >= LARGE_PAGE else SMALL_PAGE
    whole = len(pids) * -(-max(arena, 1) // page) * page
    total = 0
    for pid in pids:
        shared, parts = {}, []  # by inode: where shared memory begins and how far it is mapped; (begin, bytes with pages) of all mappings
        with open(f"/proc/{pid}/smaps") as file:
            for line in file:
                words = line.split()
                if "-" in words[0] and not words[0].endswith(":"):
                    begin, end = (int(address, 16) for address in words[0].split("-"))
                    if len(words) > 5 and words[5] == SHARED:
                        offset = int(words[2], 16)
                        shared[words[4]] = (begin - offset, end - begin + offset)
                elif words[0] == "Pss:":
                    parts.append((begin, int(words[1]) * 1024))
        # The others are control pages. What ends in private memory is mapped less far.
        slabs = min(shared.values(), key=lambda memory: abs(memory[1] - whole))[0]
        total += sum(pages for begin, pages in parts if slabs <= begin < slabs + whole)
    return total


def metric_lines(path):
    if not os.path.exists(path):
        return 0
    with open(path) as file:
        return sum(1 for _ in file)


class MemoryTest(unittest.TestCase):
    def measure(self, preset, world, zero):
        """(arena, sum of Pss, sum of Pss of ranks that have the machine for themselves, touched slabs), in bytes, at the largest of some moments."""
        model = running.archive(*preset)
        plan = running.compile_plan(model, world, zero)
        metrics = running.fresh(".jsonl")
        command = running.launch("dcrun", world, [plan, "--weights", model, "--data", "synthetic:1", "--steps", "1000000", "--metrics", metrics])
        with open(running.fresh(".log"), "w") as log:
            job = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            pss = lone = pages = 0
            for moment in range(3):
                self.wait_for_steps(job, metrics, 1 + WARM_UP * (moment + 1))
                ranks = children(job.pid)
                ranks = [r for r in ranks if os.path.exists(f"/proc/{r}/smaps")]
                self.assertEqual(len(ranks), world)
                pss = max(pss, sum(proportional(rank) for rank in ranks))
                lone = max(lone, alone(ranks))
                if world > 1:  # a rank alone has no shared slab
                    pages = max(pages, touched(ranks, running.read_metrics(metrics)[0]["arena_bytes"]))
        finally:
            job.send_signal(signal.SIGTERM)
            job.wait(timeout=60)
        self.assertEqual(job.returncode, 75)
        return running.read_metrics(metrics)[0]["arena_bytes"], pss, lone, pages

    def wait_for_steps(self, job, metrics, lines):
        deadline = time.monotonic() + 120
        while metric_lines(metrics) < lines:
            self.assertIsNone(job.poll(), "dcrun ended")
            self.assertLess(time.monotonic(), deadline, "dcrun is stuck")
            time.sleep(0.05)

    def test_zoo(self):
        worst = 0
        for preset in ZOO + (REST if running.SLOW else []):
            for world, zero in ((2, 3), (1, 0), (2, 0), (4, 3)) if running.SLOW else ((2, 3),):
                label = f"{' '.join(preset).replace('--', '')} world {world} zero {zero}"
                with self.subTest(label):
                    arena, pss, lone, pages = self.measure(preset, world, zero)
                    constant = (max(pss, lone) - world * arena) / world
                    worst = max(worst, constant)
                    print(
                        f"  {label:44s} arenas {world} x {arena / MIB:6.1f} MiB, Pss {pss / MIB:6.1f} MiB, with no other process"
                        f" {lone / MIB:6.1f} MiB, {pages / world / arena:6.1%} of the arenas touched: {constant / MIB:6.1f} MiB per rank next to the arena"
                    )
                    if world > 1:
                        self.assertAlmostEqual(pages / world / arena, 1, delta=0.01 + 8 * 4096 / arena)
                    self.assertGreater(constant, 0)  # else these were not the ranks
                    self.assertLessEqual(constant, CONSTANT)
        print(f"  C = {worst / MIB:.1f} MiB per rank for the whole zoo (limit {CONSTANT // MIB})")


if __name__ == "__main__":
    unittest.main()
