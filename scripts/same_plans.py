#!/usr/bin/env python3
"""Two builds of dcc make the same plans, and two builds of dcrun train the same bits: for changes that must not change either.

    scripts/same_plans.py OLD/build/bin NEW/build/bin --models FOLDER          # a tenth of the cases, two thirds of a minute per hundred plans
    scripts/same_plans.py OLD/build/bin NEW/build/bin --models FOLDER --all    # the zoo x chains x worlds x accumulation x budgets

FOLDER keeps the exported models (the zoo) between calls. Plans are compared as `dcc inspect --as=text` prints them, instruction by instruction,
without the compiler's identity and what only one of two schemas has (DROPPED_LINES, *_FIELDS). A sample of the plans also runs for three steps, and its
losses, norms and saved parameters are compared to the bit.
Exit code 1 and the first differing lines if two plans or losses differ, or if one build compiles what the other refuses.
"""

import argparse
import concurrent.futures
import glob
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ZOO = (
    "mlp",
    "tiny-llama",
    "tiny-llama --dtype bfloat16",
    "tiny-llama --dtype autocast-bfloat16",
    "tiny-llama-tied",
    "tiny-gpt2 --dropout 0.1",
    "tiny-bert",
    "tiny-mixtral",
)
WORLDS, ACCUMULATIONS = (1, 2, 3, 4), (1, 4)
# Memory as a part of what the plan without a budget takes; None: no budget.
BUDGETS = (None, 0.9)
# Lines and fields that are not compared: who compiled it, and facts that only one of two schemas carries. Of remarks the text is compared.
DROPPED_LINES = re.compile(r"(schema|compiler|options|option-text|passes|updates|device|sums) ")
STATE_FIELDS = re.compile(r" (role|placement|range-of|buffer)=\S+| master$")
SLICE_FIELDS = re.compile(r" kind=.*$")
ARENA_FIELDS = re.compile(r" of \d+$")
# Names of one vocabulary and of the other, as both plans are compared.
RENAMED = tuple(
    (re.compile(pattern), new)
    for pattern, new in (
        (r"\bdc\.finalize\b", "dc.clip_and_check"),
        (r"\bdc\.permit\b", "dc.check_finite"),
        (r"\bslots\b", "hyperparameters"),
        (r"\b(gathered\.|gather\.)?table\b", r"\1norm_table"),
        (r"\btable_row\b", "norm_row"),
        (r"\b(saving|leaving)\.", "offload."),
        (r"\b(saved|left)\.", "offloaded."),
        (r"\bcoming\.", "reload."),
        (r"\bback\.", "reloaded."),
        (r"\bbeside compute", "concurrently with compute"),
    )
)
REMARK = re.compile(r"remark (?:(\S+) .*)?\"((?:[^\"\\]|\\.)*)\"$")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="folder of one build's programs")
    parser.add_argument("new", help="folder of the other's")
    parser.add_argument("--models", required=True, metavar="FOLDER", help="where the exported models are kept")
    parser.add_argument("--all", action="store_true", help="every case, not each tenth")
    parser.add_argument("--seed", type=int, default=0, help="which tenth")
    parser.add_argument("--runs", type=int, default=4, help="plans that are run too, spread over the cases")
    parser.add_argument("-j", type=int, default=2, help="comparisons at the same time")
    return parser.parse_args()


