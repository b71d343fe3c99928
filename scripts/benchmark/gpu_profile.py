"""gpu.py's stage of profiles: a small Llama is profiled on the GPU, compiled with that profile, and trained: the predicted step next to the measured one."""

import json
import math
import os
import statistics

from gpu_training import train_plan

STEPS = 13  # of which the first three are left out


def measured(runner, model, ranks):
    """A row of figures for so many ranks, and whether it holds: that there is a profile, a plan of it and finite losses. How near the prediction is, is a figure."""
    folder = runner.folder()
    archive, profile, plan = (os.path.join(folder, name) for name in ("model.pt2", "prof.json", "plan.dcp"))
    os.symlink(runner.program("models", model + ".pt2"), archive)
    dcc = runner.program("bin", "dcc")
    runner.run([dcc, "profile", archive, "-n", str(ranks), "--device", "cuda", "-o", profile], 120)
    with open(profile) as file:
        found = json.load(file)
    runner.run([dcc, "compile", archive, "--profile", profile, "--world", str(ranks), "--no-cache", "-o", plan], 60)
    described = json.loads(runner.run([dcc, "inspect", plan, "--as=json"], 20))
    predicted = described["prediction"]["step_ns"] / 1e6
    rows, _ = train_plan(runner, plan, world=ranks, steps=STEPS, saves=False)
    times = [row["step_ms"] for row in rows[3:]]
    figures = {
        "gpu": found["machine"].get("gpu"),
        "kernels": len(found["kernels"]),
        "collectives": len(found["collectives"]),
        "predicted_ms": predicted,
        "measured_ms": statistics.median(times),
        "measured_by_predicted": statistics.median(times) / predicted,
        "loss": rows[-1]["loss"],
    }
    times = [row["median_ns"] for name in ("kernels", "collectives", "copies") for row in found[name]]
    return found["machine"]["device"] == "cuda" and min(times) > 0 and math.isfinite(figures["loss"]), figures


def profile(runner):
    """One rank, and two where there are two GPUs."""
    model = "profile-tiny" if runner.double else "profile-small"
    rows = {f"{ranks} ranks": measured(runner, model, ranks) for ranks in (1, 2) if ranks <= runner.gpus}
    return all(ok for ok, _ in rows.values()), {name: figures for name, (_, figures) in rows.items()}
