"""gpu.py's stage of memory: what CUDA and its libraries take of a GPU beyond a plan's own memory, which one plan predicts for others."""

import shutil
import subprocess

from gpu_predictions import MODELS, model_of
from gpu_training import train_plan

ALLOWED_BYTES = 64 << 20
STEPS = 40  # long enough to be seen by samples
EVERY_MS = 50
PLANS = ((), ("--recompute", "full"), ("--grad-accum", "4"))


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


def memory(runner):
    """For plans of one model, and models of other sizes: beyond the plan, and how far that is from what the first plan took."""
    if runner.double or shutil.which("nvidia-smi") is None:
        return True, {"left_out": "a double has no other memory" if runner.double else "there is no nvidia-smi"}
    figures, predicted = {}, None
    for name in MODELS[False]:
        for options in PLANS:
            plan, _, arena = model_of(runner, name, 1).compile(*options)
            used, before = most_used(runner, plan)
            beyond = used - before - arena
            predicted = beyond if predicted is None else predicted
            figures[" ".join((name, *options))] = {"plan": arena, "beyond": beyond, "from_predicted": beyond - predicted}
    return all(abs(row["from_predicted"]) <= ALLOWED_BYTES for row in figures.values()), {"predicted": predicted, **figures}
