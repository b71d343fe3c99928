#!/usr/bin/env python
"""Trains the model zoo with dcrun and with PyTorch and compares losses, norms and every gradient.

parity.py [--full] [--steps N] [--only TEXT] [--launcher dcrun|mpirun|torchrun] [--machine NAME] [--keep DIR] [--jobs N]
Prints one row per case; exits 1 if one fails.
"""

import argparse
import concurrent.futures
import contextlib
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
from torch.nn.attention import SDPBackend, sdpa_kernel

import cases
import machines
import parts
import served
from reference import ORDERS, Reference, Training, compare_curve, compare_gradients, compare_state, make_data, workloads
from running import BIN, LAUNCHERS, ROOT, CommandFailed, archive, description, launch, run  # noqa: F401 (CommandFailed is for users of this file)

from dcc_export import export_train_step

LOSS_FLOOR, NORM_FLOOR = 1e-5, 1e-4
PROFILE = os.path.join(ROOT, "examples", "profiles", "h100x32.json")
NUDGES = 8  # runs of PyTorch with parameters changed in their last place, for nets that branch
REDUCED_NUDGES = 8  # the same for bf16 and autocast, with attention by plain products: a kernel may round elsewhere than PyTorch's fused one


class Subject:
    """One model and dtype: its archive, its PyTorch reference, cached per (world, accumulation).

    The model is a preset, or the transformers config in the file `hf_config`.
    """

    def __init__(self, model, dtype, folder, hf_config=None):
        self.folder = folder
        self.exact = dtype == "float32"
        self.nudges = range(NUDGES if model in cases.BRANCHING else 0 if self.exact else REDUCED_NUDGES)
        self.options = workloads.Options(*workloads_shape(model), dtype=dtype)
        self.archive = self._export(model, dtype, hf_config)
        self.description = description(self.archive)
        if model == "parts":
            self.workload = parts.workload()
        else:
            self.workload = workloads.make(self.options, preset=None if hf_config else model, hf_config=hf_config)
        self.reference = Reference(self.workload, self.options)
        self.runs, self.nudged, self.doubles = {}, {}, {}

    def _export(self, model, dtype, hf_config):
        """The archive's path. A preset's is shared with the tests that run at the same time."""
        if model != "parts" and not hf_config:
            return archive(model, *(() if self.exact else ("--dtype", dtype)))
        path = os.path.join(self.folder, f"{model}-{dtype}.pt2")
        if os.path.exists(path):
            return path
        if model == "parts":
            made = parts.workload()
            export_train_step(made.module, made.inputs, path, roles=made.roles, check=False)
        else:
            export = os.path.join(ROOT, "scripts", "export.py")
            run([sys.executable, export, "--hf-config", hf_config, "--dtype", dtype, "--no-check", "-o", path])
        return path

    def expected(self, training):
        """(data file, PyTorch's run as given, [its runs in other orders])"""
        key = dataclasses.astuple(training)
        if key not in self.runs:
            batch = next(iter(self.workload.inputs.values())).shape[0]
            samples = training.steps * training.accumulation * training.world * batch
            data = make_data(self.description, self.workload.inputs, samples)
            path = os.path.join(self.folder, "data.safetensors")
            save_file(data, path)
            given, *reordered = [self.reference.run(data, training, order) for order in ORDERS]
            self.runs, self.nudged = {key: (path, given, reordered)}, {}
        return self.runs[key]

    def after_nudges(self, training):
        """PyTorch's runs with parameters changed in their last place; none where it needs none."""
        key = dataclasses.astuple(training)
        if key not in self.nudged:
            data = load_file(self.expected(training)[0])
            with contextlib.nullcontext() if self.exact else sdpa_kernel(SDPBackend.MATH):
                self.nudged = {key: [self.reference.run(data, training, "given", nudge=seed) for seed in self.nudges]}
        return self.nudged[key]

    def in_double(self, training):
        """Gradients of step 1 in double precision, in reduced precision."""
        key = dataclasses.astuple(training)
        if key not in self.doubles:
            self.doubles = {key: self.reference.exact_gradients(load_file(self.expected(training)[0]), training)}
        return self.doubles[key]


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
    if chain == "hsdp":
        return ["--chain", "hsdp", "--ranks-per-host", "2"]
    if chain == "zero-offload" or chain in cases.FUSION_CHAINS:
        return ["--chain", chain]
    return ["--profile", PROFILE] if chain == "profiled default" else ["--zero", str(chain)]


