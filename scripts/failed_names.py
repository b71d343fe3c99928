#!/usr/bin/env python3
"""Prints in one line what failed according to a log: tests, models, files and targets, in the words of the tools that scripts/test.sh and .ci/run call.

failed_names.py LOG [PREFIX]
At most 20 names, then how many more; nothing at all where the log names none.
"""

import re
import sys

MOST = 20
NAMES = [
    re.compile(pattern)
    for pattern in (
        r"\s+\d+ - (\S+) \([^)]+\)",  # ctest's list at its end
        r"\[  FAILED  \] (\w+(?:/\w+)*\.\w+(?:/\w+)*)",  # GoogleTest
        r"FAILED (?!\()(\S.*)",  # tests/e2e/discover.py
        r"(?:FAIL|ERROR): (\S.*)",  # unittest
        r"FAIL (?!.* s of CPU$)([^:]+):?.*",  # tests/e2e/parity.py; with time: discover.py's row of a file, whose tests are named after all
        r"FAILED: (\S+)",  # ninja
        r"([\w./+-]+:\d+):\d+: (?:fatal )?(?:error|warning): .*",  # compilers, clang-tidy, clang-format
        r"fuzz\.sh: (\S+) (?:broke|fails under sanitizers)",
        r"(examples/\S+): exit \d+",
        r"(\S+) +[\d.]+ s  (?:wrong|crash): .*",  # scripts/families.py
        r" *\d+ x (.*)   NOT ALLOWED",  # scripts/check_skips.py
    )
]


def failed(lines):
    """Names in the order of the log, each once."""
    found = {}
    for line in lines:
        line = line.rstrip()
        match = next(filter(None, (pattern.match(line) for pattern in NAMES)), None)
        if match:
            found.setdefault(match[1].strip())
    return list(found)


def main():
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        names = failed(log)
    if names:
        more = f", and {len(names) - MOST} more" if len(names) > MOST else ""
        print(" ".join(sys.argv[2:3]) + ", ".join(names[:MOST]) + more)


if __name__ == "__main__":
    main()
