#!/usr/bin/env python
"""Runs the test files whose names match a pattern, several at once, and writes down what was skipped.

discover.py [PATTERN...] [--jobs N] [--skips FILE]
Prints a line per file with its time, and the whole output of a file that fails. FILE gets one line per skipped test: its name, a tab, the
reason. Exits 1 if a test fails.
"""

import argparse
import concurrent.futures
import dataclasses
import fnmatch
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import unittest

import running
import served

HERE = os.path.dirname(os.path.abspath(__file__))
# These take longest; started first, they leave no processor idle at the end.
LONGEST = ("bits_test.py", "stock_test.py", "chains_test.py", "export_models_test.py", "offload_bits_test.py", "recompute_bits_test.py",
           "cgroup_test.py", "resume_test.py", "stop_test.py", "profile_test.py")


@dataclasses.dataclass
class Outcome:
    """How a file ended. `cpu`: processor seconds, those of the programs that it started or had served included."""

    file: str
    tests: int
    failed: list
    skipped: list
    seconds: float
    cpu: float
    output: str


def processor_seconds():
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return served.processor_seconds + sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run_file(file):
    """Runs one file in this process. What it and its programs print goes into the outcome."""
    started, cpu = time.monotonic(), processor_seconds()
    with tempfile.TemporaryFile() as output:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(output.fileno(), stream.fileno())
        if HERE not in sys.path:
            sys.path.insert(0, HERE)
        suite = unittest.defaultTestLoader.loadTestsFromName(file.removesuffix(".py"))
        result = unittest.TextTestRunner(stream=sys.stderr).run(suite)
        sys.stdout.flush()
        sys.stderr.flush()
        output.seek(0)
        said = output.read().decode(errors="replace")
    failed = [test.id() for test, _ in result.failures + result.errors] + [test.id() for test in result.unexpectedSuccesses]
    skipped = [(test.id(), " ".join(reason.split())) for test, reason in result.skipped]
    return Outcome(file, result.testsRun, failed, skipped, time.monotonic() - started, processor_seconds() - cpu, said)


def chosen_files(patterns):
    files = sorted(file for file in os.listdir(HERE) if any(fnmatch.fnmatch(file, pattern) for pattern in patterns))
    return sorted(files, key=lambda file: LONGEST.index(file) if file in LONGEST else len(LONGEST))


def run_all(files, jobs):
    """Outcomes in the order in which the files end."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        running = {pool.submit(run_file, file): file for file in files}
        for future in concurrent.futures.as_completed(running):
            try:
                yield future.result()
            except concurrent.futures.process.BrokenProcessPool:
                yield Outcome(running[future], 0, [f"{running[future]}: the process that ran it, or a file at the same time, ended"], [], 0, 0, "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("patterns", nargs="*", default=["*_test.py"], metavar="PATTERN")
    parser.add_argument("--jobs", type=int, default=1, help="files that run at the same time")
    parser.add_argument("--skips", help="where to write which tests were skipped and why")
    arguments = parser.parse_args()
    files = chosen_files(arguments.patterns)
    failed, skipped, tests = [], [], 0
    with tempfile.TemporaryDirectory(prefix="dcc-archives-") as archives, served.server(os.path.join(running.BIN, "dcrun")):
        os.environ["DCC_TEST_ARCHIVES"] = archives  # running.archive()
        for outcome in run_all(files, arguments.jobs):
            tests += outcome.tests
            failed += outcome.failed
            skipped += outcome.skipped
            if outcome.failed or len(files) == 1:
                print(outcome.output)
            verdict = "FAIL" if outcome.failed else "ok  "
            print(f"{verdict} {outcome.file:28s} {outcome.tests:4d} tests {outcome.seconds:7.1f} s {outcome.cpu:7.1f} s of CPU", flush=True)
    if arguments.skips:
        with open(arguments.skips, "w", encoding="utf-8") as file:
            file.writelines(f"{test}\t{reason}\n" for test, reason in sorted(skipped))
    print(f"{tests} tests, {len(skipped)} skipped, {len(failed)} failed")
    for test in failed:
        print(f"FAILED {test}")
    return 0 if tests and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
