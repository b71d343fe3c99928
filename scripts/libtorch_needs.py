#!/usr/bin/env python
"""Which operators still need libtorch: exports presets and shrunk model families, compiles each, and counts the kernels that libtorch supplies.

libtorch_needs.py [NAME...] [--dtype D,...] [--every N]
NAME: a preset (tiny-llama), a family of scripts/families.py (bert, t5:seq2seq), or `presets` or `families` for all of them; presets and every 8th family
if none is given. Prints a row for each plan, then the operators, most used first. Exits 1 if a plan could not be made. Needs a built dcc and build/venv.
"""

import argparse
import collections
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, HERE)
PROGRAMS = os.environ.get("DCC_BIN_DIR") or os.path.join(ROOT, "build", "bin")
PRESETS = ("mlp", "tiny-llama", "tiny-llama-tied", "tiny-gpt2", "tiny-bert", "tiny-mixtral", "resnet18", "small-llama")
WITH_DROPOUT = ("tiny-gpt2",)
DTYPES = ("float32", "bfloat16", "autocast-bfloat16")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="presets and families; `presets`, `families`: all of them")
    parser.add_argument("--dtype", default="float32", metavar="D,...", help=f"of {', '.join(DTYPES)}")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of `families` only each N-th")
    arguments = parser.parse_args()
    arguments.dtypes = arguments.dtype.split(",")
    for dtype in arguments.dtypes:
        if dtype not in DTYPES:
            parser.error(f"--dtype: '{dtype}' is not one of {', '.join(DTYPES)}")
    return arguments


def subjects(names, every):
    """[(name, family; None of a preset)]"""
    from family import catalog

    families = {family.key: family for family in catalog.families()}
    chosen = []
    for name in names or ("presets", "families"):
        if name == "presets":
            chosen += [(preset, None) for preset in PRESETS]
        elif name == "families":
            chosen += list(families.items())[:: every if names else max(every, 8)]
        elif name in PRESETS:
            chosen.append((name, None))
        elif name in families:
            chosen.append((name, families[name]))
        else:
            sys.exit(f"libtorch_needs.py: no preset or family is named '{name}'")
    return chosen


def sources(name, family, folder):
    """Options of export.py that name the model: of a family, for each way of shrinking it that transformers can build."""
    if family is None:
        yield ["--preset", name, *(["--dropout", "0.1"] if name in WITH_DROPOUT else [])]
        return
    from dcc_export.shrink import RECIPES
    from family import stock, trial

    for recipe in RECIPES:
        try:
            values = stock.small_values(family, recipe)
            stock.build(family, values)
        except Exception:  # noqa: S112: transformers raises anything; the next recipe may do
            continue
        path = os.path.join(folder, "config.json")
        with open(path, "w") as file:
            json.dump(values, file)
        size = ["--batch", str(family.task.batch), "--seq", str(stock.SEQ)]
        yield ["--hf-config", path, *size, *trial._further(family, values)]


def export(options):
    """The reason why it failed; empty if it did not."""
    from dcc_export import command

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            code = command.main([*options, "--no-check"])
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "" if code == 0 else (said.getvalue().strip().splitlines() or ["no reason given"])[-1]


def needs(name, family, dtype):
    """({operator: kernels}, all kernels of the plan), or the reason why there is no plan."""
    reason = "transformers builds no small model"
    with tempfile.TemporaryDirectory() as folder:
        model, plan = os.path.join(folder, "model.pt2"), os.path.join(folder, "plan.dcp")
        for source in sources(name, family, folder):
            reason = export([*source, "--dtype", dtype, "-o", model])
            if not reason:
                break
        if reason:
            return reason
        compile_plan = [os.path.join(PROGRAMS, "dcc"), "compile", model, "--world", "2", "--zero", "2", "--no-cache", "--json", "-o", plan]
        result = subprocess.run([*compile_plan, "--providers", "native"], capture_output=True, text=True)
        if result.returncode:
            return (result.stderr.strip().splitlines() or ["no reason given"])[-1]
        kernels = json.loads(result.stdout)["kernels"]
    operators = kernels.pop("aten_operators")
    return operators, sum(kernels.values())


def forked(work):
    """What `work()` returns, in a separate process: what a model leaves behind goes with it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            with open(writer, "w") as file:
                json.dump(work(), file)
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else "the process died"


def main():
    arguments = parse()
    os.environ["OMP_NUM_THREADS"] = "1"
    from family import preload

    preload.imports()
    kernels, models, failed, without = collections.Counter(), collections.defaultdict(set), 0, 0
    chosen = [(name, family, dtype) for name, family in subjects(arguments.names, arguments.every) for dtype in arguments.dtypes]
    for name, family, dtype in chosen:
        found = forked(lambda: needs(name, family, dtype))  # noqa: B023: called at once
        if isinstance(found, str):
            failed += 1
            print(f"{name:28s} {dtype:18s} no plan: {found[:200]}", flush=True)
            continue
        operators, total = found
        without += not operators
        for operator, count in operators.items():
            kernels[operator] += count
            models[operator].add(name)
        said = ", ".join(f"{operator} ({count})" for operator, count in sorted(operators.items(), key=lambda item: -item[1]))
        print(f"{name:28s} {dtype:18s} {sum(operators.values()):5d} of {total:5d} kernels need libtorch{': ' + said if said else ''}", flush=True)
    print(f"\n{without} of {len(chosen) - failed} plans need no libtorch; {failed} could not be made")
    for operator, count in kernels.most_common():
        print(f"{count:6d} kernels in {len(models[operator]):3d} models  {operator}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
