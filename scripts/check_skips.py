#!/usr/bin/env python3
"""Counts skipped tests and looks their reasons up in tests/allowed_skips.txt.

check_skips.py FILE...
A file is ctest's LastTest.log (what GoogleTest printed) or the list that tests/e2e/discover.py writes. Prints every reason and how many tests
gave it. Exits 1 if a reason is not on the list, 66 if a file is missing: tests that did not run must not look like tests that passed.
"""

import collections
import fnmatch
import os
import re
import sys

ALLOWED = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "allowed_skips.txt")
PLACE = re.compile(r"^\S+:\d+: Skipped$")
SKIPPED = re.compile(r"^\[  SKIPPED \] (\S+) \(\d+ ms\)$")


def read_gtest(lines):
    """[(test, reason)] of GoogleTest's output: the reason follows a line `file:line: Skipped`."""
    found, reason = [], []
    collecting = False
    for line in lines:
        if PLACE.match(line):
            reason, collecting = [], True
        elif match := SKIPPED.match(line):
            found.append((match[1], " ".join(reason)))
            reason, collecting = [], False
        elif line.startswith("[ RUN "):
            reason, collecting = [], False
        elif collecting and line:
            reason.append(line.strip())
    return found


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    listed = [tuple(line.split("\t", 1)) for line in lines if "\t" in line and not line.startswith("[")]
    return listed if os.path.basename(path) != "LastTest.log" else read_gtest(lines)


def patterns():
    with open(ALLOWED, encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip() and not line.startswith("#")]


def main(paths):
    missing = [path for path in paths if not os.path.exists(path)]
    if missing or not paths:
        print(f"check_skips.py: there is no {missing[0] if missing else 'file named'}; run the tests first", file=sys.stderr)
        return 66
    skipped = [entry for path in paths for entry in read(path)]
    counts = collections.Counter(reason for _, reason in skipped)
    allowed = patterns()
    bad = 0
    print(f"{len(skipped)} tests skipped")
    for reason, count in sorted(counts.items()):
        known = any(fnmatch.fnmatchcase(reason, pattern) for pattern in allowed)
        bad += not known
        print(f"  {count:4d} x {reason or 'no reason given'}{'' if known else '   NOT ALLOWED'}")
        if not known:
            print("".join(f"         {test}\n" for test, why in skipped if why == reason), end="")
    if bad:
        print(f"check_skips.py: {bad} reasons are not in tests/allowed_skips.txt; mend the test, or add the reason and why it is fine", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
