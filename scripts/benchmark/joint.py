"""The default chain next to every named chain over budgets: whether all decisions are taken jointly under one budget.

joint.py [--cases NAME,...] [--budgets N] [--quick] [--points-only] [--jobs N] [--lab FOLDER] [--dcc PROGRAM] [--check]

Cases: joint_cases.json. Per case the budgets go from the smallest that any named chain fits to what the fastest named chain takes without one, in
equal ratios, and one more point has no budget. Time is the simulator's, at the same --reduction-order for all. Checked, and printed worst first:

  1a  the default is at most 0.1 % slower than each named chain that fits, than itself with --recompute full and off and, at three budgets, than
      each named chain with one pass left out
  1b  more memory never makes it slower by more than 0.5 %, nor more effort by more than 0.1 %
  1c  it fits wherever one of these fits
  1d  it fits the smallest budget that any named chain fits
  2a  nothing is faster than the default's bound at the same budget

Each point that is more than 15 % above its bound is listed with what the difference is made of (2b; compile_runs.parts_of says what the parts are).
--points-only leaves out chains with one pass less and other efforts.

Fixed chains are asked of chain_table, three of each case also of dcc compile ("as dcc compile"). Outcomes are kept in build/joint/ (compile_runs.py says
by what), so that only the default runs again after a change of the search. A case whose archive or profile is absent is skipped and says so; those of M and small-llama are made by network.py --folder FOLDER, which is then --lab.
--check: exit 1 if something does not hold. --jobs processes at once, two if absent.
"""

import argparse
import concurrent.futures
import json
import math
import os
import subprocess
import sys
import time

import compile_runs

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
TIE, RISE = 1.001, 1.005
FAR = 1.15  # over the bound: what a step is made of is printed
NOTHING = 1024  # a budget in bytes that no plan keeps
EFFORTS = (6, 12, 48)  # of --search-effort; the default of large models, 28, 18 or 14, lies between the last two


class Case:
    def __init__(self, row, data, arguments, folder):
        for key, value in {**data["defaults"], "budgets": 12, "left_out": True, **row}.items():
            setattr(self, key, value)
        self.budget_count = arguments.budgets or self.budgets
        self.left_out = self.left_out and not arguments.points_only
        self.other_efforts = not arguments.points_only
        self.archive = find(data["archives"][self.archive], arguments.lab, folder)
        self.profile = find(data["profiles"][self.profile], arguments.lab) if self.profile else None
        self.config = os.path.join(folder, self.name + ".train.json")
        self.missing = [path for path in (self.archive, self.profile) if path and not os.path.exists(path)]
        if self.missing:
            return
        with open(self.config, "w") as file:
            json.dump({"optimizer": {"kind": "adamw", "lr": 1e-4}, **({"clip_norm": row["clip_norm"]} if "clip_norm" in row else {})}, file)
        if self.profile and self.link != 1:
            self.profile = slower_link(self.profile, self.link, os.path.join(folder, self.name + ".profile.json"))

    def options(self):
        options = ["--world", str(self.world), "--grad-accum", str(self.accumulation), "--reduction-order", self.order]
        options += ["--offload-space", self.offload] if self.offload != "none" else []
        options += ["--ranks-per-host", str(self.ranks_per_host)] if hasattr(self, "ranks_per_host") else []
        return options


def find(path, lab, folder=None):
    """Where an archive or a profile of joint_cases.json is. One of a preset is exported to `folder` the first time, without weights."""
    if path.startswith("lab:"):
        return os.path.join(lab or "LAB", path[4:])
    if not path.startswith("preset:"):
        return os.path.join(ROOT, path)
    archive = os.path.join(folder, path[7:] + ".pt2")
    if not os.path.exists(archive):
        say(f"exporting {archive}")
        command = [os.path.join(ROOT, "build", "venv", "bin", "python"), os.path.join(ROOT, "scripts", "export.py"), "--preset", path[7:]]
        subprocess.run([*command, "--headless", "--no-check", "--attention", "cuda-flash", "-o", archive], check=True, stderr=subprocess.DEVNULL)
    return archive


