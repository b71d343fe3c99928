"""gpu.py's stage of profiles: a small Llama is profiled on the GPU, compiled with that profile, and trained: the predicted step next to the measured one."""

import json
import math

from gpu_predictions import model_of


def measured(runner, name, ranks):
    """A row of figures for so many ranks, and whether it holds: that there is a profile, a plan of it and finite losses. How near the prediction is, is a figure."""
    model = model_of(runner, name, ranks)
    with open(model.profile) as file:
        found = json.load(file)
    plan, predicted, _ = model.compile()
    milliseconds, losses = model.measure(plan)
    figures = {
        "gpu": found["machine"].get("gpu"),
        "kernels": len(found["kernels"]),
        "collectives": len(found["collectives"]),
        "predicted_ms": predicted,
        "measured_ms": milliseconds,
        "measured_by_predicted": milliseconds / predicted,
        "loss": losses[-1],
    }
    times = [row["median_ns"] for name in ("kernels", "collectives", "copies") for row in found[name]]
    return found["machine"]["device"] == "cuda" and min(times) > 0 and math.isfinite(figures["loss"]), figures


def profile(runner):
    """One rank, and two where there are two GPUs."""
    model = "profile-tiny" if runner.double else "profile-small"
    rows = {f"{ranks} ranks": measured(runner, model, ranks) for ranks in (1, 2) if ranks <= runner.gpus}
    return all(ok for ok, _ in rows.values()), {name: figures for name, (_, figures) in rows.items()}