def exported(model, folder):
    path = os.path.join(folder, model.replace(" --", "-").replace(" ", "-") + ".pt2")
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        subprocess.run(
            [sys.executable, os.path.join(ROOT, "scripts", "export.py"), "--preset", *model.split(), "--no-check", "-o", path],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    return path


def chains(program):
    lines = [line.split() for line in subprocess.run([program, "passes"], check=True, capture_output=True, text=True).stdout.splitlines()]
    return ("auto", *(words[1] for words in lines if words and words[0] == "--chain" and words[1] != "auto"))


def cases(names):
    """(model, world, chain, accumulation, budget); budgets only with chains that do something about them."""
    for model, world, chain, accumulation, budget in itertools.product(ZOO, WORLDS, names, ACCUMULATIONS, BUDGETS):
        if budget is None or chain in ("auto", "zero3") or chain.startswith("deepcompile"):
            yield model, world, chain, accumulation, budget


def compiled(folder, case, model, memory, plan):
    """Exit code of `dcc compile`."""
    _, world, chain, accumulation, _ = case
    command = [
        os.path.join(folder, "dcc"),
        "compile",
        model,
        "--world",
        str(world),
        "--chain",
        chain,
        "--grad-accum",
        str(accumulation),
        "--no-cache",
        "-o",
        plan,
    ]
    if memory:
        command += ["--memory", str(memory), "--offload-space", "host"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode


def text(folder, plan):
    """The plan's lines, without what only one schema says."""
    said = subprocess.run([os.path.join(folder, "dcc"), "inspect", plan, "--as=text"], check=True, capture_output=True, text=True).stdout
    lines = []
    for line in said.splitlines():
        if DROPPED_LINES.match(line):
            continue
        if line.startswith("state "):
            line = STATE_FIELDS.sub("", line)
        elif line.startswith("slice "):
            line = SLICE_FIELDS.sub("", line)
        elif line.startswith("arena "):
            line = ARENA_FIELDS.sub("", line)
        elif line.startswith("remark "):
            parsed = REMARK.match(line)
            line = f"remark {parsed[1]}: {parsed[2]}" if parsed[1] else f"remark {parsed[2]}"
        for pattern, new in RENAMED:
            line = pattern.sub(new, line)
        lines.append(line)
    return lines


def arena(folder, plan):
    said = json.loads(subprocess.run([os.path.join(folder, "dcc"), "inspect", plan, "--as=json"], check=True, capture_output=True, text=True).stdout)
    return said["arena_bytes"][0]


def trained(folder, plan, model, world, scratch):
    """Losses, norms, and the digest of what is saved without its metadata."""
    out = tempfile.mkdtemp(dir=scratch)
    metrics = os.path.join(out, "metrics.jsonl")
    subprocess.run(
        [
            os.path.join(folder, "dcrun"),
            "-n",
            str(world),
            plan,
            "--weights",
            model,
            "--data",
            "synthetic:1",
            "--steps",
            "3",
            "--poison",
            "--metrics",
            metrics,
            "--save",
            out,
        ],
        check=True,
        capture_output=True,
    )
    with open(metrics) as file:
        numbers = [(step["loss"], step["grad_norm"]) for step in map(json.loads, file) if "loss" in step]
    (saved,) = glob.glob(os.path.join(out, "**", "model.safetensors"), recursive=True)
    with open(saved, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        header.pop("__metadata__", None)
        return numbers, header, hashlib.sha256(file.read()).hexdigest()


def first_difference(old, new):
    for a, b in itertools.zip_longest(old, new):
        if a != b:
            return f"\n  old {a}\n  new {b}"
    return None


def compare(case, options, run):
    """What differs, or None; "refused" if both builds refuse."""
    model = exported(case[0], options.models)
    with tempfile.TemporaryDirectory() as scratch:
        plans = [os.path.join(scratch, name + ".dcp") for name in ("old", "new")]
        memory = None
        if case[4] is not None:
            if compiled(options.old, case, model, None, plans[0]) != 0:
                return "refused"
            memory = int(arena(options.old, plans[0]) * case[4])
        folders = (options.old, options.new)
        codes = [compiled(folder, case, model, memory, plan) for folder, plan in zip(folders, plans, strict=True)]
        if codes[0] != codes[1]:
            return f"exit codes {codes}"
        if codes[0] != 0:
            return "refused"
        differs = first_difference(*(text(folder, plan) for folder, plan in zip(folders, plans, strict=True)))
        if differs or not run:
            return differs
        results = [trained(folder, plan, model, case[1], scratch) for folder, plan in zip(folders, plans, strict=True)]
        return None if results[0] == results[1] else f"training {[result[0] for result in results]}"


def main():
    options = arguments()
    names = chains(os.path.join(options.old, "dcc"))
    wanted = list(cases(names))
    if not options.all:
        wanted = wanted[options.seed % 10 :: 10]
    for model in sorted({case[0] for case in wanted}):
        exported(model, options.models)
    runs = set(wanted[:: max(1, len(wanted) // options.runs)]) if options.runs else set()
    with concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        found = list(pool.map(lambda case: compare(case, options, case in runs), wanted))
    different = [(case, what) for case, what in zip(wanted, found, strict=True) if what not in (None, "refused")]
    for place, (case, what) in enumerate(different):
        print("differs:", *case, what if place < 20 or "\n" not in what else "")
    print(f"{len(wanted)} cases, {len(runs)} of them run: {len(different)} differ, {found.count('refused')} refused by both")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
