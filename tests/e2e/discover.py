#!/usr/bin/env python
"""Runs the test files whose names match a pattern, as `python -m unittest discover`, and writes down what was skipped.

discover.py [PATTERN] [--skips FILE]
FILE gets one line per skipped test: its name, a tab, the reason. Exits 1 if a test fails.
"""

import argparse
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pattern", nargs="?", default="*_test.py")
    parser.add_argument("--skips", help="where to write which tests were skipped and why")
    arguments = parser.parse_args()
    suite = unittest.defaultTestLoader.discover(HERE, arguments.pattern)
    result = unittest.TextTestRunner().run(suite)
    if arguments.skips:
        with open(arguments.skips, "w", encoding="utf-8") as file:
            file.writelines(f"{test.id()}\t{' '.join(reason.split())}\n" for test, reason in result.skipped)
    return 0 if result.wasSuccessful() and result.testsRun else 1


if __name__ == "__main__":
    sys.exit(main())
