"""What a running training job allocates after its warm-up: nothing outside libtorch's and oneDNN's kernels, and inside them
nothing above 4 KiB, or above 64 KiB where oneDNN allocates for itself (bf16 and convolutions). That of libtorch takes 105 KiB for a bf16
product on a CPU without bf16 instructions.

build/release/lib/libmalloc_watch.so is preloaded into every rank and writes the size and the call stack of each allocation
between two steps of a real run of dcrun (malloc_watch.cpp).

    build/venv/bin/python tests/e2e/allocation_test.py
"""

import bisect
import collections
import dataclasses
import functools
import glob
import importlib.util
import os
import struct
import unittest

import machines
import running

WATCH = os.path.join(running.LIB, "libmalloc_watch.so")
WARM_UP, STEPS = 4, 10
SMALL = 4096
KERNELS = ("libdcrun_aten.so", "libdcrun_onednn.so")
LIBTORCH = ("--providers", "aten")


def onednn_limit():
    return 65536 if "avx512_bf16" in machines.cpu().get("flags", "").split() else 131072


@dataclasses.dataclass
class Allocation:
    bytes: int
    frames: list  # "LIBRARY+0xOFFSET", from the inside out

    def in_kernel(self):
        return any(frame.startswith(KERNELS) for frame in self.frames)

    def in_libtorch(self):
        return any(frame.startswith("libtorch") for frame in self.frames)

    def __str__(self):
        return f"{self.bytes} bytes at " + " < ".join(f for f in self.frames if not f.startswith("libmalloc_watch"))


def watch(model, world, zero, accumulation=1, options=(), data="synthetic:1", extra=(), window=None):
    """[Allocation] of all processes of the job, and how many of them reported."""
    plan = running.compile_plan(model, world, zero, accumulation, *options)
    folder = os.path.dirname(running.fresh())
    first, last = window or (WARM_UP, STEPS)
    environment = {"LD_PRELOAD": WATCH, "DCC_WATCH_DIR": folder, "DCC_WATCH_STEPS": f"{first}:{last}"}
    run = running.train(plan, model, world, STEPS + 2, *extra, data=data, environment=environment)
    assert len(run.steps) == STEPS + 2
    with open(os.path.join(folder, "step"), "rb") as file:
        counted = struct.unpack("<q", file.read(8))[0]
    assert counted == STEPS + 2, f"the watch saw {counted} steps"
    allocations = []
    reports = glob.glob(os.path.join(folder, "[0-9]*"))
    for path in reports:
        with open(path) as file:
            for line in file:
                size, _, *frames = line.split()
                allocations.append(Allocation(int(size), frames))
    return allocations, len(reports)


@functools.cache
def symbols(library):
    """Sorted (offset, name) of what libtorch exports."""
    folder = os.path.dirname(importlib.util.find_spec("torch").origin)
    listed = running.run(["nm", "-D", "--defined-only", "-C", os.path.join(folder, "lib", library)]).stdout
    return sorted((int(a, 16), name) for a, _, name in (line.split(maxsplit=2) for line in listed.splitlines()))


def function_at(library, offset):
    table = symbols(library)
    return table[bisect.bisect_right(table, (int(offset, 16), "\x7f")) - 1][1]


def tokens(samples=4096, length=33):
    path = running.fresh(".bin")
    with open(path, "wb") as file:
        file.write(bytes(v for i in range(samples * length) for v in ((i * 7919) % 251, 0)))
    return path + ":uint16"


