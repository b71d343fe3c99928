"""How true predictions are: the step time that dcc predicts next to the one dcrun measures, over many plans on network labs (root).

truth.py [--keep FOLDER] [--only TEXT] [--steps N] [--warmup N] [--minutes N] [--list]

Cases are models, chains, budgets, clipping, accumulation, hosts and links (GROUPS). Most use a profile measured on their own lab. Others
use one of fewer hosts, or one of a faster link with the link's rate said to `dcc simulate --link`: what was not measured must be predicted too.
The hosts share this machine's cores, and more hosts compute slower. No compiler could know: each host has its cores. So fewer hosts
are profiled while as many ranks as are missing compute on the same machine.

Calibration is what users have, `dcc calibrate`: one run per model, number of hosts and profile of a plan that is no case, CALIBRATION, in
which everything comes one after the other, over the link that was profiled.

All cases and calibrations run in two rounds, minutes apart, and the shorter run of each counts: what disturbs a machine lasts longer than a
run, so a run's own spread does not show it.

A case's figures: predicted (`dcc compile`, or `dcc simulate` with another link), calibrated (the same plan simulated with the calibrated
profile), measured (median of the steps of rank 0), spread ((p75 - p25) / median of these), apart (how much longer the longer run was). Four
more, in ms, say where the difference to the prediction comes from, on rank 0: compute, kernels and what slows them (measured less
predicted); exposed, time in which compute waits; wire, collectives from the moment the last rank comes to them (both measured less
predicted); late, waiting in collectives for ranks that come later, which is predicted as 0. step = compute + exposed; wire and late lengthen
it as far as they are exposed. error = predicted / measured - 1. Bias is the median error, residual the mean distance from it. Kendall's tau
asks whether plans come out in the predicted order: over pairs of plans of one model, lab, profile, clipping and accumulation.

With --keep, models, profiles and results (truth.jsonl, one line a run) stay in the folder, and an interrupted run goes on. What fails is
said and left out. Another build measures anew: give it another folder. Steps are short, so run it where nothing else runs.
"""

import argparse
import dataclasses
import itertools
import json
import os
import statistics
import sys
import tempfile
import time

import lab as labs
from lab import BIN, say

FAST, SLOW = "1gbit", "300mbit"
PAYLOAD = 1448 / 1514  # of what a link carries in full packets
ROUNDS = 2
NOISY = 0.03
CALIBRATION = ("--chain", "zero3", "--grad-accum", "2")


@dataclasses.dataclass(frozen=True)
class Group:
    """Cases that differ in their chains; `auto@1.1`: with a budget of 1.1 times what zero3 needs. `disk`: with room to offload to."""

    model: str
    world: int
    rate: str
    chains: str
    clipped: bool = True
    accumulation: int = 1
    profile: tuple = ()  # (world, rate) of the lab that was profiled, if not the one that runs
    disk: bool = False

    def profiled(self):
        return self.profile or (self.world, self.rate)

    def calibrated(self):
        """(world, rate) of the lab of the calibrating run."""
        return self.world, self.profiled()[1]

    def calibration(self):
        """The name of the calibrating run, which groups of one model, number of hosts and profile share."""
        return f"calibration: {self.model} {self.world}, profile of {self.profiled()[0]} at {self.profiled()[1]}"

    def missing(self):
        """Hosts that the profiled lab has less."""
        return self.world - self.profiled()[0]

    def name(self):
        profiled = f", profile of {self.profile[0]} at {self.profile[1]}" if self.profile else ""
        disk = ", with a disk" if self.disk else ""
        return f"{self.model} {self.world} at {self.rate}{profiled}{disk}, {'clipped' if self.clipped else 'free'} x {self.accumulation}"


