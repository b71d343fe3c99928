"""gpu.py's stages of speed: how long a Llama of a billion parameters takes to start, and its step next to PyTorch's."""

import json
import os
import statistics
import sys
import time

import gpu_peer
from gpu_predictions import model_of
from gpu_runner import Failed
from gpu_training import train, train_plan

HERE = os.path.dirname(os.path.abspath(__file__))
REACHED_TFLOPS = 790  # of dense bf16 products of an H100 or H200, as measured by others
ALLOWED_START_S, ALLOWED_HOST_MS = 3.0, 0.1
TUNED = "max-autotune-no-cudagraphs"
LEFT_OUT = 3  # of the first steps


def start(runner):
    """From process start to the end of step 1: the first run on this machine; with a new cache of kernels; with that cache."""
    name, figures = ("tiny-llama" if runner.double else "large"), {}
    new, kept = runner.folder(), runner.folder()
    for what, cache in (("new machine", new), ("no kernels in the cache", kept), ("kernels in the cache", kept)):
        rows, _ = train(runner, name, steps=1, saves=False, seconds=60, DCC_CACHE_DIR=cache)
        figures[what] = {"seconds": rows[0]["written_s"], "step_ms": rows[0]["step_ms"], **rows[0]["start"]}
    slowest = max(row["seconds"] for row in figures.values())
    return bool(runner.double) or slowest <= ALLOWED_START_S, figures


def peer(*options):
    return [sys.executable, os.path.join(HERE, "gpu_peer.py"), *options]


def environment_of_peers(runner):
    return {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(runner.scratch, "inductor"),
        "TRITON_CACHE_DIR": os.path.join(runner.scratch, "triton"),
    }


def median(times):
    return {"median_ms": statistics.median(times), "least_ms": min(times), "most_ms": max(times), "steps": len(times)}


def run_ours(runner, plan):
    began = time.monotonic()
    rows, _ = train_plan(runner, plan, steps=10 + LEFT_OUT, saves=False, seconds=90)
    times = [row["step_ms"] for row in rows]
    # All that is not steps 2 to 13: starting, drawing weights, compiling kernels, the first step, ending.
    other = time.monotonic() - began - sum(times[1:]) / 1e3
    host = statistics.median(row["host_ms"] for row in rows[LEFT_OUT:])
    return times[LEFT_OUT:], {"loss": rows[-1]["loss"], "host_ms": host, "start": rows[0]["start"], "other_s": other}


def run_peer(runner, kind):
    said = runner.run(peer("--kind", kind, "--steps", "10"), 400 if kind == TUNED else 150, environment_of_peers(runner))
    made = json.loads([line for line in said.splitlines() if line.startswith('{"step_ms"')][-1])
    return made.pop("step_ms"), made


def in_turns(runner, note, kinds):
    """A plan by the profile of four of the layers, and PyTorch. Figures by kind."""
    figures, times = {}, {}
    plan, predicted, taken = model_of(runner, "profile-wide", 1).compile(archive="profile-large")
    for kind in kinds:
        try:
            measured, more = run_ours(runner, plan) if kind == "dcrun" else run_peer(runner, kind)
            times.setdefault(kind, []).extend(measured)
            share = gpu_peer.flops_of_step() / (statistics.median(times[kind]) * 1e-3) / (REACHED_TFLOPS * 1e12)
            figures[kind] = {**median(times[kind]), "share_of_790_tflops": share, **more}
        except (Failed, OSError, ValueError, IndexError) as error:
            figures.setdefault(kind, {})["failed"] = str(error)
        note(figures)
    ours = figures["dcrun"].get("median_ms")
    figures["dcrun"] |= {"predicted_ms": predicted, "arena_bytes": taken}
    for kind, row in figures.items():
        if ours and kind != "dcrun" and "median_ms" in row:
            row["times_as_long_as_dcrun"] = row["median_ms"] / ours
    return all("failed" not in row for row in figures.values()) and figures["dcrun"]["host_ms"] < ALLOWED_HOST_MS, figures


def benchmark(runner, note):
    """4096 tokens, bf16: dcrun, eager PyTorch and the quicker mode of torch.compile in turns."""
    if runner.double:
        return True, {"left_out": "a double has no speed"}
    return in_turns(runner, note, ("dcrun", "eager", "dcrun", "reduce-overhead", "dcrun"))


def tuned(runner, note):
    """The same next to torch.compile's tuned mode, which compiles for minutes."""
    if runner.double:
        return True, {"left_out": "a double has no speed"}
    return in_turns(runner, note, ("dcrun", TUNED, "dcrun"))
