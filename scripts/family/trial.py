"""One family from config to verdict: the stock run, then export, compile and three steps on two ranks with the commands that users type.

Each part that loads a model runs in a process forked from one that has imported torch and transformers.
"""

import contextlib
import dataclasses
import io
import json
import os
import subprocess
import sys
import time
import traceback

import torch

from . import stock
from .catalog import EXPORT

TRAINED, REFUSED, CANNOT_SHRINK, CANNOT_TRAIN, WRONG, CRASH = ("trained", "refused", "cannot be shrunk", "PyTorch cannot train it shrunk", "wrong", "crash")
# Exit codes with which a program declines what it understands; see the README.
DECLINES = (64, 65, 66, 69, 73, 74, 76, 77, 78, 80, 81, 84)
CHECK_FAILED = 1
LOSS_BOUND, GRADIENT_BOUND = 1e-5, 1e-4  # relative; three times PyTorch's distance from itself if that is more
NOISE = 1e-6  # share of the global gradient norm that any gradient may be off


@dataclasses.dataclass
class Outcome:
    status: str
    detail: str = ""
    config: dict = None
    recipe: str = ""
    parameters: int = 0


class Ended(Exception):
    """A command that did not do its work, already judged."""

    def __init__(self, status, detail):
        super().__init__(detail)
        self.status, self.detail = status, detail


def attempt(family, folder, programs, until):
    """Returns the Outcome. `folder`: an empty one for files; `programs`: where dcc and dcrun are; `until`: the time.monotonic() at which to give up."""
    torch.set_num_threads(1)
    reference = os.path.join(folder, "stock.pt")
    said = _forked(lambda: _stock(family, reference), folder)
    if said:
        return Outcome(*said.split(": ", 1))
    found = torch.load(reference, weights_only=False)
    outcome = Outcome(TRAINED, "", found.values, found.recipe, found.parameters)
    try:
        _train(family, found, folder, programs, until)
        ratio, where = _distance(found, folder)
        given = " ".join(_further(family, found.values))
        steps = stock.comparable_steps(found)
        outcome.detail = f"{ratio:.2g} of the bound ({where})" + (f", with {given}" if given else "")
        outcome.detail += f"; losses behind step {steps} amplify rounding" if steps < stock.STEPS else ""
        if not ratio <= 1:
            outcome.status = WRONG
    except Ended as ended:
        outcome.status, outcome.detail = ended.status, ended.detail
    return outcome


def _stock(family, path):
    """Writes what PyTorch did to `path`; returns nothing, or status and reason."""
    try:
        torch.save(stock.train_small(family), path)
    except stock.CannotShrink as error:
        return f"{CANNOT_SHRINK}: {error}"
    except stock.CannotTrain as error:
        return f"{CANNOT_TRAIN}: {error}"
    return ""


def _train(family, found, folder, programs, until):
    from safetensors.torch import save_file

    config, model, plan = (os.path.join(folder, n) for n in ("config.json", "model.pt2", "plan.dcp"))
    with open(config, "w") as file:
        json.dump(found.values, file, indent=1)
    further = _further(family, found.values)
    said = _forked(lambda: _export(config, model, family.task.batch, further), folder)
    code, _, sentence = said.partition(" ")
    _judge("export", int(code), sentence)
    _command("compile", [os.path.join(programs, "dcc"), "compile", model, "--world", str(stock.WORLD), "-o", plan, "--no-cache"], until)
    save_file(found.start, os.path.join(folder, "weights.safetensors"))
    data = _write_data(found.data, model, folder)
    _command(
        "dcrun",
        [
            os.path.join(programs, "dcrun"),
            "-n",
            str(stock.WORLD),
            plan,
            "--weights",
            os.path.join(folder, "weights.safetensors"),
            "--data",
            data,
            "--steps",
            str(stock.STEPS),
            "--metrics",
            os.path.join(folder, "metrics.jsonl"),
            "--overwrite",
            "--dump-gradients",
            folder,
            "--timeout",
            "60",
        ],
        until,
    )


def _further(family, values):
    """Options of export.py for what neither the config nor the model says."""
    picture = ["--image-size", str(stock.PICTURE)] if family.task is stock.IMAGES and "image_size" not in values else []
    return [*EXPORT.get(family.kind, []), *picture]


def _export(config, model, batch, further):
    """The exporter's command; returns its exit code and last line on stderr."""
    from dcc_export import command

    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = command.main(["--hf-config", config, "-o", model, "--batch", str(batch), "--seq", str(stock.SEQ), *further])
    return f"{code} {_message(said.getvalue())}"


