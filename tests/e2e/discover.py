#!/usr/bin/env python
"""Runs the test files whose names match a pattern, several at once, and writes down what was skipped.

discover.py [PATTERN...] [--jobs N] [--skips FILE] [--parity sample|full]
Prints a line per file with its time, and the whole output of a file that fails. FILE gets one line per skipped test: its name, a tab, the
reason. With --parity also the cases of parity.py, those of a model and element type one after another, and its cases as on a lesser CPU.
Exits 1 if a test fails.
"""

import argparse
import concurrent.futures
import dataclasses
import fnmatch
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
import unittest

import cases
import rotation
import running
import served

HERE = os.path.dirname(os.path.abspath(__file__))
PARITY = "parity: "  # and a subject of cases.by_subject(), or
LESSER = PARITY + "as on a lesser CPU"
PARITY_STEPS = {"sample": 20, "full": 50}
# These take longest; started first, they leave no processor idle at the end.
LONGEST = (
    "stop_test.py",
    "search_test.py",
    "bits_test.py",
    "offload_bits_test.py",
    "cuda_profile_test.py",
    "cuda_test.py",
    PARITY + "tiny-llama bfloat16",
    PARITY + "tiny-llama autocast-bfloat16",
    "fusion_chains_test.py",
    "fused_estimate_test.py",
    "chains_test.py",
    "cgroup_test.py",
    "stock_test.py",
    "evaluation_test.py",
    "export_models_test.py",
    "resume_test.py",
    LESSER,
    PARITY + "tiny-llama float32",
    "exact_gradients_test.py",
    "decisions_test.py",
    "peers_test.py",
    "hf_load_test.py",
    "profile_test.py",
    "frontier_test.py",
    "random_test.py",
)


@dataclasses.dataclass
class Outcome:
    """How a task ended: a file, or cases of parity.py. `cpu`: processor seconds, those of the programs that it started or had served included."""

    task: str
    tests: int
    failed: list
    skipped: list
    seconds: float
    cpu: float
    output: str


def processor_seconds():
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return served.processor_seconds + sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run_task(task, parity):
    """Runs one task in this process. What it and its programs print goes into the outcome."""
    started, cpu = time.monotonic(), processor_seconds()
    with tempfile.TemporaryFile() as output:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(output.fileno(), stream.fileno())
        if HERE not in sys.path:
            sys.path.insert(0, HERE)
        tests, failed, skipped = run_parity(task, parity) if task.startswith(PARITY) else run_file(task)
        sys.stdout.flush()
        sys.stderr.flush()
        output.seek(0)
        said = output.read().decode(errors="replace")
    return Outcome(task, tests, failed, skipped, time.monotonic() - started, processor_seconds() - cpu, said)


def run_file(file):
    """(number of tests, names of those that failed, [(name, reason)] of those that were skipped)"""
    suite = unittest.defaultTestLoader.loadTestsFromName(file.removesuffix(".py"))
    result = unittest.TextTestRunner(stream=sys.stderr).run(suite)
    failed = [test.id() for test, _ in result.failures + result.errors] + [test.id() for test in result.unexpectedSuccesses]
    return result.testsRun, failed, [(test.id(), " ".join(reason.split())) for test, reason in result.skipped]


def run_parity(task, which):
    """As run_file."""
    if task == LESSER:
        # Libraries ask what the CPU can do when they are loaded: a process that loads them and exports for itself.
        own = {name: value for name, value in os.environ.items() if name not in (running.ARCHIVES, served.VARIABLE)}
        command = [sys.executable, os.path.join(HERE, "parity.py"), "--machine", "rotating", "--steps", str(PARITY_STEPS["sample"])]
        return len(cases.ON_OTHER_MACHINES), [task] if subprocess.run(command, env=own).returncode else [], []
    import parity  # with torch, which takes seconds

    group = cases.by_subject(parity_cases(which))[task.removeprefix(PARITY)]
    with tempfile.TemporaryDirectory() as folder:
        return len(group), parity.run_group(group, folder, PARITY_STEPS[which], "dcrun"), []


def parity_cases(which):
    return cases.full() if which == "full" else cases.sample()


def chosen_tasks(patterns, parity):
    tasks = sorted(file for file in os.listdir(HERE) if any(fnmatch.fnmatch(file, pattern) for pattern in patterns))
    if parity:
        tasks += [LESSER, *(PARITY + subject for subject in cases.by_subject(parity_cases(parity)))]
    return sorted(tasks, key=lambda task: LONGEST.index(task) if task in LONGEST else len(LONGEST))


def run_all(tasks, jobs, parity):
    """Outcomes in the order in which the tasks end."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        pending = {pool.submit(run_task, task, parity): task for task in tasks}
        for future in concurrent.futures.as_completed(pending):
            try:
                yield future.result()
            except concurrent.futures.process.BrokenProcessPool:
                yield Outcome(pending[future], 0, [f"{pending[future]}: the process that ran it, or a task at the same time, ended"], [], 0, 0, "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("patterns", nargs="*", default=["*_test.py"], metavar="PATTERN")
    parser.add_argument("--jobs", type=int, default=1, help="files that run at the same time")
    parser.add_argument("--skips", help="where to write which tests were skipped and why")
    parser.add_argument("--parity", choices=PARITY_STEPS, help="also the cases of parity.py")
    arguments = parser.parse_args()
    tasks = chosen_tasks(arguments.patterns, arguments.parity)
    # Exports and references are of small models, and all processors have work: more threads would spin. dcrun sets its own number.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print(f"DCC_TEST_DAY={rotation.day()}", flush=True)  # repeats this day's part of the cases that take turns
    failed, skipped, tests = [], [], 0
    with tempfile.TemporaryDirectory(prefix="dcc-archives-") as archives, served.server(os.path.join(running.BIN, "dcrun")):
        os.environ[running.ARCHIVES] = archives
        for outcome in run_all(tasks, arguments.jobs, arguments.parity):
            tests += outcome.tests
            failed += outcome.failed
            skipped += outcome.skipped
            if outcome.failed or len(tasks) == 1 or outcome.task.startswith(PARITY):  # figures of parity belong into the log
                print(outcome.output)
            verdict = "FAIL" if outcome.failed else "ok  "
            print(f"{verdict} {outcome.task:36s} {outcome.tests:4d} tests {outcome.seconds:7.1f} s {outcome.cpu:7.1f} s of CPU", flush=True)
    if arguments.skips:
        with open(arguments.skips, "w", encoding="utf-8") as file:
            file.writelines(f"{test}\t{reason}\n" for test, reason in sorted(skipped))
    print(f"{tests} tests, {len(skipped)} skipped, {len(failed)} failed")
    for test in failed:
        print(f"FAILED {test}")
    return 0 if tests and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
