"""Jobs that are meant to fail: started under a launcher, watched, signalled, and what they left behind."""

import contextlib
import glob
import dataclasses
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest
import uuid

import running
import sanitized
import served

DCRUN = os.path.join(running.BIN, "dcrun")
LIMIT = 30 * (4 if sanitized.library(DCRUN) else 1)  # seconds that anything here may take before it counts as hanging
TAG = "DCC_TEST_JOB"
RANK_VARIABLES = ("DCRUN_RANK", "OMPI_COMM_WORLD_RANK", "RANK")
CURE = re.compile(
    r"\b(as in|check|choose|compile|copy|did you mean|export|give|leave out|look|lower|make|measure|name|needs|raise|recompile"
    r"|replace|see|start|set|take out|try|unset|use|was the file|write)\b|--help",
    re.IGNORECASE,
)


def dcc(*arguments):
    return finished([os.path.join(running.BIN, "dcc"), *arguments])


def dcrun(*arguments, environment=None):
    """With an `environment` the program is loaded anew, otherwise it may be forked from one that is (served.py)."""
    command = [DCRUN, *arguments]
    if environment is None and served.possible(command):
        result = served.run(command, environment_of({}), LIMIT)
        return Finished(result.returncode, result.stdout, result.stderr)
    return finished(command, environment)


def environment_of(variables):
    """This process's, without what a launcher sets, one thread a process, and `variables`."""
    clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
    return {**clean, "OMP_NUM_THREADS": "1", **variables}


def finished(command, environment=None):
    job = Job(command, environment)
    try:
        return job.finish()
    finally:
        job.end()


@dataclasses.dataclass
class Finished:
    code: int
    out: str
    err: str

    @property
    def last_line(self):
        return (self.err.strip().splitlines() or [""])[-1]

    def of_rank(self, rank):
        """The last line on stderr that this rank wrote."""
        lines = [line for line in self.err.splitlines() if f"dcrun[rank {rank}]: " in line]
        return lines[-1] if lines else ""


