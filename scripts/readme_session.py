#!/usr/bin/env python
"""Runs the README's session for real, in build/first, and prints it; with --update it goes into README.md. A failing command ends it.

Output is shortened only where `...` stands: each command says how many of its first and last lines are kept.
"""

import os
import shutil
import subprocess
import sys

import marked_part

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
README = os.path.join(ROOT, "README.md")
ALL = 10**6
SESSION = (  # command, first lines kept, last lines kept
    ("mkdir -p build/first", ALL, 0),
    ("build/venv/bin/python scripts/export.py --preset small-llama -o build/first/model.pt2", ALL, 0),
    ("build/venv/bin/python examples/llama/tokens.py build/first/tokens.bin 20480", ALL, 0),
    ("build/bin/dcc profile build/first/model.pt2 -n 2 -o build/first/prof.json", ALL, 0),
    (
        "build/bin/dcc compile build/first/model.pt2 --profile build/first/prof.json --world 2 \\\n"
        "    --config examples/llama/train.json -o build/first/plan.dcp",
        ALL,
        0,
    ),
    ("build/bin/dcc verify build/first/plan.dcp", ALL, 0),
    ("build/bin/dcc inspect build/first/plan.dcp --as=text | sed -n '/^program/,$p'", 7, 1),
    (
        "build/bin/dcrun -n 2 build/first/plan.dcp --weights build/first/model.pt2 --data build/first/tokens.bin:uint16 \\\n"
        "    --steps 20 --metrics build/first/metrics.jsonl --save build/first/saved/model.safetensors",
        4,
        2,
    ),
    ("tail -n 1 build/first/metrics.jsonl", ALL, 0),
    (
        'build/venv/bin/python -c "from safetensors.numpy import load_file\n'
        "t = load_file('build/first/saved/model.safetensors'); print(len(t), t['lm_head.weight'].shape)\"",
        ALL,
        0,
    ),
)


def shorten(lines, first, last):
    if len(lines) <= first + last:
        return lines
    return [*lines[:first], "...", *lines[len(lines) - last :]]


def run():
    shutil.rmtree(os.path.join(ROOT, "build", "first"), ignore_errors=True)
    session = []
    for command, first, last in SESSION:
        result = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=ROOT, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if result.returncode != 0:
            sys.exit(f"{command}\n{result.stdout}readme_session: exit {result.returncode}")
        shown = ["$ " + command, *shorten(result.stdout.splitlines(), first, last)]
        print("\n".join(shown), flush=True)
        session += shown
    return session


if __name__ == "__main__":
    lines = run()
    if sys.argv[1:] == ["--update"]:
        marked_part.replace(README, "session", ["```", *lines, "```"])