def run_case(case, subject, training, folder, launcher):
    """Returns (ratios {what: worst distance / bound}, name of the worst gradient or tensor)."""
    data, given, reordered = subject.expected(training)
    config, plan = os.path.join(folder, "train.json"), os.path.join(folder, "plan.dcp")
    metrics, gradients, saved = (os.path.join(folder, name) for name in ("metrics.jsonl", "gradients", "saved"))
    for path in (metrics, gradients, saved):
        remove(path)
    with open(config, "w") as file:
        json.dump(training.config(), file)
    run(
        [
            os.path.join(BIN, "dcc"),
            "compile",
            subject.archive,
            "--world",
            str(case.world),
            *chain_options(case.zero),
            "--providers",
            case.providers,
            "--grad-accum",
            str(case.accumulation),
            "--config",
            config,
            "--no-cache",
            "-o",
            plan,
        ]
    )
    arguments = [
        plan,
        "--weights",
        subject.archive,
        "--data",
        data,
        "--steps",
        str(training.steps),
        "--metrics",
        metrics,
        "--overwrite",
        "--dump-gradients",
        gradients,
        "--save",
        os.path.join(saved, "model.safetensors"),
    ]
    run(launch(launcher, case.world, arguments + (["--poison"] if case.poison else [])), anew=False)
    with open(metrics) as file:
        rows = [json.loads(line) for line in file][1:]
    if len(rows) != training.steps:
        raise RuntimeError(f"{len(rows)} metric rows for {training.steps} steps")
    dumped = load_file(os.path.join(gradients, "gradients.safetensors"))
    state = load_file(os.path.join(saved, "model.safetensors")) if case.compares_state() else None
    ratios, worst = distances(rows, dumped, state, given, reordered, [], subject.exact)
    if all(ratio <= 1 for ratio in ratios.values()) or not subject.nudges:
        return ratios, worst
    # More runs of PyTorch can only bring it nearer: they are made where it is too far without them.
    nudged = subject.after_nudges(training)
    if subject.exact:
        return distances(rows, dumped, state, given, reordered, nudged, subject.exact)
    # Measures of PyTorch's distance from itself, like another order; and from what is right.
    return distances(rows, dumped, state, given, reordered + nudged, [], subject.exact, [subject.in_double(training)])


def distances(rows, gradients, state, given, reordered, nudged, exact, in_double=()):
    """As run_case, of what dcrun wrote: metrics, gradients of step 1, and the state at the end if that is compared."""
    ratios = {
        "loss": compare_curve([r["loss"] for r in rows], given.losses, [r.losses for r in reordered], [r.losses for r in nudged], LOSS_FLOOR),
        "norm": compare_curve([r["grad_norm"] for r in rows], given.norms, [r.norms for r in reordered], [r.norms for r in nudged], NORM_FLOOR),
    }
    ratios["gradients"], worst = compare_gradients(gradients, given.gradients, [*(r.gradients for r in reordered), *in_double], exact)
    if state is not None:
        ratios["state"], tensor = compare_state(state, given.state, [r.state for r in reordered])
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
    groups = list(cases.by_subject(chosen).values())
    with tempfile.TemporaryDirectory() as temporary, served.server(os.path.join(BIN, "dcrun")):
        rest = [itertools.repeat(value) for value in (arguments.keep or temporary, arguments.steps, arguments.launcher)]
        if arguments.jobs == 1:
            failed = sum(map(len, map(run_group, groups, *rest)))
        else:
            with concurrent.futures.ProcessPoolExecutor(arguments.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
                failed = sum(map(len, pool.map(run_group, groups, *rest)))
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed or not chosen else 0


def run_group(group, folder, steps, launcher):
    """Runs the cases of one model and element type, prints a row for each. Returns the labels of those that failed."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small models; threads that spin would fight the ranks
    try:
        model, dtype = group[0].model, group[0].dtype
        folder = os.path.join(folder, f"{model}-{dtype}")
        os.makedirs(folder, exist_ok=True)
        subject = Subject(model, dtype, folder)
        trainings = [
            Training(
                cases.FEWER_STEPS.get(model, steps), world=case.world, accumulation=case.accumulation, per_step=case.sums_before_reduction(), recipe=case.recipe
            )
            for case in group
        ]
        return [case.label() for case, training in zip(group, trainings, strict=True) if not report(case, subject, training, folder, launcher)]
    finally:
        torch.set_num_threads(threads)


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