def slower_link(path, factor, to):
    """The profile with all times of collectives multiplied."""
    with open(path) as file:
        profile = json.load(file)
    for row in profile["collectives"] + profile.get("during_compute", []):
        for key in ("median_ns", "fastest_ns"):
            row[key] = round(row[key] * factor)
    rates = profile.get("rates", {})
    if "link_bytes_per_s" in rates:
        rates["link_bytes_per_s"] = round(rates["link_bytes_per_s"] / factor)
        rates["collective_latency_ns"] = round(rates["collective_latency_ns"] * factor)
    with open(to, "w") as file:
        json.dump(profile, file)
    return to


class Table:
    """All runs of one case."""

    def __init__(self, case, runs, pool, texts, droppable, program, jobs):
        self.case, self.runs, self.pool, self.droppable = case, runs, pool, droppable
        self.chains = compile_runs.ChainTable(program, *self.model(), case.options(), jobs)
        offloads = case.offload != "none"
        computes = case.offload == "host"  # the device's other memory, not a disk
        hosts = hasattr(case, "ranks_per_host")
        may_run = lambda text: (offloads or "offload-" not in text) and (computes or "offload-update" not in text) and (hosts or "split-by-host" not in text)
        self.texts = {name: text for name, text in texts.items() if may_run(text)}

    def model(self):
        return self.case.archive, self.case.profile, self.case.config

    def compile(self, budget, chain=None, *more):
        return self.runs.compile(*self.model(), [*self.case.options(), *more], budget, chain, self.chains)

    def all(self, jobs):
        """{key: outcome} of {key: arguments of compile}, run by the pool."""
        return {key: job.result() for key, job in self.submit(jobs).items()}

    def submit(self, jobs):
        return {key: self.pool.submit(self.compile, *job) for key, job in jobs.items()}

    def jobs_of(self, budget, unlimited):
        """A point's: of chains those whose plan the budget can change."""
        jobs = {name: (budget, text) for name, text in self.texts.items() if not is_unlimited(text, budget, unlimited[name])}
        return {**jobs, "auto": (budget,), "recompute full": (budget, None, "--recompute", "full"), "recompute off": (budget, None, "--recompute", "off")}

    def least(self, chain):
        """The smallest budget known to work for a chain, or None."""
        budget = NOTHING
        for _ in range(6):
            outcome = self.compile(budget, chain)
            if outcome["exit"] == 0:
                return budget
            if "needs" not in outcome or outcome["needs"] <= budget:
                return None
            budget = outcome["needs"]
        return None

    def run(self):
        unlimited = self.all({name: (None, text) for name, text in self.texts.items()})
        waiting = {name: self.pool.submit(self.least, text) for name, text in self.texts.items()}
        self.leasts = {name: job.result() for name, job in waiting.items()}
        self.budgets = spread(self.leasts, unlimited, self.case.budget_count)
        waiting = [(budget, self.submit(self.jobs_of(budget, unlimited))) for budget in self.budgets]
        self.points = []
        for budget, jobs in waiting:
            made = {key: job.result() for key, job in jobs.items()}
            default = made.pop("auto")
            self.points.append({"budget": budget, "default": default, "rivals": {**unlimited, **made}})
            say(f"{self.case.name} {size(budget)}: {describe(self.points[-1])}")
        places = sorted({1, len(self.points) // 2, len(self.points) - 2})
        self.left_out([self.points[i] for i in places] if self.case.left_out else [])
        self.efforts([self.points[i] for i in places] if self.case.other_efforts else [])
        self.compare([self.points[i] for i in places])
        self.chains.close()
        return self

    def compare(self, points):
        """One chain of each point, another every time, as dcc compiles it: self.differences."""
        jobs = [(point["budget"], *list(self.texts.items())[7 * i % len(self.texts)]) for i, point in enumerate(points)]
        made = [(*self.model(), self.case.options(), budget, text, self.compile(budget, text)) for budget, _, text in jobs]
        waiting = [self.pool.submit(self.runs.compare, *job) for job in made]
        self.differences = [difference for difference in (job.result() for job in waiting) if difference]

    def left_out(self, points):
        shorter = {f"{name} without {one}": compile_runs.without(text, one) for name, text in self.texts.items() for one in self.droppable}
        unique = {text: name for name, text in reversed(shorter.items()) if text and text not in self.texts.values()}
        for point in points:
            point["rivals"].update(self.all({name: (point["budget"], text) for text, name in unique.items()}))

    def efforts(self, points):
        for point in points:
            point["efforts"] = self.all({effort: (point["budget"], None, "--search-effort", str(effort)) for effort in EFFORTS})


def is_unlimited(text, budget, outcome):
    """Whether a chain that looks at the budget in `recompute` alone makes the plan it makes without one: that plan fits."""
    blind = all(call.split("=")[0] in ("recompute", "gather-by-block") for call in text.split(",schedule,")[1].split(",")[:-1])
    return budget is None or (blind and outcome["exit"] == 0 and outcome["arena"] <= budget)


def spread(leasts, unlimited, count):
    """Budgets in bytes, None last."""
    fits = [budget for budget in leasts.values() if budget]
    done = [outcome for outcome in unlimited.values() if outcome["exit"] == 0]
    if not fits or not done:
        return [None]
    low, high = min(fits), min(done, key=lambda outcome: outcome["step_ns"])["arena"]
    high = max(high, low + 1)
    return [round(low * (high / low) ** (i / max(1, count - 2))) for i in range(count - 1)] + [None]


def size(budget):
    return f"{budget / 2**30:.2f} GiB" if budget and budget >= 2**30 else f"{budget / 2**10:.0f} KiB" if budget else "no limit"


def best_rival(point):
    fits = {name: outcome for name, outcome in point["rivals"].items() if outcome["exit"] == 0}
    return min(fits.items(), key=lambda item: item[1]["step_ns"]) if fits else (None, None)


def describe(point):
    name, rival = best_rival(point)
    mine = point["default"]
    text = f"{mine['step_ns'] / 1e6:.2f} ms" if mine["exit"] == 0 else f"exit {mine['exit']}"
    return f"{text}, {mine['cpu_s']:.1f} s CPU; " + (f"{name} {rival['step_ns'] / 1e6:.2f} ms" if name else "nothing fits")


def ratio(point):
    name, rival = best_rival(point)
    if point["default"]["exit"] or not rival:
        return math.inf if rival else 0
    return point["default"]["step_ns"] / rival["step_ns"]


def check(tables):
    """{must-hold: [(how bad, text)]}, worst first."""
    found = {
        "as dcc compile": [(1, f"{table.case.name}: {text}") for table in tables for text in table.differences],
        "1a": [],
        "1b memory": [],
        "1b effort": [],
        "1c": [],
        "1d": [],
        "2a": [],
        "errors": [],
    }
    for table in tables:
        name, earlier = table.case.name, None
        for point in table.points:
            where, mine = f"{name} {size(point['budget'])}", point["default"]
            for rival, outcome in {"default": mine, **point["rivals"]}.items():
                if outcome["exit"] not in (0, compile_runs.REFUSED):
                    found["errors"].append((1, f"{where} {rival}: exit {outcome['exit']}: {outcome['error']}"))
                if mine["exit"] == 0 == outcome["exit"] and mine["bound_ns"] and outcome["step_ns"] < mine["bound_ns"]:
                    found["2a"].append((mine["bound_ns"] / outcome["step_ns"], f"{where}: {rival} is below the bound"))
            rival, outcome = best_rival(point)
            if rival and mine["exit"]:
                found["1c"].append((1, f"{where}: refused where {rival} takes {outcome['step_ns'] / 1e6:.2f} ms"))
                continue
            if mine["exit"]:
                continue
            if rival and ratio(point) > TIE:
                found["1a"].append((ratio(point), f"{where}: {mine['step_ns'] / 1e6:.2f} ms, {rival} {outcome['step_ns'] / 1e6:.2f} ms"))
            if earlier and mine["step_ns"] > RISE * earlier[1]:
                found["1b memory"].append((mine["step_ns"] / earlier[1], f"{where}: slower than with {size(earlier[0])}"))
            if not earlier or mine["step_ns"] < earlier[1]:
                earlier = (point["budget"], mine["step_ns"])
            found["1b effort"] += rises_with_effort(where, point.get("efforts", {}))
        if table.budgets[0] and table.points[0]["default"]["exit"]:
            chain = min((least, name) for name, least in table.leasts.items() if least)[1]
            found["1d"].append((1, f"{name}: {chain} fits {size(table.budgets[0])}, the default does not"))
    return {what: sorted(rows, reverse=True) for what, rows in found.items()}


def rises_with_effort(where, efforts):
    done = sorted((effort, outcome["step_ns"]) for effort, outcome in efforts.items() if outcome["exit"] == 0)
    pairs = [(a, b) for i, a in enumerate(done) for b in done[i + 1 :] if b[1] > TIE * a[1]]
    return [(b[1] / a[1], f"{where}: effort {b[0]} takes {b[1] / 1e6:.2f} ms, {a[0]} {a[1] / 1e6:.2f} ms") for a, b in pairs]


def print_points(tables):
    print("| case | budget | default ms | best other ms | ratio | other | arena | over bound | CPU s | MiB |\n|---" + "|---" * 9 + "|")
    rows = sorted(((ratio(point), table.case.name, point) for table in tables for point in table.points), key=lambda row: -row[0])
    for value, name, point in rows:
        rival, outcome = best_rival(point)
        mine = point["default"]
        theirs = f"{outcome['step_ns'] / 1e6:.2f} | {value:.4f} | {rival}" if rival else "| |"
        if mine["exit"]:
            print(f"| {name} | {size(point['budget'])} | exit {mine['exit']} | {theirs} | | | {mine['cpu_s']:.1f} | {mine['rss_mib']:.0f} |")
            continue
        bound = f"{mine['step_ns'] / mine['bound_ns']:.3f}" if mine["bound_ns"] else ""
        time_, peak = f"{mine['step_ns'] / 1e6:.2f}", size(mine["arena"])
        print(f"| {name} | {size(point['budget'])} | {time_} | {theirs} | {peak} | {bound} | {mine['cpu_s']:.1f} | {mine['rss_mib']:.0f} |")


def print_far(tables):
    """2b: what each step is made of that is far above its bound, as parts of the bound."""
    done = [(table.case.name, point["budget"], point["default"]) for table in tables for point in table.points if not point["default"]["exit"]]
    far = [(one["step_ns"] / one["bound_ns"], name, budget, one) for name, budget, one in done if one["bound_ns"] and one["step_ns"] > FAR * one["bound_ns"]]
    if not far:
        return
    parts = list(far[0][3].get("parts_ns", {}))
    print(f"\nAbove {FAR} of the bound, and what the rest is made of, as per cent of the bound\n")
    print(f"| case | budget | over bound | busiest | {' | '.join(parts)} |\n|---|---" + "|---" * (2 + len(parts)) + "|")
    for ratio_, name, budget, one in sorted(far, key=lambda row: -row[0]):
        shares = " | ".join(f"{100 * one.get('parts_ns', {}).get(part, 0) / one['bound_ns']:.1f}" for part in parts)
        print(f"| {name} | {size(budget)} | {ratio_:.3f} | {one.get('busiest', '')} | {shares} |")


def print_summary(tables, found):
    points = [point for table in tables for point in table.points]
    done = [point["default"] for point in points if point["default"]["exit"] == 0]
    for what, rows in found.items():
        print(f"\n{what}: {'holds' if not rows else f'{len(rows)} do not hold, worst {rows[0][0]:.3f}'}")
        for value, text in rows:
            print(f"  {value:.4f}  {text}")
    print(f"\n{len(tables)} cases, {len(points)} points")
    over = [one["step_ns"] / one["bound_ns"] for one in done if one["bound_ns"]]
    if over:
        print(f"time over bound: geometric mean {math.exp(sum(map(math.log, over)) / len(over)):.3f}, worst {max(over):.3f}")
    slowest = max((point["default"]["cpu_s"], table.case.name, size(point["budget"])) for table in tables for point in table.points)
    print(
        f"the default's compile: longest {slowest[0]:.1f} s of CPU ({slowest[1]}, {slowest[2]}), most memory {max(p['default']['rss_mib'] for p in points):.0f} MiB"
    )


def say(text):
    print(time.strftime("[%H:%M:%S] ") + text, file=sys.stderr, flush=True)


def read_cases(arguments, folder):
    with open(os.path.join(HERE, "joint_cases.json")) as file:
        data = json.load(file)
    wanted = arguments.cases.split(",") if arguments.cases else None
    known = [row["name"] for row in data["cases"]]
    if unknown := sorted(set(wanted or ()) - set(known)):
        sys.exit(f"joint.py: there is no case {', '.join(unknown)}; there are {', '.join(known)}")
    part = "quick" if arguments.quick else "full"
    rows = [row for row in data["cases"] if (row["name"] in wanted if wanted else row.get("set", "full") == part)]
    return [Case(row, data, arguments, folder) for row in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", help="names, comma-separated")
    parser.add_argument("--budgets", type=int, help="per case; 12 if absent")
    parser.add_argument("--quick", action="store_true", help="the reduced set")
    parser.add_argument("--points-only", action="store_true", help="no chains with one pass less, no other efforts")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--lab", help="folder with models and profiles that network.py made")
    parser.add_argument("--dcc", default=os.path.join(ROOT, "build", "bin", "dcc"), help="chain_table is the one in the same folder")
    parser.add_argument("--store", default=os.path.join(ROOT, "build", "joint"), help="folder for outcomes")
    parser.add_argument("--any-build", action="store_true", help="take outcomes of fixed chains from whichever build made them")
    parser.add_argument("--limit", type=int, default=900, help="seconds after which a compile is killed")
    parser.add_argument("--check", action="store_true", help="exit 1 if something does not hold")
    arguments = parser.parse_args()
    if arguments.budgets is not None and arguments.budgets < 3:
        sys.exit("joint.py: --budgets needs at least 3")
    began = time.monotonic()
    os.makedirs(arguments.store, exist_ok=True)
    runs = compile_runs.Runs(arguments.dcc, os.path.join(arguments.store, "outcomes.jsonl"), arguments.limit, arguments.any_build, arguments.jobs)
    texts, droppable = compile_runs.chain_texts(arguments.dcc, os.path.join(ROOT, "tests", "data", "mlp.pt2"))
    tables = []
    program = os.path.join(os.path.dirname(arguments.dcc), "chain_table")
    if not os.path.exists(program):
        parser.error(f"{program} is missing; build it: cmake --build build/release --target chain_table")
    # Chains wait for their process of chain_table: with twice the threads neither processor is idle.
    with concurrent.futures.ThreadPoolExecutor(2 * arguments.jobs) as pool:
        for case in read_cases(arguments, arguments.store):
            if case.missing:
                print(f"skipped: {case.name}: there is no {', '.join(case.missing)}")
                continue
            tables.append(Table(case, runs, pool, texts, droppable, program, arguments.jobs).run())
    if not tables:
        sys.exit("joint.py: no case could run")
    found = check(tables)
    print_points(tables)
    print_far(tables)
    print_summary(tables, found)
    print(f"{runs.ran} compiled, {time.monotonic() - began:.0f} s; 16 and 64 ranks are extrapolated from a profile of 32")
    sys.exit(bool(arguments.check and any(found.values())))


if __name__ == "__main__":
    main()
