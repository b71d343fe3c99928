"""gpu.py's stages of training: models of the bundle next to what the CPU gave when it was made."""

import concurrent.futures
import json
import os
import shutil
import time

from gpu_runner import Failed
from gpu_tests import one_by_one

STEPS = 4


def models(runner):
    """Rows of models.json that this machine can run; a double is slow."""
    with open(runner.program("models", "models.json")) as file:
        return [model for model in json.load(file) if model["is_tiny"] or not runner.double]


def train(runner, name, *options, **more):
    """A plan of the bundle."""
    return train_plan(runner, runner.program("models", name + ".dcp"), *options, **more)


def train_plan(runner, plan, *options, world=1, steps=STEPS, seconds=60, saves=True, before=(), **more):
    """Rows of metrics, and the saved bytes. Rows say what carried the collectives, what the start took, and when the last of them was written: seconds from the start."""
    folder = runner.folder()
    metrics, saved = os.path.join(folder, "metrics.jsonl"), os.path.join(folder, "saved.safetensors")
    command = [*before, runner.program("bin", "dcrun"), *(["-n", str(world)] if world > 1 else []), plan]
    command += ["--weights", "init:1", "--data", "synthetic:1", "--steps", str(steps), "--metrics", metrics, "--device", "cuda"]
    began = time.time()
    runner.run([*command, *(["--save", saved] if saves else []), *options], seconds, **more)
    written = os.path.getmtime(metrics) - began
    with open(metrics) as file:
        rows = [json.loads(line) for line in file]
    tensors = b""
    if saves:
        with open(saved, "rb") as file:
            tensors = file.read()
    shutil.rmtree(folder)
    of_run = {"communicator": rows[0]["communicator"], "start": rows[0]["start"], "written_s": written}
    return [row | of_run for row in rows if "loss" in row], tensors


def worst_difference(expected, rows):
    """Of losses and norms, relative to the expected ones."""
    pairs = [(one[name], other[name]) for one, other in zip(expected, rows, strict=True) for name in ("loss", "grad_norm")]
    return max(abs(a - b) / abs(a) if a == a and b == b else float("inf") for a, b in pairs)


def compare(runner, model):
    """Next to the CPU; again, and without a graph and with poisoned memory, with equal bits."""
    name, world = model["name"], model["world"]
    rows, saved = train(runner, name, world=world)
    worst = worst_difference(model["expected"], rows)
    figures = {"worst_difference": worst, "allowed": model["tolerance"]}
    if world > 1:
        figures["communicator"] = rows[0]["communicator"]
    ok = worst <= model["tolerance"]
    for what, options in (("again", ()), ("no graph, poisoned", ("--no-graph", "--poison"))):
        other, bytes_again = train(runner, name, *options, world=world)
        figures[what] = equal = [(row["loss"], row["grad_norm"]) for row in other] == [(row["loss"], row["grad_norm"]) for row in rows] and bytes_again == saved
        ok = ok and equal
    return ok, figures


# Where a model does not train: what might help, to learn why.
REMEDIES = {"without a graph": (("--no-graph",), {}), "with modules loaded at once": ((), {"CUDA_MODULE_LOADING": "EAGER"})}


def attempt(runner, model):
    try:
        return compare(runner, model)
    except (Failed, OSError, ValueError) as error:
        figures = {"error": str(error)}
    for what, (options, more) in REMEDIES.items():
        try:
            rows, _ = train(runner, model["name"], *options, world=model["world"], seconds=30, **more)
            figures[what] = {"worst_difference": worst_difference(model["expected"], rows)}
        except (Failed, OSError, ValueError) as error:
            figures[what] = str(error)
    return False, figures


def attempts(runner, chosen):
    """Eight at a time: nothing here is a figure of speed."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = dict(zip((model["name"] for model in chosen), pool.map(lambda model: attempt(runner, model), chosen), strict=True))
    return all(ok for ok, _ in found.values()), {name: figures for name, (_, figures) in found.items()}


def training(runner):
    """One rank."""
    return attempts(runner, [model for model in models(runner) if model["world"] == 1])


def ranks(runner):
    """Several ranks, a GPU for each, or sharing one: models, and what every communicator does where ranks map each other's memory."""
    ok, figures = attempts(runner, [model for model in models(runner) if model["world"] > 1])
    passed, figures["collectives"] = one_by_one(runner, "dcr_comm_ipc_test", 75, most=20)
    return ok and passed, figures


def sanitizer(runner):
    """A tiny model under compute-sanitizer, where the machine lets it work."""
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if runner.double or not os.path.exists(program):
        return True, {"left_out": "there is no compute-sanitizer"}
    ok, figures = True, {}
    for tool in ("memcheck", "racecheck"):
        before = [program, "--tool", tool, "--error-exitcode", "9", "--print-limit", "5"]
        try:
            train(runner, "tiny-llama", "--no-graph", steps=1, seconds=25, saves=False, before=before)
            figures[tool] = "clean"
        except Failed as error:
            figures[tool] = str(error)
            ok = ok and "exit 9" not in str(error)  # what it finds counts, not that it is refused the GPU
    return ok, figures