def _write_data(data, model, folder):
    """The stock run's samples in the form that the archive's inputs ask for; returns what --data takes.

    A file of tokens serves only where labels are the same tokens: for a model that does not shift labels dcrun would read the next token as the label.
    """
    import zipfile

    from safetensors.torch import save_file

    with zipfile.ZipFile(model) as file:
        inputs = json.loads(file.read(next(n for n in file.namelist() if n.endswith("extra/dcc.json"))))["inputs"]
    names = {"tokens": "input_ids", "labels": "labels", "class": "labels", "mask": "attention_mask", "float": "pixel_values"}
    if all(entry["role"] == "tokens" or entry.get("labels") == "same" for entry in inputs):
        path = os.path.join(folder, "tokens.bin")
        data["input_ids"].to(torch.uint16).numpy().tofile(path)
        return path + ":uint16"
    path = os.path.join(folder, "data.safetensors")
    save_file({entry["name"]: data[names[entry["role"]]].clone() for entry in inputs if entry["role"] in names}, path)
    return path


def _distance(found, folder):
    """Largest distance from the stock run as a share of its bound, and of what. At most 1 is right."""
    from safetensors.torch import load_file

    with open(os.path.join(folder, "metrics.jsonl")) as file:
        losses = [entry["loss"] for entry in map(json.loads, file) if "loss" in entry]
    if len(losses) != stock.STEPS:
        return float("inf"), f"{len(losses)} losses"
    shares = []
    for i, (a, b) in enumerate(zip(losses[: stock.comparable_steps(found)], found.losses)):
        shares.append((abs(a - b) / max(abs(b), 1e-30) / max(LOSS_BOUND, 3 * found.loss_spreads[i]), f"loss of step {i + 1}"))
    ours = load_file(os.path.join(folder, "gradients.safetensors"))
    total = sum(float(g.double().square().sum()) for g in found.gradients.values()) ** 0.5
    for name, gradient in found.gradients.items():
        if name not in ours:
            # A gradient that is zero by the model's own formula may be absent.
            shares.append((float("inf") if float(gradient.abs().max()) > 0 else 0.0, f"no gradient of {name}"))
            continue
        apart = float((ours[name].reshape(gradient.shape).float() - gradient.float()).norm())
        limit = max(GRADIENT_BOUND * float(gradient.norm()), 3 * found.gradient_spread[name]) + NOISE * total
        shares.append((apart / limit if limit else float(apart > 0), f"gradient of {name}"))
    shares += [(float("inf"), f"gradient of {name}, which PyTorch does not have") for name in ours if name not in found.gradients]
    return max(shares, key=lambda share: share[0] if share[0] == share[0] else float("inf"))


def _command(stage, command, until):
    """Runs a program to its end, or until that time; raises Ended where it does not do its work."""
    since = time.monotonic()
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=max(0, until - since), stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise Ended(CRASH, f"{stage}: no end after {time.monotonic() - since:.0f} s, when the family's time was up; give --limit more") from None
    _judge(stage, result.returncode, _message(result.stderr))


def _judge(stage, code, sentence):
    """Nothing for success; raises Ended for the rest. A refusal is a code of the table and one sentence."""
    if code == 0:
        return
    if stage == "export" and code == CHECK_FAILED:
        raise Ended(WRONG, f"{stage} (exit 1): {sentence}")
    refused = code in DECLINES and len(sentence) > 20
    raise Ended(REFUSED if refused else CRASH, f"{stage} (exit {code}): {sentence}")


def _message(text):
    """What a program says at its end: its last error, with the lines that belong to it."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    first = max((i for i, line in enumerate(lines) if line.startswith(("error", "export.py:", "dcrun"))), default=len(lines) - 1)
    return " ".join(" ".join(lines[max(first, 0) :]).split())[:500]


def _forked(work, folder):
    """Runs `work` in a fork with its output in a file; returns its string. A death or an exception raises Ended as a crash."""
    path = os.path.join(folder, "said")
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            log = os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            torch.set_num_threads(1)  # PyTorch renews its thread pool after a fork at first use, and two threads at once would abort
            text, code = work(), 0
        except BaseException as error:
            traceback.print_exc()
            text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        with open(path, "w") as file:
            file.write(text)
        os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        raise Ended(CRASH, f"the process ended by signal {-status}")
    with open(path) as file:
        text = file.read()
    if status != 0:
        raise Ended(CRASH, text)
    return text
