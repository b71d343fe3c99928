"""Our simulation next to DeepCompile's published runs: every column of its harness, predicted from one of them, the worst cell first, with a reason for each miss.

published.py [--models FOLDER] [--model NAME ...] [--runs charts|log ...] [--no-what-ifs] [--auto EFFORT]

The first run exports 26 archives without weights (a minute of one core each) and compiles some 350 plans (2 to 4 seconds each) into FOLDER; later ones simulate what is new.
deepcompile_h100.json has the figures and their origin: charts of 32 H100; the log of an earlier run on 32 other GPUs, with peaks; offloading on 16 H100.

ZeRO-3 is the chain zero3-trace, FSDP fsdp-hf, DeepSpeed's offloading zero-offload, DeepCompile's deepcompile-offload-optimizer: the published runs of these are PyTorch's kernels, one by one. P, S and PS are deepcompile-p, -s and
-ps with fuse-loss and fuse-elementwise: the harness runs them with --backend inductor, which makes one kernel of element-wise operators that follow each other. All compile with full recompute, AdamW, clipping and the device memory
of the log. Mixtral has 24 expert tensors a layer, as published.

Fitted on the PS column alone, per machine and model, by least squares of relative errors: a factor on all times of compute in examples/profiles/h100x32.json, one on those of
collectives, and an intercept, seconds that each micro-batch takes longer. What runs at once slows each other as others observed: matrix products by 35 % next to NCCL (PyTorch's
maintainers, H100), collectives by 34 % (RTX 2080 Ti). All else is predicted. A plan does not depend on the factors.

Why cells miss (published_cases.py has the what-ifs): the program plays each what-if on all columns and says for every miss which of them bring it within 10 %. A what-if is a reason only in columns where more cells are within 10 %
with it than without and whose throughputs it does not make worse; a ratio has the reasons of the two throughputs that it is made of. With several micro-batches a published figure may contradict those of half and twice as
many: where ours is within 10 % of the line through their steps and the published one is not near it, that is the reason. The last table counts misses by reason.
The figures are in README.md: 605 cells, 480 within 10 %; of the 125 misses 2 are unexplained.
Out of scope, because no plan has it: what the host does (launches and hooks of eager runs). Its measured evidence is the what-if "eager host": seconds a micro-batch fitted on ZeRO-3 alone, and what they make of the other eager columns.
"""

import argparse
import collections
import dataclasses
import json
import os
import statistics
import sys

from published_cases import BASE, FITTED, PRESETS, WHAT_IFS
from published_plans import ROOT, Plans
from published_reasons import Reasons
from published_runs import Offloading, Runs

HERE = os.path.dirname(os.path.abspath(__file__))


def tally(cells):
    """'N cells, M within 10 % (P %), worst +Q %'"""
    cells = list(cells)
    good = sum(cell.good for cell in cells)
    worst = max(cells, key=lambda cell: abs(cell.off))
    return f"{len(cells)} cells, {good} within 10 % ({good / len(cells):.0%}), worst {worst.off:+.0%}"


def is_predicted(key, cell):
    return not (cell.kind == "throughput" and cell.column == FITTED)


def print_fit_head():
    print("| runs | model | compute x | collectives x | intercept s | attention x | errors of the fitted column: mean, worst |\n|---|---|---|---|---|---|---|")