class Job:
    """A process and its descendants, found again by a variable in their environment."""

    def __init__(self, command, environment=None):
        self.tag = uuid.uuid4().hex
        self.out, self.err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err, env=environment_of({**(environment or {}), TAG: self.tag})
        )

    def finish(self, limit=LIMIT):
        """Waits; raises TimeoutExpired if the job hangs, AssertionError if a sanitizer reports something."""
        self.process.wait(limit)
        self.out.seek(0)
        self.err.seek(0)
        finished = Finished(self.process.returncode, self.out.read(), self.err.read())
        if sanitized.REPORT.search(finished.err):
            raise AssertionError(finished.err)
        return finished

    def processes(self):
        """{pid: environment} of all that belongs to this job and has not ended."""
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            with contextlib.suppress(OSError):
                with open(f"/proc/{entry}/environ", "rb") as file:
                    pairs = file.read().decode("utf8", "replace").split("\0")
                environment = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
                if environment.get(TAG) == self.tag:
                    found[int(entry)] = environment
        return found

    def ranks(self):
        """{rank: pid} of the running ranks."""
        found = {}
        for pid, environment in self.processes().items():
            with contextlib.suppress(OSError):
                if not os.readlink(f"/proc/{pid}/exe").endswith("/dcrun"):
                    continue
                number = next((environment[name] for name in RANK_VARIABLES if name in environment), None)
                if number is not None:
                    found[int(number)] = pid
        return found

    def await_ranks(self, world):
        """Until every rank runs and keeps SIGTERM for itself: from there on nothing may be lost."""
        return self._until(lambda: len(r := self.ranks()) == world and all(map(_takes_sigterm, r.values())) and r)

    def await_launcher(self):
        """Until the launcher keeps SIGTERM for itself, which may be before it starts the ranks."""
        self._until(lambda: _takes_sigterm(self.process.pid) or self.ranks())

    def steps(self):
        """The last step that the job has printed; 0 before the first."""
        size = os.fstat(self.out.fileno()).st_size
        text = os.pread(self.out.fileno(), 1 << 12, max(0, size - (1 << 12))).decode(errors="replace")
        return max((int(step) for step in re.findall(r"^step (\d+) ", text, re.MULTILINE)), default=0)

    def await_steps(self, count):
        self._until(lambda: self.steps() >= count)

    def _until(self, condition):
        limit = time.monotonic() + LIMIT
        while time.monotonic() < limit:
            if answer := condition():
                return answer
            if self.process.poll() is not None:
                break
            time.sleep(0.005)
        raise AssertionError("the job did not get that far:\n" + self.finish(1).err)

    def shared_memory(self):
        """Files in /dev/shm that the job's processes hold mapped or open, by path; those unlinked already are left out."""
        found = set()
        for pid in self.processes():
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/maps") as file:
                    found.update(line.rstrip("\n").split(maxsplit=5)[-1] for line in file)
            for entry in glob.glob(f"/proc/{pid}/fd/*"):
                with contextlib.suppress(OSError):
                    found.add(os.readlink(entry))
        return {path for path in found if path.startswith("/dev/shm/") and not path.endswith(" (deleted)")}

    def end(self):
        """Nothing of the job survives the test."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.out.close()
        self.err.close()


def _takes_sigterm(pid):
    """Whether the process handles SIGTERM, or holds it until it does."""
    try:
        with open(f"/proc/{pid}/status") as file:
            status = file.read()
    except OSError:
        return False
    masks = [int(re.search(rf"^{name}:\s*(\w+)", status, re.MULTILINE)[1], 16) for name in ("SigCgt", "SigBlk")]
    return bool((masks[0] | masks[1]) >> (signal.SIGTERM - 1) & 1)


def await_end(pids, limit):
    """Those of the processes that still run after `limit` seconds; a zombie has ended, unless threads of it have not."""
    until = time.monotonic() + limit
    while (left := [pid for pid in pids if _runs(pid)]) and time.monotonic() < until:
        time.sleep(0.005)
    return left


def _runs(pid):
    threads = glob.glob(f"/proc/{pid}/task/*/stat")
    return any(_state(thread) not in "ZX" for thread in threads)


def _state(stat):
    try:
        with open(stat) as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


class JobTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, data=b""):
        with open(self.path(name), "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
        return self.path(name)

    def start(self, launcher, world, arguments, environment=None):
        job = Job(running.launch(launcher, world, arguments), environment)
        self.addCleanup(job.end)
        return job

    def mounted(self, name, size="1m"):
        """The path of an empty file system in memory, of `size` as `mount -t tmpfs` reads it."""
        path = self.path(name)
        os.mkdir(path)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], capture_output=True).returncode:
            self.skipTest("needs the right to mount a file system")
        self.addCleanup(subprocess.run, ["umount", path])
        return path

    def outlives_its_disk(self, job, disk):
        """The job saves on `disk`, which becomes read-only: it goes on training, and says at its end what was not saved."""
        job.await_steps(60)
        for _ in range(1000):  # the kernel refuses while a save has files open
            if subprocess.run(["mount", "-o", "remount,ro", disk], capture_output=True).returncode == 0:
                break
            time.sleep(0.003)
        else:
            self.fail("the file system could not be made read-only")
        reached = len(os.pread(job.out.fileno(), 1 << 24, 0).decode().splitlines())
        job.await_steps(reached + 100)
        job.process.terminate()
        result = job.finish()
        self.refused(result, 73, "Read-only file system")
        self.assertIn("training goes on, and the newest whole checkpoint is", result.err)

    def refused(self, result, code, *words):
        """The exit code is `code`, a message tells what is wrong (`words`) and what to do about it."""
        self.assertEqual(result.code, code, result.err)
        last = result.last_line
        if last.startswith("dcrun: exit"):
            # The launcher's own line points to the rank that knows more.
            self.assertRegex(last, rf"^dcrun: exit {code}: see the message of rank \d+$")
            message = result.of_rank(re.search(r"\d+$", last)[0])
            if other := re.search(r"rank (\d+) failed while", message):
                message = result.of_rank(other[1])
        else:
            errors = [i for i, line in enumerate(result.err.splitlines()) if "error[DC" in line]
            self.assertTrue(errors, result.err)
            message = "\n".join(result.err.splitlines()[errors[-1] :])
        self.assertRegex(message, r"error\[DC\d{4}\]: ")
        self.assertRegex(message, CURE)
        for word in words:
            self.assertIn(word, message)
        self.assertNotRegex(result.err, r"terminate called|Sanitizer|internal error")
        return message

    def nothing_at(self, *names):
        """Neither the outputs nor a temporary of them are in the test's folder."""
        for name in os.listdir(self.folder):
            self.assertFalse(any(wanted in name for wanted in names), f"{name} was left behind")
