"""Rewrites the expected part of the golden files of passes. Review the difference as you would review code.

scripts/update_goldens.py [PATTERN]     PATTERN: a gtest pattern such as *normalize_graph*
"""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    binary = ROOT / "build" / "release" / "bin" / "passes_golden_test"
    if not binary.exists():
        print(f"update_goldens: {binary} is missing; build it: cmake --build build/release --target passes_golden_test", file=sys.stderr)
        return 66
    pattern = sys.argv[1] if len(sys.argv) > 1 else "*"
    run = subprocess.run([binary, f"--gtest_filter=Goldens.{pattern}", "--gtest_brief=1"], env={**os.environ, "DC_UPDATE_GOLDENS": "1"}, check=False)
    subprocess.run(["git", "--no-pager", "diff", "--stat", "--", "tests/passes"], cwd=ROOT, check=False)
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
