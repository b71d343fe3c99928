"""gpu.py's stages of plans that were compiled with profiles of this GPU: predicted steps next to measured ones, and what offloading to pinned memory costs."""

import concurrent.futures
import functools
import itertools
import json
import os
import shutil
import statistics

from gpu_runner import Failed
from gpu_training import train_plan

STEPS, LEFT_OUT = 13, 3  # steps, and how many of the first do not count
MODELS = {False: ("profile-small", "profile-small-bf16", "profile-wide"), True: ("profile-tiny",)}
ALLOWED_ERROR, LEAST_PLANS = 0.03, 30
STATE_SHARE, ALLOWED_LOSS = 0.6, 0.01
MICRO_BATCHES = (1, 64)  # of a step, the optimizer's state moves once in all of them


class Model:
    """An archive of the bundle with its profile of so many ranks of this machine."""

    def __init__(self, runner, name, ranks):
        self.runner, self.ranks = runner, ranks
        self.bound_ms = {}  # of plans: no schedule of their work can be faster
        folder = runner.folder()
        self.archive, self.profile = (os.path.join(folder, file) for file in ("model.pt2", "prof.json"))
        os.symlink(runner.program("models", name + ".pt2"), self.archive)
        self.dcc = runner.program("bin", "dcc")
        runner.run([self.dcc, "profile", self.archive, "-n", str(ranks), "--device", "cuda", "-o", self.profile], 120)
        shutil.copy(self.profile, os.path.join(runner.out, f"{name}-{ranks}.json"))

    def compile(self, *options, archive=None):
        """A plan, and its predicted step in milliseconds and memory in bytes. `archive`: another of the bundle's."""
        plan = os.path.join(self.runner.folder(), "plan.dcp")
        model = self.runner.program("models", archive + ".pt2") if archive else self.archive
        self.runner.run([self.dcc, "compile", model, "--profile", self.profile, "--world", str(self.ranks), "--no-cache", "-o", plan, *options], 60)
        described = json.loads(self.runner.run([self.dcc, "inspect", plan, "--as=json"], 20))
        verified = self.runner.run([self.dcc, "verify", plan], 20)
        if "and 3 (order between streams, on every rank) hold" not in verified:
            raise Failed(f"dcc verify: {verified.strip()[-300:]}")
        self.bound_ms[plan] = max(described["prediction"]["bounds_ns"]) / 1e6
        return plan, described["prediction"]["step_ns"] / 1e6, described["arena_bytes"][0]

    def measure(self, plan):
        """Median milliseconds of steps, and losses."""
        rows, _ = train_plan(self.runner, plan, world=self.ranks, steps=STEPS, saves=False)
        return statistics.median(row["step_ms"] for row in rows[LEFT_OUT:]), [row["loss"] for row in rows]


# Each is profiled once for all stages.
model_of = functools.cache(Model)


def options_of_plans(bytes_of_default):
    """Plans that differ in what is kept, made again, fused and accumulated."""
    yield from ((), ("--recompute", "full"), ("--recompute", "off"), ("--chain", "zero0"), ("--chain", "no-fusion"), ("--search-effort", "1"))
    yield from (("--grad-accum", count) for count in ("2", "4"))
    yield from (("--memory", str(int(bytes_of_default * share))) for share in (0.95, 0.9, 0.85, 0.8))


def compiled(model, options):
    """As Model.compile, or why there is no plan."""
    try:
        return model.compile(*options)
    except Failed as error:
        return str(error)[-200:]


def predictions(runner):
    """The mean error over all plans."""
    rows, refused = [], {}
    for name in MODELS[bool(runner.double)]:
        model = model_of(runner, name, 1)
        every = list(options_of_plans(model.compile()[2]))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            plans = list(pool.map(functools.partial(compiled, model), every))
        for options, plan in zip(every, plans, strict=True):
            what = f"{name} {' '.join(options)}"
            if isinstance(plan, str):
                refused[what] = plan
                continue
            try:
                measured, _ = model.measure(plan[0])
            except Failed as error:
                refused[what] = str(error)[-200:]
                continue
            rows.append({"plan": what, "predicted_ms": round(plan[1], 4), "measured_ms": round(measured, 4), "error": round(plan[1] / measured - 1, 4)})
    mean = statistics.mean(abs(row["error"]) for row in rows)
    ok = bool(runner.double) or (len(rows) >= LEAST_PLANS and mean <= ALLOWED_ERROR)
    return ok, {"plans": len(rows), "mean_error": mean, "rows": rows, "refused": refused}


def offloaded(runner):
    """Models, and micro-batches of a step."""
    small = MODELS[bool(runner.double)][:2]
    return [*itertools.product(small, MICRO_BATCHES), *((name, 1) for name in MODELS[bool(runner.double)][2:])]


def offload(runner):
    """Plans with 60 % of the memory, the rest on the host, next to plans without a budget. Their time is judged where copies fit under compute: the compiler's bound of the work that
    such a plan has, copies and what is made again included, is no more than 1 % above the step without a budget. One must be judged at least."""
    figures, ok, judged = {}, True, 0
    for name, micro_batches in offloaded(runner):
        model, options = model_of(runner, name, 1), ("--grad-accum", str(micro_batches))
        plan, without, whole = model.compile(*options)
        budget = int(whole * STATE_SHARE)
        small, predicted, taken = model.compile(*options, "--memory", str(budget), "--offload-space", "host")
        (free, losses), (tight, same) = model.measure(plan), model.measure(small)
        loss, bound = tight / free - 1, model.bound_ms[small]
        figures[f"{name}, {micro_batches} micro-batches"] = {
            "bytes": whole,
            "budget": budget,
            "taken": taken,
            "ms": free,
            "ms_with_budget": tight,
            "predicted_ms": without,
            "predicted_ms_with_budget": predicted,
            "bound_ms_with_budget": bound,
            "copies_fit": bound <= without * (1 + ALLOWED_LOSS),
            "loss_of_time": loss,
            "equal_losses": losses == same,
        }
        fits = bound <= without * (1 + ALLOWED_LOSS)
        judged += fits
        ok = ok and losses == same and taken <= budget and (bool(runner.double) or not fits or loss <= ALLOWED_LOSS)
    return ok and (bool(runner.double) or judged > 0), figures