GROUPS = (
    Group("M", 2, FAST, "zero0 zero1 zero2 zero3 fsdp deepcompile-p deepcompile-s deepcompile-ps auto auto@1.02 auto@1.25"),
    Group("M", 2, FAST, "zero3 fsdp auto", clipped=False),
    Group("M", 2, FAST, "fsdp auto", accumulation=2),
    Group("small-llama", 2, FAST, "zero1 zero3 fsdp deepcompile-p deepcompile-ps auto auto@1.05"),
    Group("small-llama", 2, FAST, "zero0 zero2 fsdp auto", clipped=False),
    Group("small-llama", 2, FAST, "fsdp auto", accumulation=2),
    Group("small-llama", 2, FAST, "auto@0.9 auto@0.8", disk=True),
    Group("gpt2", 2, FAST, "zero0 zero1 zero3 fsdp deepcompile-s auto auto@1.05"),
    Group("mixtral", 2, FAST, "zero0 zero2 zero3 fsdp auto"),
    Group("small-llama", 3, FAST, "zero0 zero1 zero3 fsdp deepcompile-ps auto", profile=(2, FAST)),
    Group("gpt2", 3, FAST, "zero1 zero3 fsdp auto", clipped=False, profile=(2, FAST)),
    Group("small-llama", 4, FAST, "zero1 zero3 fsdp deepcompile-ps auto auto@1.05"),
    Group("small-llama", 4, FAST, "zero3 fsdp auto", profile=(2, FAST)),
    Group("gpt2", 4, FAST, "zero0 zero1 zero3 fsdp auto", profile=(2, FAST)),
    Group("small-llama", 2, SLOW, "zero1 zero3 fsdp auto", profile=(2, FAST)),
    Group("gpt2", 2, SLOW, "zero0 zero3 fsdp auto", clipped=False, profile=(2, FAST)),
)


class Results:
    """What was measured, a line for each run; of several runs of one name the shortest counts."""

    def __init__(self, path):
        self.path, self.rows = path, []
        if os.path.exists(path):
            with open(path) as file:
                self.rows = [json.loads(line) for line in file]

    def add(self, row):
        self.rows.append(row)
        with open(self.path, "a") as file:
            file.write(json.dumps(row) + "\n")

    def runs(self, name):
        return [row for row in self.rows if row["name"] == name]

    def shortest(self, name):
        return min(self.runs(name), key=lambda row: row["measured_ms"])


