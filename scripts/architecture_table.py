#!/usr/bin/env python
"""Trains one small model per transformers config with ZeRO-3 on two ranks, next to PyTorch, and prints a table.

architecture_table.py [--steps N] [--only NAME] [--update]
With --update the table in scripts/architectures.md is rewritten. Exits 1 if a model trains otherwise than PyTorch does, or fails without a reason.
"""

import argparse
import glob
import json
import os
import sys
import tempfile
import zipfile

import marked_part
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
import cases  # noqa: E402
import parity  # noqa: E402
from reference import Training  # noqa: E402

CONFIGS = os.path.join(ROOT, "tests", "data", "hf_configs")
PAGE = os.path.join(ROOT, "scripts", "architectures.md")
REFUSALS = (65, 81)  # exit codes of a model that is understood and declined
HEAD = (
    "| model | class | parameters | nodes | result |",
    "|---|---|---|---|---|",
)


def class_name(path):
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    return (config.get("architectures") or [config["model_type"]])[0]


def count_nodes(archive):
    with zipfile.ZipFile(archive) as file:
        entry = next(n for n in file.namelist() if n.endswith("models/model.json"))
        return len(json.loads(file.read(entry))["graph_module"]["graph"]["nodes"])


def train(name, path, folder, steps):
    """Returns (parameters, nodes, result, whether that is a good end)."""
    parameters = nodes = "-"
    case = cases.Case(name, "float32", world=2, zero=3, accumulation=1)
    try:
        subject = parity.Subject(name, "float32", folder, hf_config=path)
        parameters = f"{sum(p.numel() for p in subject.workload.module.parameters()):,}"
        nodes = count_nodes(subject.archive)
        ratios, worst = parity.run_case(case, subject, Training(steps, world=2), folder, "dcrun")
    except parity.CommandFailed as error:
        declined = error.code in REFUSALS
        return parameters, nodes, f"{'refused' if declined else 'FAILED'} (exit {error.code}): {error.sentence}", declined
    figures = ", ".join(f"{what} {ratio:.2g}" for what, ratio in ratios.items())
    if all(ratio <= 1 for ratio in ratios.values()):
        return parameters, nodes, f"parity; distance / bound: {figures}", True
    return parameters, nodes, f"DIFFERS; distance / bound: {figures}; worst gradient `{worst}`", False


def row(name, path, folder, steps):
    parameters, nodes, result, good = train(name, path, folder, steps)
    return f"| {name} | `{class_name(path)}` | {parameters} | {nodes} | {result.replace('|', '/')} |", good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", help="one config, by its file name without .json")
    parser.add_argument("--update", action="store_true", help="rewrite the table in scripts/architectures.md")
    arguments = parser.parse_args()
    if arguments.update and arguments.only:
        parser.error("--update writes the whole table; leave --only out")
    torch.set_num_threads(2)
    table, good = list(HEAD), True
    paths = sorted(glob.glob(os.path.join(CONFIGS, f"{arguments.only or '*'}.json")))
    print("\n".join(table), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            line, fine = row(os.path.splitext(os.path.basename(path))[0], path, folder, arguments.steps)
            print(line, flush=True)
            table.append(line)
            good = good and fine
    if arguments.update:
        marked_part.replace(PAGE, "architectures", table)
    return 0 if good and paths else 1


if __name__ == "__main__":
    sys.exit(main())