@unittest.skipUnless(os.path.exists(WATCH), "libmalloc_watch.so was not built (cmake --build build/release --target malloc_watch)")
class AllocationTest(unittest.TestCase):
    def assert_none_outside(self, allocations, label):
        outside = sorted({str(a) for a in allocations if not a.in_kernel()})
        self.assertEqual(outside, [], f"{label}: allocations outside plug-ins' kernels")

    def report(self, label, allocations):
        inside = [a.bytes for a in allocations if a.in_kernel()]
        print(
            f"  {label:44s} {len(inside):5d} call stacks in plug-ins' kernels, largest {max(inside, default=0)} bytes; {len(allocations) - len(inside)} outside"
        )

    def verify(self, label, limit, *arguments, **options):
        with self.subTest(label):
            allocations, reports = watch(*arguments, **options)
            self.assertEqual(reports, arguments[1] + (arguments[1] > 0))  # ranks and the one that starts them
            self.report(label, allocations)
            self.assert_none_outside(allocations, label)
            large = sorted({str(a) for a in allocations if a.bytes > limit})
            self.assertEqual(large, [], f"{label}: allocations above {limit} bytes")
            return allocations
        return []

    def test_the_watch_sees_allocations(self):
        """Watched beyond the last step, the same job shows what --save allocates."""
        allocations, _ = watch(running.archive("tiny-llama"), 2, 3, window=(STEPS, STEPS + 100))
        self.assertTrue(any(not a.in_kernel() and a.bytes > SMALL for a in allocations))
        self.assertTrue(any(a.in_kernel() for a in allocations))

    def test_fp32(self):
        tiny = running.archive("tiny-llama")
        self.verify("mlp zero 3", SMALL, running.archive("mlp"), 2, 3)
        self.verify("tiny-llama zero 0 accumulation 4", SMALL, tiny, 2, 0, 4)
        self.verify("tiny-llama zero 3, token file, shuffled", SMALL, tiny, 2, 3, data=tokens(), extra=("--shuffle", "3"))
        self.verify("tiny-llama zero 3 over tcp", SMALL, tiny, 2, 3, extra=("--comm", "tcp"))
        self.verify("tiny-llama bfloat16", SMALL, running.archive("tiny-llama", "--dtype", "bfloat16"), 2, 3)
        gpt2 = running.archive("tiny-gpt2", "--dropout", "0.1")
        self.verify("tiny-gpt2 dropout zero 2", SMALL, gpt2, 2, 2)
        self.verify("mlp zero 3, libtorch's kernels", SMALL, running.archive("mlp"), 2, 3, options=LIBTORCH)
        self.verify("tiny-llama zero 0 accumulation 4, libtorch's kernels", SMALL, tiny, 2, 0, 4, options=LIBTORCH)
        self.verify("tiny-gpt2 dropout zero 2, libtorch's kernels", SMALL, gpt2, 2, 2, options=LIBTORCH)
        if running.SLOW:
            for preset in ("tiny-llama-tied", "tiny-bert", "tiny-mixtral"):
                for zero in (0, 1, 2, 3):
                    self.verify(f"{preset} zero {zero}", SMALL, running.archive(preset), 2, zero)
            self.verify("small-llama zero 3", SMALL, running.archive("small-llama"), 2, 3)

    def test_onednn_in_libtorch(self):
        """Listed: by size, and the ATen function that was running."""
        subjects = [("tiny-llama bfloat16", ("tiny-llama", "--dtype", "bfloat16")), ("resnet18", ("resnet18",))]
        if running.SLOW:
            subjects += [("tiny-llama autocast", ("tiny-llama", "--dtype", "autocast-bfloat16")), ("tiny-gpt2 bfloat16", ("tiny-gpt2", "--dtype", "bfloat16"))]
        for label, preset in subjects:
            allocations = self.verify(label, onednn_limit(), running.archive(*preset), 2, 3, window=(WARM_UP, WARM_UP + 3), options=LIBTORCH)
            large = [a for a in allocations if a.bytes > SMALL]
            self.assertTrue(all(a.in_libtorch() for a in large))
            self.list_callers(large)

    def list_callers(self, large):
        callers = collections.Counter()
        for allocation in large:
            names = [function_at(*frame.split("+")) for frame in allocation.frames if frame.startswith("libtorch_cpu.so+")]
            owner = next((name for name in names if "mkldnn" in name), None)
            self.assertIsNotNone(owner, f"not oneDNN's: {allocation}")
            callers[(allocation.bytes, owner.split("(")[0])] += 1
        for (size, owner), count in sorted(callers.items()):
            print(f"    {size:6d} bytes in {owner} ({count} call stacks)")


if __name__ == "__main__":
    unittest.main()