class Truth:
    def __init__(self, folder, arguments):
        self.folder, self.arguments = folder, arguments
        self.results = Results(os.path.join(folder, "truth.jsonl"))
        self.deadline = time.monotonic() + 60 * arguments.minutes

    def cases(self, group):
        return [f"{group.name()}: {chain}" for chain in group.chains.split() if self.arguments.only in f"{group.name()}: {chain}"]

    def is_done(self, name, rounds):
        return len(self.results.runs(name)) >= rounds

    def run(self):
        """Lab after lab: first all profiles; then, in each round, calibrations and cases."""
        groups = [group for group in GROUPS if self.cases(group) and not all(self.is_done(name, ROUNDS) for name in (group.calibration(), *self.cases(group)))]
        for world, rate in dict.fromkeys(group.profiled() for group in groups):
            with labs.Lab(self.folder, world, rate, "truth") as lab:
                for group in groups:
                    if group.profiled() == (world, rate):
                        self.attempt(f"profile for {group.name()}", lambda group=group, lab=lab: lab.profile(group.model, computing=group.missing()))
        for rounds in range(1, ROUNDS + 1):
            for world, rate in dict.fromkeys(place for group in groups for place in (group.calibrated(), (group.world, group.rate))):
                with labs.Lab(self.folder, world, rate, "truth") as lab:
                    self.run_on(lab, groups, rounds)

    def run_on(self, lab, groups, rounds):
        """What is to be measured on this lab until each has so many rounds."""
        for group in groups:
            if group.calibrated() == (lab.world, lab.rate) and not self.is_done(group.calibration(), rounds):
                self.attempt(f"round {rounds}, {group.calibration()}", lambda group=group: self.calibrate(lab, group))
            if (group.world, group.rate) == (lab.world, lab.rate):
                for name in self.cases(group):
                    if not self.is_done(name, rounds):
                        self.attempt(f"round {rounds}, {name}", lambda group=group, name=name: self.case(lab, group, name))

    def attempt(self, name, do):
        if time.monotonic() > self.deadline:
            return say(f"{name}: left out, the time is up")
        began = time.monotonic()
        try:
            said = do()
            return say(f"{name}: {said}, took {time.monotonic() - began:.0f} s")
        except (labs.Failed, OSError, ValueError, KeyError) as error:
            return say(f"{name}: FAILED: {error!r}")

    def profile(self, lab, group):
        return lab.profile_path(group.model, *group.profiled(), group.missing())

    def calibrate(self, lab, group):
        name, profile = group.calibration(), self.profile(lab, group)
        plan, _ = lab.compile(group.model, profile, *CALIBRATION, name=name)
        recorded = lab.path(f"recorded-{len(self.results.rows)}.json")
        measured = self.measure(lab, plan, group.model, "--record-profile", recorded)
        self.results.add({"name": name, "plan": plan, "profile": profile, "recorded": recorded, **measured})
        return f"{measured['measured_ms']:.0f} ms"

    def case(self, lab, group, name):
        profile = self.profile(lab, group)
        chain, _, factor = name.split(": ")[1].partition("@")
        options = ["--chain", chain]
        if factor:
            need = lab.compile(group.model, profile, "--chain", "zero3", name="need", clipped=group.clipped)[1]
            options += ["--memory", str(int(float(factor) * need["memory"]["arena_bytes"]["device"]))]
        options += ["--offload-space", "disk"] if group.disk else []
        if group.accumulation > 1:
            options += ["--grad-accum", str(group.accumulation)]
        plan, _ = lab.compile(group.model, profile, *options, name=name, clipped=group.clipped)
        measured = self.measure(lab, plan, group.model, *(("--offload-dir", self.folder) if group.disk else ()))
        self.results.add({"name": name, "plan": plan, **measured})
        return f"{measured['measured_ms']:.0f} ms"

    def measure(self, lab, plan, model, *options):
        trace = lab.path("trace.json")
        steps, _ = lab.train(plan, model, self.arguments.warmup, self.arguments.steps, "--trace", trace, *options)
        low, middle, high = statistics.quantiles([step["step_ms"] for step in steps], n=4, method="inclusive")
        late, wire = parts_of_collectives(trace, self.arguments.warmup)
        exposed = statistics.median(step["exposed_ms"] for step in steps)
        compute = statistics.median(step["step_ms"] - step["exposed_ms"] for step in steps)
        return {
            "measured_ms": middle,
            "spread": (high - low) / middle,
            "compute_ms": compute,
            "exposed_ms": exposed,
            "late": late,
            "wire_ms": wire,
            "load": os.getloadavg()[0],
        }

    def calibrated_profile(self, run):
        """Of the calibrating run."""
        better = run["recorded"].replace("recorded", "calibrated")
        labs.run([os.path.join(BIN, "dcc"), "calibrate", run["plan"], "--profile", run["profile"], "--recorded", run["recorded"], "-o", better])
        return better

    def simulate(self, plan, profile, group):
        """The prediction of `dcc simulate --json`, with the link that is said where it is another than the profiled one."""
        command = [os.path.join(BIN, "dcc"), "simulate", plan, "--profile", profile, "--json"]
        if group.profiled()[1] != group.rate:
            command += ["--link", f"{labs.bytes_per_second(group.rate) * PAYLOAD / 1e9:.6f}"]
        return json.loads(labs.run(command).stdout)["prediction"]

    def rows(self):
        """One for each case that was measured: what it took, and what was predicted."""
        found = []
        for group in GROUPS:
            names = [name for name in self.cases(group) if self.results.runs(name)]
            if names and self.results.runs(group.calibration()):
                run = self.results.shortest(group.calibration())
                better = self.calibrated_profile(run)
                found += [self.row(group, name, run["profile"], better) for name in names]
        return found

    def row(self, group, name, profile, better):
        measured = self.results.shortest(name)
        times = [run["measured_ms"] for run in self.results.runs(name)]
        predicted = self.simulate(measured["plan"], profile, group)
        return {
            **measured,
            "group": group.name(),
            "kind": kind(group),
            "chain": name.split(": ")[1],
            "apart": max(times) / min(times) - 1,
            "predicted_ms": predicted["step_ns"] / 1e6,
            "calibrated_ms": self.simulate(measured["plan"], better, group)["step_ns"] / 1e6,
            "compute": measured["compute_ms"] - (predicted["compute_ns"] + predicted["contention_ns"]) / 1e6,
            "exposed": measured["exposed_ms"] - predicted["exposed_ns"] / 1e6,
            "wire": measured["wire_ms"] - predicted["communication_ns"] / 1e6,
        }

    def report(self):
        rows = self.rows()
        missing = sum(len(self.cases(group)) for group in GROUPS) - len(rows)
        print(
            "| model, hosts, link, clipping x micro-batches | chain | predicted ms | calibrated | measured | error | calibrated | spread | apart | compute | exposed | wire | late |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
        for row in rows:
            print(
                f"| {row['group']} | {row['chain']} | {row['predicted_ms']:.0f} | {row['calibrated_ms']:.0f} | {row['measured_ms']:.0f} | "
                f"{error(row, 'predicted_ms'):+.1%} | {error(row, 'calibrated_ms'):+.1%} | {row['spread']:.1%} | {row['apart']:.1%} | {row['compute']:+.0f} | "
                f"{row['exposed']:+.0f} | {row['wire']:+.0f} | {row['late']:.0f} |"
            )
        print(
            f"\n{len(rows)} cases, {missing} missing; {sum(row['spread'] > NOISY for row in rows)} spread more than {NOISY:.0%}, "
            f"the runs of {sum(row['apart'] > NOISY for row in rows)} are further apart\n"
        )
        print("| cases | of | figure | mean error | 90th percentile | bias | residual | tau |\n|---|---|---|---|---|---|---|---|")
        for what in ("all", *KINDS):
            some = [row for row in rows if what in ("all", row["kind"])]
            if some:
                for figure in ("predicted_ms", "calibrated_ms"):
                    print(f"| {what} | {len(some)} | {figure[:-3]} | {summary(some, figure)} |")


def parts_of_collectives(trace, warmup):
    """Of rank 0, in ms a step: waiting for ranks that come later, and from then to the end."""
    with open(trace) as file:
        events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X" and e["name"] in COLLECTIVES and e["args"]["step"] > warmup]
    meetings = {}
    for event in events:
        a = event["args"]
        meetings.setdefault((a["step"], a["run"], a["index"]), {})[event["pid"]] = event
    late = wire = 0
    for ranks in meetings.values():
        last = max(event["ts"] for event in ranks.values())
        late += last - ranks[0]["ts"]
        wire += ranks[0]["ts"] + ranks[0]["dur"] - last
    steps = 1000 * len({step for step, _, _ in meetings})
    return (late / steps, wire / steps) if meetings else (0, 0)


COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce")
KINDS = ("own profile", "other number of ranks", "other link")


def kind(group):
    if not group.profile:
        return KINDS[0]
    return KINDS[1] if group.profile[0] != group.world else KINDS[2]


def error(row, figure):
    return row[figure] / row["measured_ms"] - 1


def kendall(pairs):
    """Tau of (predicted, measured): of all pairs of plans, those in the same order less those in the opposite one. Equal ones are neither."""
    sign = lambda x: (x > 0) - (x < 0)
    signs = [sign(a[0] - b[0]) * sign(a[1] - b[1]) for a, b in itertools.combinations(pairs, 2)]
    return sum(signs) / len(signs) if signs else None


def summary(rows, figure):
    errors = [error(row, figure) for row in rows]
    bias = statistics.median(errors)
    far = sorted(map(abs, errors))[max(0, -(-len(errors) * 9 // 10) - 1)]
    by_group = {}
    for row in rows:
        by_group.setdefault(row["group"], []).append((row[figure], row["measured_ms"]))
    taus = [kendall(pairs) for pairs in by_group.values() if len(pairs) > 2]
    tau = f"{statistics.mean(taus):.2f} (mean of {len(taus)} groups)" if taus else ""
    return f"{statistics.mean(map(abs, errors)):.1%} | {far:.1%} | {bias:+.1%} | {statistics.mean(abs(e - bias) for e in errors):.1%} | {tau}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep")
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(arguments.keep or folder, exist_ok=True)
        truth = Truth(arguments.keep or folder, arguments)
        if arguments.list:
            return print("\n".join(name for group in GROUPS for name in truth.cases(group)))
        try:
            truth.run()
        finally:
            truth.report()


if __name__ == "__main__":
    sys.exit(main())
