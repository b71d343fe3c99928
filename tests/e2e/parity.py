#!/usr/bin/env python
"""Trains the model zoo with dcrun and with PyTorch and compares losses, norms and every gradient.

parity.py [--full] [--steps N] [--only TEXT] [--launcher dcrun|mpirun|torchrun] [--machine NAME] [--keep DIR] [--jobs N]
Prints one row per case; exits 1 if one fails.
"""

import argparse
import concurrent.futures
import dataclasses
import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time

import torch
from safetensors.torch import load_file, save_file

import cases
import machines
import parts
from reference import ORDERS, Reference, Training, compare_curve, compare_gradients, compare_state, make_data, workloads
from running import BIN, LAUNCHERS, ROOT, CommandFailed, description, launch, run

from dcc_export import export_train_step  # noqa: E402  (reference.py finds it)

LOSS_FLOOR, NORM_FLOOR = 1e-5, 1e-4
PROFILE = os.path.join(ROOT, "examples", "profiles", "h100x32.json")
NUDGES = 8  # runs of PyTorch with parameters changed in their last place, for nets that branch
REDUCED_NUDGES = 4  # the same for bf16 and autocast


class Subject:
    """One model and dtype: its archive, its PyTorch reference, cached per (world, accumulation).

    The model is a preset, or the transformers config in the file `hf_config`.
    """

    def __init__(self, model, dtype, folder, hf_config=None):
        self.folder = folder
        self.exact = dtype == "float32"
        self.nudges = range(NUDGES if model in cases.BRANCHING else 0 if self.exact else REDUCED_NUDGES)
        self.archive = os.path.join(folder, f"{model}-{dtype}.pt2")
        self.options = workloads.Options(*workloads_shape(model), dtype=dtype)
        if not os.path.exists(self.archive):
            self._export(model, dtype, hf_config)
        self.description = description(self.archive)
        if model == "parts":
            self.workload = parts.workload()
        else:
            self.workload = workloads.make(self.options, preset=None if hf_config else model, hf_config=hf_config)
        self.reference = Reference(self.workload, self.options)
        self.runs = {}

    def _export(self, model, dtype, hf_config):
        if model == "parts":
            made = parts.workload()
            export_train_step(made.module, made.inputs, self.archive, roles=made.roles, check=False)
            return
        export = os.path.join(ROOT, "scripts", "export.py")
        source = ["--hf-config", hf_config] if hf_config else ["--preset", model]
        run([sys.executable, export, *source, "--dtype", dtype, "--no-check", "-o", self.archive])

    def expected(self, training):
        """(data file, PyTorch's run as given, [its runs in other orders], [its runs with nudged parameters])"""
        key = dataclasses.astuple(training)
        if key not in self.runs:
            batch = next(iter(self.workload.inputs.values())).shape[0]
            samples = training.steps * training.accumulation * training.world * batch
            data = make_data(self.description, self.workload.inputs, samples)
            path = os.path.join(self.folder, "data.safetensors")
            save_file(data, path)
            given, *reordered = [self.reference.run(data, training, order) for order in ORDERS]
            nudged = [self.reference.run(data, training, "given", nudge=seed) for seed in self.nudges]
            if not self.exact:  # measures of PyTorch's distance from itself, like another order
                reordered, nudged = reordered + nudged, []
            self.runs = {key: (path, given, reordered, nudged)}
        return self.runs[key]


def remove(path):
    """What the case before wrote: no run takes the place of another's files by itself."""
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.remove(path)


def workloads_shape(model):
    from dcc_export import presets

    batch, seq = presets.default_shape(model)
    return batch, seq or 32


def chain_options(chain):
    """Nothing for the default chain; the profile is one of published figures, of a faster machine."""
    if chain == "default":
        return []
    return ["--profile", PROFILE] if chain == "profiled default" else ["--zero", str(chain)]


