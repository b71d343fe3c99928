"""The page with one row per family, and the counts."""

import os

import marked_part

from . import trial

ORDER = (trial.TRAINED, trial.REFUSED, trial.WRONG, trial.CRASH, trial.CANNOT_TRAIN, trial.CANNOT_SHRINK)


def summary(counts):
    """One line: how many of each, and the share of what PyTorch trains."""
    said = ", ".join(f"{counts[status]} {status}" for status in ORDER if counts[status])
    trainable = sum(counts[s] for s in (trial.TRAINED, trial.REFUSED, trial.WRONG, trial.CRASH))
    share = f"; {100 * counts[trial.TRAINED] / trainable:.0f} % of the {trainable} that PyTorch itself trains" if trainable else ""
    return said + share


def verdict(counts):
    return 1 if counts[trial.WRONG] or counts[trial.CRASH] else 0


def write(path, families, results, counts):
    """Replaces the table between the marks of the page."""
    lines = [f"{summary(counts)}. {_where()}", "", "| family | task | parameters | result |", "|---|---|---|---|"]
    lines += [_row(family, results[family]) for family in families]
    marked_part.replace(path, "families", lines)


def _row(family, result):
    detail = " ".join(result["detail"].replace("|", "/").split())
    size = f"{result['parameters']:,}" if result["parameters"] else "-"
    return f"| {family.kind} | {family.task.name} | {size} | {result['status']}{': ' + detail if detail else ''} |"


def _where():
    """The processor, PyTorch, transformers and commit of this run."""
    import subprocess

    import torch
    import transformers

    with open("/proc/cpuinfo") as file:
        cpu = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown processor")
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    commit = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return f"On {cpu}, PyTorch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, commit {commit or 'unknown'}."
