"""Running export, dcc and dcrun from tests: commands, launchers, archives made once per process."""

import atexit
import contextlib
import dataclasses
import fcntl
import functools
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

import served

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BIN = os.path.abspath(os.environ.get("DCC_BIN_DIR") or os.path.join(ROOT, "build", "bin"))
LIB = os.path.join(BIN, "..", "lib")  # libraries built for tests
ARCHIVES = "DCC_TEST_ARCHIVES"  # a folder for archive(), shared by the processes of discover.py
LAUNCHERS = ("dcrun", "mpirun", "torchrun")
SLOW = os.environ.get("DCC_SLOW_TESTS") == "1"
# For all who import this: the exporter, whichever test needs it first.
SCRIPTS = os.path.join(ROOT, "scripts")
if SCRIPTS not in sys.path:
    sys.path.insert(0, SCRIPTS)


class CommandFailed(RuntimeError):
    """`code`: exit code. `sentence`: the last line on stderr, where our programs say why."""

    def __init__(self, command, result):
        lines = (result.stdout + result.stderr).strip().splitlines()
        super().__init__(f"exit {result.returncode}: {' '.join(command)}\n" + "\n".join(lines[-6:]))
        self.code = result.returncode
        self.sentence = (result.stderr.strip().splitlines() or [""])[-1]


def run(command, anew=True, **kwargs):
    """`anew`: the program is loaded anew; otherwise it may be forked from one that is (served.py)."""
    if not anew and served.possible(command):
        result = served.run(command, kwargs.get("env", os.environ), 300)
    else:
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, **kwargs)
    if result.returncode != 0:
        raise CommandFailed(command, result)
    return result


def launch(launcher, world, arguments):
    """The command that starts `world` ranks of dcrun."""
    dcrun = os.path.join(BIN, "dcrun")
    if launcher == "mpirun":
        return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(world), dcrun, *arguments]
    if launcher == "torchrun":
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--standalone", "--nproc-per-node", str(world)]
        return [*torchrun, dcrun, *arguments]
    return [dcrun, "-n", str(world), *arguments]


@functools.cache
def scratch():
    """A folder that lives as long as this process."""
    folder = tempfile.mkdtemp(prefix="dcc-test-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def archive(preset, *options):
    """A preset's model.pt2; exported once, by the first of the processes of discover.py that asks."""
    path = os.path.join(os.environ.get(ARCHIVES) or scratch(), "-".join((preset, *options)).replace("--", "") + ".pt2")
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            export(preset, *options, path=path)
    return path


def export(preset, *options, path):
    from dcc_export import command

    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = command.main(["--preset", preset, *options, "--no-check", "-o", path])
    if code != 0:
        raise RuntimeError(said.getvalue())


def description(path):
    """extra/dcc.json of an archive."""
    with zipfile.ZipFile(path) as file:
        return json.loads(file.read(next(n for n in file.namelist() if n.endswith("extra/dcc.json"))))


def fresh(suffix=""):
    """A path in scratch() that nothing uses."""
    return os.path.join(tempfile.mkdtemp(dir=scratch()), "file" + suffix)


def train_config(**settings):
    path = fresh(".json")
    with open(path, "w") as file:
        json.dump(settings, file)
    return path


def compile_plan(model, world, chain, accumulation=1, *options, config=None):
    """Path of the plan. `chain`: a ZeRO stage, the name of a chain, or passes separated by commas."""
    plan = fresh(".dcp")
    flag = "--zero" if isinstance(chain, int) else "--passes" if "," in chain else "--chain"
    command = [os.path.join(BIN, "dcc"), "compile", model, "--world", str(world), flag, str(chain), "--grad-accum", str(accumulation)]
    run([*command, *(["--config", config] if config else []), "--no-cache", *options, "-o", plan])
    return plan


def inspect(plan):
    """The plan as `dcc inspect --as=json` shows it."""
    return json.loads(run([os.path.join(BIN, "dcc"), "inspect", plan, "--as=json"]).stdout)


@dataclasses.dataclass
class Run:
    """One training: `header`, `steps` and `evaluations` of its metrics, the file `saved` with its weights."""

    header: dict
    steps: list
    saved: str
    evaluations: list = dataclasses.field(default_factory=list)

    def numbers(self):
        """What must not depend on how the step was carried out: losses and, where kept, norms."""
        return [row["loss"] for row in self.steps], [row["grad_norm"] for row in self.steps]

    def tensors(self):
        """{name: (dtype, shape, bytes)} of the saved parameters and buffers."""
        return read_safetensors(self.saved)


def read_safetensors(path):
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        table, body = json.loads(file.read(size)), file.read()
    table.pop("__metadata__", None)
    return {n: (e["dtype"], tuple(e["shape"]), body[slice(*e["data_offsets"])]) for n, e in table.items()}


def read_metrics(path):
    """(header, rows of steps and evaluations)"""
    with open(path) as file:
        rows = [json.loads(line) for line in file]
    return rows[0], [row for row in rows[1:] if "hosts" not in row]


def read_across_hosts(path):
    """The row of metrics that says what each host sent to others; None where there is one host."""
    with open(path) as file:
        rows = [json.loads(line) for line in file]
    found = [row for row in rows[1:] if "hosts" in row]
    return found[-1] if found else None


def train(plan, weights, world, steps, *options, data="synthetic:1", launcher="dcrun", environment=None, anew=False):
    """Trains and saves; raises CommandFailed if dcrun fails. With an `environment` the program is loaded anew, with `anew` also without."""
    folder = os.path.dirname(fresh())
    metrics = os.path.join(folder, "metrics.jsonl")
    saved = os.path.join(folder, "model.safetensors")
    arguments = [plan, "--weights", weights, "--data", data, "--steps", str(steps), "--metrics", metrics, "--save", saved, *options]
    run(launch(launcher, world, arguments), anew=anew or environment is not None, env={**os.environ, **(environment or {})})
    header, rows = read_metrics(metrics)
    return Run(header, [row for row in rows if "loss" in row], saved, [row for row in rows if "eval_loss" in row])