class Report:
    def __init__(self, plans, runs, offloading):
        self.plans, self.runs, self.offloading = plans, runs, offloading
        self.base, self.factors = {}, {}
        self.reasons = Reasons(self.base)

    def run(self, what_ifs):
        print("## Fit\n")
        print_fit_head()
        for runs in self.runs:
            self.factors[runs] = self.print_fit(runs, BASE)
            self.base[runs] = runs.cells(self.plans, BASE, self.factors[runs])
        for runs in [runs for runs in self.runs if runs.name == "charts" and runs.model == self.offloading.model]:
            self.factors[self.offloading] = self.factors[runs]
            self.base[self.offloading] = self.offloading.cells(self.plans, BASE, self.factors[runs])
        self.print_summary()
        for case in what_ifs:
            self.print_what_if(case)
        self.print_cells()
        self.print_reasons()

    def print_fit(self, runs, case):
        factors, errors = runs.fit(self.plans, case)
        size = [abs(error) for error in errors]
        fitted = f"{factors.compute:.3f} | {factors.link:.3f} | {factors.intercept:.2f} | {factors.attention:.1f}"
        print(f"| {runs.name} | {runs.model} | {fitted} | {statistics.mean(size):.1%}, {max(size):.1%} |")
        sys.stdout.flush()
        self.plans.save()
        return factors

    def print_what_if(self, case):
        """A what-if, with the cells that it changes."""
        print(f"\n## What if: {case.name}\n\n{case.text[0].upper()}{case.text[1:]}.\n")
        if case.fit:
            print_fit_head()
        played = {}
        for runs in self.base:
            if case.presets and runs.model not in case.presets:
                continue
            factors = self.print_fit(runs, case) if case.fit and runs in self.runs else self.factors[runs]
            if case.eager and runs in self.runs:
                print(f"{runs.name}, {runs.model}: {runs.eager_seconds(self.plans, case, factors):.2f} s a micro-batch, fitted on ZeRO-3.\n")
            cells = runs.cells(self.plans, case, factors)
            played[runs] = {key: cell for key, cell in cells.items() if cell.ours != self.base[runs][key].ours and is_predicted(key, cell)}
            self.reasons.add(case, runs, played[runs])
        print("\n| runs | model | kind | column | as it is | what-if | misses that it brings within 10 % | cells that it makes misses |\n" + "|---" * 8 + "|")
        for runs, cells in played.items():
            for group in {(cell.kind, cell.column): None for cell in cells.values()}:
                self.print_changed(runs, group, {key: cell for key, cell in cells.items() if (cell.kind, cell.column) == group})
        sys.stdout.flush()

    def print_changed(self, runs, group, cells):
        before = {key: self.base[runs][key] for key in cells}
        misses = sum(not cell.good for cell in before.values())
        cured = sum(cell.good and not before[key].good for key, cell in cells.items())
        spoiled = sum(before[key].good and not cell.good for key, cell in cells.items())
        head = f"{runs.name} | {runs.model} | {' | '.join(group)}"
        print(f"| {head} | {tally(before.values())} | {tally(cells.values())} | {cured} of {misses} | {spoiled} |")

    def predicted(self, runs):
        return {key: cell for key, cell in self.base[runs].items() if is_predicted(key, cell)}

    def print_summary(self):
        every = [cell for runs in self.base for cell in self.predicted(runs).values()]
        print(
            f"\n## Predicted\n\n{tally(every)}\n\n| runs | model | kind | column | | seconds published but not predicted: median, range |\n|---|---|---|---|---|---|"
        )
        for runs in self.base:
            kinds = {}
            for cell in self.predicted(runs).values():
                kinds.setdefault((cell.kind, cell.column), []).append(cell)
            for (kind, column), cells in kinds.items():
                lacking = [cell.seconds for cell in cells if cell.seconds]
                seconds = f"{statistics.median(lacking):+.2f}, {min(lacking):+.2f} to {max(lacking):+.2f}" if lacking else ""
                print(f"| {runs.name} | {runs.model} | {kind} | {column} | {tally(cells)} | {seconds} |")
        sys.stdout.flush()

    def rows(self):
        """[(runs, key, cell)], the worst first."""
        rows = [(runs, key, cell) for runs in self.base for key, cell in self.predicted(runs).items()]
        return sorted(rows, key=lambda row: -abs(row[2].off))

    def print_cells(self):
        print("\n## Cells, the worst first\n\n| off | runs | model | batch x seq | what | published | ours | reason |\n" + "|---" * 8 + "|")
        for runs, key, cell in self.rows():
            (batch, seq), what = key
            digits = 2 if cell.parts else 1 if cell.kind == "peak" else 0
            reason = "" if cell.good else self.reasons.of(runs, key).text
            head = f"{cell.off:+.1%} | {runs.name} | {runs.model} | {batch} x {seq} | {what}"
            print(f"| {head} | {cell.published:.{digits}f} | {cell.ours:.{digits}f} | {reason} |")

    def print_reasons(self):
        """How many misses each reason explains."""
        misses = [(runs, key, cell) for runs, key, cell in self.rows() if not cell.good]
        kinds = {}
        for runs, key, cell in misses:
            kinds.setdefault(self.reasons.of(runs, key).label, []).append(cell.kind)
        print(f"\n## Reasons of the {len(misses)} misses\n\n| reason | cells | of which |\n|---|---|---|")
        for label, cells in sorted(kinds.items(), key=lambda pair: -len(pair[1])):
            of_which = ", ".join(f"{count} {kind}" for kind, count in collections.Counter(cells).most_common())
            print(f"| {label} | {len(cells)} | {of_which} |")

    def print_auto(self, effort):
        """What auto adds on the machine of the charts, without the intercept. with_ends and within_memory are of auto's own work."""
        print(f"\n## auto, search effort {effort}\n\n| model | batch x seq | compute, collectives s | ps s | auto s | gain | of with_ends | of within_memory |")
        print("|---|---|---|---|---|---|---|---|")
        for runs in [runs for runs in self.runs if runs.name == "charts"]:
            factors = dataclasses.replace(self.factors[runs], intercept=0.0)
            for shape in runs.seconds:
                job = dataclasses.replace(BASE.job(runs.model, shape, "ps"), chain="auto")
                found = self.plans.compile(job, self.plans.profile(factors), self.plans.plan(job), "--search-effort", str(effort))["prediction"]
                ps, auto, bounds = self.plans.step(BASE.job(runs.model, shape, "ps"), factors), found["step_ns"] / 1e9, found["bounds_ns"]
                work = f"{found['compute_ns'] / 1e9:.2f}, {found['communication_ns'] / 1e9:.2f}"
                share = " | ".join(f"{bounds[bound] / 1e9 / auto:.1%}" for bound in ("with_ends", "within_memory"))
                print(f"| {runs.model} | {shape[0]} x {shape[1]} | {work} | {ps:.2f} | {auto:.2f} | {ps / auto:.3f} | {share} |")
                sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=os.path.join(os.path.expanduser("~"), ".cache", "dcc-published"))
    parser.add_argument("--model", action="append", choices=tuple(PRESETS))
    parser.add_argument("--runs", action="append", choices=("charts", "log"))
    parser.add_argument("--dcc", default=os.path.join(ROOT, "build", "bin", "dcc"))
    parser.add_argument("--no-what-ifs", action="store_true")
    parser.add_argument("--auto", type=int, metavar="EFFORT", help="also compile with --chain auto")
    arguments = parser.parse_args()
    os.makedirs(arguments.models, exist_ok=True)
    with open(os.path.join(HERE, "deepcompile_h100.json")) as file:
        data = json.load(file)
    plans = Plans(arguments.dcc, arguments.models, data["log"]["device_bytes"])
    runs = [Runs(name, data, model) for name in arguments.runs or ("charts", "log") for model in arguments.model or PRESETS]
    try:
        report = Report(plans, runs, Offloading(data["offload"]))
        report.run(() if arguments.no_what_ifs else WHAT_IFS)
        if arguments.auto:
            report.print_auto(arguments.auto)
    finally:
        plans.save()


if __name__ == "__main__":
    main()
