"""Runs families a few at a time, each in a process forked from this one, and keeps their results as files."""

import dataclasses
import hashlib
import json
import os
import shutil
import signal
import sys
import time
import traceback

from . import trial

GRACE = 5  # seconds after its limit in which a family may say where it was
MEMORY = 8 << 30  # bytes of data that a family's process may hold


class Store:
    """Results in a folder, one JSON file per family, valid for one state of the exporter and the programs."""

    def __init__(self, folder, digest):
        self.folder, self.digest = folder, digest
        os.makedirs(folder, exist_ok=True)

    def path(self, family):
        return os.path.join(self.folder, family.key.replace(":", "-") + ".json")

    def read(self, family):
        """The result as a dict, or None where there is none for this state."""
        try:
            with open(self.path(family)) as file:
                result = json.load(file)
        except (OSError, ValueError):
            return None
        return result if result.get("digest") == self.digest else None

    def write(self, family, outcome, seconds):
        result = {"family": family.kind, "task": family.task.name, **dataclasses.asdict(outcome), "seconds": round(seconds, 1), "digest": self.digest}
        partial = f"{self.path(family)}.{os.getpid()}"
        with open(partial, "w") as file:
            json.dump(result, file, indent=1)
        os.replace(partial, self.path(family))
        return result


def digest_of(*paths):
    """One digest over files and folders (their .py and .so files)."""
    total = hashlib.sha256()
    for path in paths:
        files = [path]
        if os.path.isdir(path):
            files = sorted(os.path.join(d, f) for d, _, names in os.walk(path) for f in names if f.endswith((".py", ".so")))
        for name in files:
            with open(name, "rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()[:16]


def run_all(families, store, programs, at_once, limit, report):
    """Tries each family; calls report(family, result) as each ends. `limit`: seconds of wall time a family may take."""
    waiting, running = list(families), {}
    while waiting or running:
        while waiting and len(running) < at_once:
            family = waiting.pop(0)
            running[_start(family, store, programs, limit)] = (family, time.monotonic())
        pid, _ = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            time.sleep(0.05)
            _end_late(running, limit)
            continue
        family, since = running.pop(pid)
        result = store.read(family)
        if result is None:
            result = store.write(family, trial.Outcome(trial.CRASH, f"no result after {time.monotonic() - since:.0f} s"), time.monotonic() - since)
        report(family, result)


def _end_late(running, limit):
    for pid, (_, since) in running.items():
        if time.monotonic() - since > limit + GRACE:
            os.killpg(pid, signal.SIGKILL)


def _start(family, store, programs, limit):
    """Forks a process in a new group that tries the family and writes its result."""
    with_path = store.path(family)
    if os.path.exists(with_path):
        os.remove(with_path)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        _limit_memory()
        since, folder = time.monotonic(), f"{with_path}.work"
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        try:
            outcome = trial.attempt(family, folder, programs, since + limit)
        except trial.Ended as ended:
            outcome = trial.Outcome(ended.status, ended.detail)
        except BaseException:
            outcome = trial.Outcome(trial.CRASH, "this script: " + " ".join(traceback.format_exc().split())[-400:])
        store.write(family, outcome, time.monotonic() - since)
        if outcome.status not in (trial.WRONG, trial.CRASH):
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)
    return pid


def _limit_memory():
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
