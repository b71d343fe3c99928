"""The whole of scripts/gpu.sh: stages one after the other, each for a limited time; report.json and report.html are written after each of them.

Each stage says what held and what did not; a stage that fails does not end the others. Exit code 1 if one failed. With --double FOLDER the libraries of a
test double (tests/double) are used: then the report says so, the benchmark is left out, and nothing follows about GPUs.
"""

import argparse
import html
import json
import os
import sys
import time
import traceback

from gpu_benchmark import benchmark, start, tuned
from gpu_faults import faults
from gpu_memory import memory
from gpu_predictions import offload, predictions
from gpu_profile import profile
from gpu_runner import Runner
from gpu_tests import device, kernels, samples
from gpu_training import ranks, sanitizer, training

HERE = os.path.dirname(os.path.abspath(__file__))
SECONDS = 525  # of all


def machine(runner):
    """What is here: GPUs, driver, libraries, and whether our programs start at all."""
    figures = json.loads(runner.run([sys.executable, os.path.join(HERE, "gpu_machine.py")], 60).splitlines()[-1])
    figures["folders"] = runner.folders
    if runner.double:
        figures["gpus"] = "a test double: nothing follows about GPUs"
        runner.gpus = 2  # ranks may share it
    else:
        runner.gpus = len(figures["gpus"].get("devices", []))
    figures["dcrun"] = runner.run([runner.program("bin", "dcrun"), "--version"], 20).strip()
    return runner.gpus > 0 and figures["libraries"]["nvrtc"] is not None, figures


STAGES = (machine, start, device, training, kernels, samples, ranks, faults, sanitizer, profile, benchmark, memory, offload, predictions, tuned)


def write(out, report):
    """Each file is whole at any time."""
    rows = "".join(
        f"<tr><td>{s['name']}</td><td>{s['outcome']}</td><td>{s['seconds']:.1f} s</td><td><pre>{html.escape(json.dumps(s['figures'], indent=1))}</pre></td></tr>"
        for s in report["stages"]
    )
    of_what = "a test double of a GPU, from which nothing about GPUs follows" if report["is_double"] else "a GPU"
    page = f"<!doctype html><meta charset=utf-8><title>dcrun on {of_what}</title><h1>dcrun on {of_what}</h1><table border=1>{rows}</table>\n"
    for name, text in (("report.json", json.dumps(report, indent=1)), ("report.html", page)):
        path = os.path.join(out, name)
        with open(path + ".part", "w") as file:
            file.write(text)
        os.replace(path + ".part", path)


def run_stage(stage, runner, report, out):
    began = time.monotonic()
    row = {"name": stage.__name__, "outcome": "under way", "seconds": 0.0, "figures": {}}
    report["stages"].append(row)

    def note(figures):
        row.update(figures=figures, seconds=time.monotonic() - began)
        write(out, report)

    try:
        ok, figures = stage(runner, note) if stage in (benchmark, tuned) else stage(runner)
    except Exception as error:  # the other stages are worth more than this one
        traceback.print_exc()
        ok, figures = False, {**row["figures"], "error": f"{type(error).__name__}: {error}"}
    row["outcome"] = "holds" if ok else "FAILED"
    note(figures)
    print(f"{stage.__name__}: {row['outcome']}, {row['seconds']:.1f} s {json.dumps(figures)[:1800]}", flush=True)
    return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--double", help="folder of a test double's libraries")
    parser.add_argument("--stages", help="only these, in this order, separated by commas: " + ", ".join(stage.__name__ for stage in STAGES))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all together; default %(default)s")
    arguments = parser.parse_args()
    names = arguments.stages.split(",") if arguments.stages else [stage.__name__ for stage in STAGES]
    by_name = {stage.__name__: stage for stage in STAGES}
    if unknown := set(names) - set(by_name):
        parser.error(f"there is no stage {', '.join(sorted(unknown))}")
    chosen = list(dict.fromkeys([machine, *(by_name[name] for name in names)]))
    os.makedirs(arguments.out, exist_ok=True)
    runner = Runner(arguments.bundle, arguments.double, arguments.seconds, arguments.out)
    report = {"is_double": bool(arguments.double), "stages": []}
    ok = [run_stage(stage, runner, report, arguments.out) for stage in chosen]
    runner.close()
    return 0 if all(ok) else 1


if __name__ == "__main__":
    sys.exit(main())