def run_case(case, subject, training, folder, launcher):
    """Returns (ratios {what: worst distance / bound}, name of the worst gradient or tensor)."""
    data, given, reordered, nudged = subject.expected(training)
    config, plan = os.path.join(folder, "train.json"), os.path.join(folder, "plan.dcp")
    metrics, gradients, saved = (os.path.join(folder, name) for name in ("metrics.jsonl", "gradients", "saved"))
    for path in (metrics, gradients, saved):
        remove(path)
    with open(config, "w") as file:
        json.dump(training.config(), file)
    run([os.path.join(BIN, "dcc"), "compile", subject.archive, "--world", str(case.world), *chain_options(case.zero),
         "--grad-accum", str(case.accumulation), "--config", config, "--no-cache", "-o", plan])
    arguments = [plan, "--weights", subject.archive, "--data", data, "--steps", str(training.steps),
                 "--metrics", metrics, "--overwrite", "--dump-gradients", gradients, "--save", os.path.join(saved, "model.safetensors")]
    run(launch(launcher, case.world, arguments + (["--poison"] if case.poison else [])))
    with open(metrics) as file:
        rows = [json.loads(line) for line in file][1:]
    if len(rows) != training.steps:
        raise RuntimeError(f"{len(rows)} metric rows for {training.steps} steps")
    ratios = {
        "loss": compare_curve([r["loss"] for r in rows], given.losses, [r.losses for r in reordered], [r.losses for r in nudged], LOSS_FLOOR),
        "norm": compare_curve([r["grad_norm"] for r in rows], given.norms, [r.norms for r in reordered], [r.norms for r in nudged], NORM_FLOOR),
    }
    dumped = load_file(os.path.join(gradients, "gradients.safetensors"))
    ratios["gradients"], worst = compare_gradients(dumped, given.gradients, [r.gradients for r in reordered], subject.exact)
    if case.compares_state():
        ratios["state"], tensor = compare_state(load_file(os.path.join(saved, "model.safetensors")), given.state, [r.state for r in reordered])
        worst = worst if ratios["gradients"] > 1 else tensor
    return ratios, worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--only", default="", help="cases whose label contains this text")
    parser.add_argument("--launcher", default="dcrun", choices=LAUNCHERS)
    parser.add_argument("--machine", choices=machines.NAMES, help="as on a lesser CPU; 'rotating': the one whose turn it is today, with its own few cases")
    parser.add_argument("--keep", help="folder for archives and plans; a temporary one if not given")
    parser.add_argument("--jobs", type=int, default=1, help="models that are trained at the same time")
    arguments = parser.parse_args()
    if arguments.machine:
        machines.become(machines.of_today() if arguments.machine == "rotating" else arguments.machine)
    print(f"on {machines.describe()}", flush=True)
    whole = cases.ON_OTHER_MACHINES if arguments.machine == "rotating" else cases.full() if arguments.full else cases.sample()
    chosen = [c for c in whole if arguments.only in c.label()]
    chosen.sort(key=lambda c: (c.model, c.dtype, c.world, c.accumulation, str(c.zero)))
    groups = [list(group) for _, group in itertools.groupby(chosen, key=lambda c: (c.model, c.dtype))]
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or temporary
        with concurrent.futures.ProcessPoolExecutor(arguments.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            failed = sum(pool.map(run_group, groups, *(itertools.repeat(value) for value in (folder, arguments.steps, arguments.launcher))))
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed or not chosen else 0


def run_group(group, folder, steps, launcher):
    """Runs the cases of one model and element type, prints a row for each. Returns how many failed."""
    torch.set_num_threads(1)  # small models; threads that spin would fight the ranks
    model, dtype = group[0].model, group[0].dtype
    folder = os.path.join(folder, f"{model}-{dtype}")
    os.makedirs(folder, exist_ok=True)
    subject = Subject(model, dtype, folder)
    failed = 0
    for case in group:
        training = Training(cases.FEWER_STEPS.get(model, steps), world=case.world, accumulation=case.accumulation,
                            per_step=case.sums_before_reduction(), recipe=case.recipe)
        failed += not report(case, subject, training, folder, launcher)
    return failed


def report(case, subject, training, folder, launcher):
    started = time.monotonic()
    try:
        ratios, worst = run_case(case, subject, training, folder, launcher)
    except (RuntimeError, subprocess.TimeoutExpired, OSError) as error:
        print(f"FAIL {case.label()}: {error}", flush=True)
        return False
    passed = all(ratio <= 1 for ratio in ratios.values())
    figures = "  ".join(f"{what} {ratio:.2g}" for what, ratio in ratios.items())
    note = "" if passed else f"  worst tensor {worst}"
    print(f"{'ok  ' if passed else 'FAIL'} {case.label():58s} distance/bound: {figures}  {time.monotonic() - started:.1f} s{note}", flush=True)
    return passed


if __name__ == "__main__":
    sys.exit(main())
