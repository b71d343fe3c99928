"""Machines that lack what a plan or a job needs, and plans whose kernels are malformed: each is refused with its exit code and a sentence that says what to do.

build/venv/bin/python tests/e2e/bad_machine_test.py
"""

import hashlib
import os
import unittest

import jobs
import running
import sanitized


def changed(plan, old, new):
    """The plan with other bytes of the same length in its first place that has `old`, and the digest of what it then is."""
    with open(plan, "rb") as file:
        data = file.read()
    header, content = data[:48], data[48:].replace(old, new, 1)
    assert len(old) == len(new) and old in data, f"{plan} has no {old}"
    return header[:8] + hashlib.sha256(content).digest() + header[40:] + content


class BadMachineTest(jobs.JobTest):
    @classmethod
    def setUpClass(cls):
        cls.model = running.archive("tiny-llama", "--dtype", "bfloat16")
        cls.plan = running.compile_plan(cls.model, 2, 3)

    def arguments(self, plan=None):
        return ["-n", "2", plan or self.plan, "--weights", self.model, "--data", "synthetic", "--steps", "2"]

    def test_too_little_shared_memory(self):
        """The ranks' memory is a file of the system, to which its limit on sizes of files applies."""
        limited = ["prlimit", f"--fsize={1 << 16}", os.path.join(running.BIN, "dcrun"), *self.arguments()]
        self.refused(jobs.finished(limited), 80, "DC6106", "bytes of memory for the ranks", "raise the limit")

    def test_a_limit_on_the_size_of_files(self):
        """The compiler's output may not grow: an error like a full disk, not a signal."""
        compiling = [os.path.join(running.BIN, "dcc"), "compile", running.archive("mlp"), "--world", "2", "--no-cache", "-o", self.path("out.dcp")]
        self.refused(jobs.finished(["prlimit", "--fsize=8192", *compiling]), 74, "DC1005", "ulimit -f")
        self.nothing_at("out.dcp")

    @unittest.skipIf(sanitized.library(jobs.DCRUN), "a sanitizer takes more than there is")
    def test_too_little_memory(self):
        """The system refuses the compiler memory, whose allocator may be another than the C library's."""
        model = os.path.join(running.ROOT, "tests", "data", "llama_70b_cuda.pt2")
        limited = ["prlimit", f"--as={90 << 20}", os.path.join(running.BIN, "dcc"), "compile", model, "--world", "32", "--chain", "zero3"]
        self.refused(jobs.finished([*limited, "--no-cache", "-o", running.fresh()]), 80, "DC6014", "refuses more memory", "raise the limit")

    @unittest.skipUnless(os.path.exists(os.path.join(running.LIB, "libdcrun_onednn.so")), "libdcrun_onednn.so was not built (DCC_WITH_ONEDNN)")
    def test_a_cpu_without_the_instructions_of_the_plans(self):
        """It computes the same another way, and says so where that needs memory that the plan does not have."""
        losses = []
        for isa in ("", "SSE41", "AVX2"):
            result = jobs.dcrun(*self.arguments(), environment={"ONEDNN_MAX_CPU_ISA": isa} if isa else {})
            self.assertEqual(result.code, 0, result.err)
            losses.append([float(line.split()[3]) for line in result.out.splitlines() if line.startswith("step ")])
        for lesser in losses[1:]:
            for mine, theirs in zip(losses[0], lesser, strict=True):
                self.assertAlmostEqual(mine, theirs, delta=1e-3 * mine)

    def test_malformed_expressions(self):
        """The plan is whole: only its fused kernels are not what they should be."""
        damages = {
            (b"silu.default(self=", b"silu.default{self="): "DC3223",  # no text of an expression
            (b"silu.default(self=", b"silv.default(self="): "DC6131",  # no operator
            (b"silu.default(self=", b"silu.default(selg="): "DC6130",  # no argument of it
            (b"t1:bf16=mul.Tensor(self=t0,other=a1);->t1", b"t1:bool=mul.Tensor(self=t0,other=a1);->t1"): "DC6130",  # another type than its result
        }
        for (old, new), code in damages.items():
            with self.subTest(new=new):
                plan = self.write("bad.dcp", changed(self.plan, old, new))
                result = jobs.dcrun(*self.arguments(plan))
                self.refused(result, 65 if code == "DC3223" else 81, code)


if __name__ == "__main__":
    unittest.main()
