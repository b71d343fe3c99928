"""gpu.py's stage of memory: what CUDA and its libraries take of a GPU beyond a plan's arena, as the plan's profile says, next to what nvidia-smi shows while the plan trains."""

import json
import shutil
import subprocess

from gpu_predictions import MODELS, model_of
from gpu_training import train_plan

ALLOWED_BYTES = 64 << 20
STEPS = 40  # long enough to be seen by samples
EVERY_MS = 50
PLANS = ((), ("--recompute", "full"), ("--grad-accum", "4"))
OTHER = ("profile-large", MODELS[False][-1])  # a model, and the one whose profile it is compiled with


def most_used(runner, plan):
    """Bytes of the GPU that were in use at most while a plan trained, and before."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    sampler = subprocess.Popen([*query, "-lms", str(EVERY_MS)], stdout=subprocess.PIPE, text=True)
    try:
        before = int(sampler.stdout.readline())
        train_plan(runner, plan, steps=STEPS, saves=False)
    finally:
        sampler.terminate()
        samples = sampler.communicate()[0].split()
    return (max(map(int, samples)) << 20, before << 20)


def compared(runner, model, *options, archive=None):
    """A plan's arena, what it says is taken beyond that, and what was."""
    plan, _, arena = model.compile(*options, archive=archive)
    predicted = json.loads(runner.run([model.dcc, "inspect", plan, "--as=json"], 20))["prediction"]["library_bytes"]
    used, before = most_used(runner, plan)
    return {"arena": arena, "predicted": predicted, "beyond": used - before - arena, "difference": used - before - arena - predicted}


def memory(runner):
    """Plans of several models, each with its profile, and of one with the profile of another. nvidia-smi's figures are those of the whole GPU: nothing else may use it."""
    if runner.double:
        return True, {"left_out": "a double has no other memory"}
    if shutil.which("nvidia-smi") is None:
        return False, {"not_measured": "there is no nvidia-smi"}
    figures = {}
    for name in MODELS[False]:
        for options in PLANS:
            figures[" ".join((name, *options))] = compared(runner, model_of(runner, name, 1), *options)
    name, profiled = OTHER
    figures[f"{name}, profile of {profiled}"] = compared(runner, model_of(runner, profiled, 1), archive=name)
    ok = all(row["predicted"] > 0 and abs(row["difference"]) <= ALLOWED_BYTES for row in figures.values())
    return ok, {"allowed": ALLOWED_BYTES, **figures}
