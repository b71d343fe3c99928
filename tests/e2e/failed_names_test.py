"""What a log says has failed, in the words of each tool that the test commands call."""

import unittest

import running  # noqa: F401 (puts scripts/ on the path)
import failed_names


class FailedNames(unittest.TestCase):
    def names(self, text):
        return failed_names.failed(text.splitlines(keepends=True))

    def test_ctest_and_googletest(self):
        log = (
            "12/90 Test #12: step_fuzz_test ...................***Exception: SegFault  0.02 sec\n"
            "[       OK ] Verify.AcceptsTheSamples (0 ms)\n"
            "[  FAILED  ] Verify/VerifyText.RefusesWithItsCode/3, where GetParam() = x (0 ms)\n"
            "[  FAILED  ] 1 test, listed below:\n"
            "[  FAILED  ] Verify/VerifyText.RefusesWithItsCode/3, where GetParam() = x\n"
            "98% tests passed, 2 tests failed out of 90\n"
            "The following tests FAILED:\n"
            "\t 12 - step_fuzz_test (SEGFAULT)\n"
            "\t 14 - ir_test (Failed)\n"
        )
        self.assertEqual(self.names(log), ["Verify/VerifyText.RefusesWithItsCode/3", "step_fuzz_test", "ir_test"])

    def test_end_to_end(self):
        log = (
            "FAIL bits_test.py                   9 tests    40.0 s    60.0 s of CPU\n"
            "ok   stop_test.py                   9 tests    40.0 s    60.0 s of CPU\n"
            "FAIL: test_equal (bits_test.Bits.test_equal)\n"
            "FAILED (failures=1)\n"
            "FAILED bits_test.Bits.test_equal\n"
            "ok   tiny-llama float32 n2   distance/bound: loss 0.1  2.0 s\n"
            "FAIL tiny-bert float32 n2: dcrun exited with 70\n"
            "   3 x no network   NOT ALLOWED\n"
        )
        self.assertEqual(self.names(log), ["test_equal (bits_test.Bits.test_equal)", "bits_test.Bits.test_equal", "tiny-bert float32 n2", "no network"])

    def test_what_follows_the_tests(self):
        log = (
            "llama:causal-lm                 12.0 s  trained: loss 0.1\n"
            "bart:causal-lm                  12.0 s  crash: exit 70\n"
            "/work/src/ir/ops.cpp:12:5: warning: 'x' is unused [misc-unused]\n"
            "fuzz.sh: step_fuzz broke; run it again with build/fuzz/bin/step_fuzz\n"
            "examples/mlp/run.sh: exit 3\n"
        )
        self.assertEqual(self.names(log), ["bart:causal-lm", "/work/src/ir/ops.cpp:12", "step_fuzz", "examples/mlp/run.sh"])

    def test_a_good_log_names_none(self):
        self.assertEqual(self.names("100% tests passed, 0 tests failed out of 90\n== summary (9 s)\nsections: 8 passed, 0 failed\n"), [])


if __name__ == "__main__":
    unittest.main()
