"""Training over shaped links: dcrun next to PyTorch DDP and FSDP2 on the hosts of a network lab (root), alternating in one run.

network.py [--world N] [--rate RATE] [--model M|small-llama] [--rows LIST] [--rounds N] [--steps N] [--warmup N] [--minutes N] [--keep FOLDER]

M is a Llama of 8 x 512 with 31.6 M parameters, 2 x 256 tokens per rank, float32. Kernels and links are profiled on the lab, plans
compiled from that profile. Rows, by --chain auto: a, memory too small to keep gathered parameters, next to FSDP2 that reshards; b, memory
for one copy of the parameters, next to FSDP2 that keeps them; c, no limit, next to DDP; d, the same with 4 micro-batches, next to DDP; each of
a, b, c clipped and free (not clipped). `chains` are our zero3 and fsdp, clipped and free, next to FSDP2 that reshards.
--rows takes words (`a`) and whole names (`a free`, `fsdp clipped`), separated by commas. A peer that several rows name runs once a round.
What fails is said and left out; after --minutes nothing new is started; --keep keeps models and the profile for the next run. Another build measures anew: give it another folder.

Hidden: the share of the wire's time that does not lengthen the step, for both sides 1 - (step - compute alone) / (wire alone).
- compute alone: the same micro-batches and update where nothing is sent, on as many processes at once as there are hosts. Ours: a plan of
  one rank; peers: the bare module. A single rank updates all parameters. Where a row updates a shard only, or computes activations again,
  ours is scaled by the predicted compute of both plans, and of the peer's update (timed apart) one rank's part is taken.
- wire alone: the bytes that host 0 sent through its link per step, headers included, at the link's rate.
So whatever else the communication costs (processor time, waiting for slower ranks) counts as not hidden; below 0 a step is longer than
compute and wire one after the other. "By trace" is 1 - exposed / collective of our metrics: of the time in collectives, waiting for
peers included, the share in which compute did not wait.
"""

import argparse
import collections
import dataclasses
import os
import statistics
import subprocess
import sys
import tempfile
import time

import lab as labs
from lab import say

ACCUMULATION = 4


@dataclasses.dataclass
class Row:
    name: str
    clipped: bool
    peer: str  # kind of peer.py
    options: tuple = ()  # of dcc compile
    accumulation: int = 1
    plan: str = ""
    report: dict = None

    def peer_key(self):
        return self.peer, self.clipped, self.accumulation

    def alone_key(self):
        return self.clipped, self.accumulation


def chosen(rows, wanted):
    words = [word.strip() for word in wanted.split(",")]
    found = [row for row in rows if row.name in words or row.name.split()[0] in words or ("chains" in words and row.name.split()[0] in ("zero3", "fsdp"))]
    if not found:
        sys.exit(f"network.py: --rows {wanted}: there are {', '.join(row.name for row in rows)}")
    return found


class Bench:
    def __init__(self, lab, arguments):
        self.lab, self.arguments = lab, arguments
        self.deadline = time.monotonic() + 60 * arguments.minutes
        self.profile = lab.profile(arguments.model)
        self.steps = collections.defaultdict(list)  # by row and side, or what is alone: per round, durations in ms
        self.sent = {}  # the same keys: bytes a step
        self.shares = {}  # by row: of the last round, (collective ms, exposed ms)
        self.updates = {}  # by alone key: ms of the peer's update
        self.alone_compute = {}  # by alone key: predicted compute of our plan of one rank, ns

    def compile(self, row):
        extra = ("--grad-accum", str(row.accumulation), "--reduction-order", "auto") if row.accumulation > 1 else ()
        return self.lab.compile(self.arguments.model, self.profile, *row.options, *extra, name=row.name, clipped=row.clipped)

    def rows(self):
        need = self.lab.compile(self.arguments.model, self.profile, "--chain", "zero3", name="need")[1]
        arena = need["memory"]["arena_bytes"]["device"]
        budgets = {"a": arena * 102 // 100, "b": arena + need["parameters"]["bytes"]}
        every = []
        for kind, clipped in (("clipped", True), ("free", False)):
            every.append(Row(f"a {kind}", clipped, "fsdp", ("--memory", str(budgets["a"]))))
            every.append(Row(f"b {kind}", clipped, "fsdp-keep", ("--memory", str(budgets["b"]))))
            every.append(Row(f"c {kind}", clipped, "ddp"))
        every.append(Row(f"d {ACCUMULATION} micro-batches", True, "ddp", accumulation=ACCUMULATION))
        for chain in ("zero3", "fsdp"):
            every += [Row(f"{chain} {kind}", clipped, "fsdp", ("--chain", chain)) for kind, clipped in (("clipped", True), ("free", False))]
        rows = chosen(every, self.arguments.rows)
        for row in rows:
            row.plan, row.report = self.compile(row)
        return rows

    def count(self):
        return self.arguments.warmup + self.arguments.steps

    def ours(self, row):
        steps, result = self.lab.train(row.plan, self.arguments.model, self.arguments.warmup, self.arguments.steps)
        self.shares[row.name] = tuple(statistics.median(s[key] for s in steps) for key in ("collective_ms", "exposed_ms"))
        return [s["step_ms"] for s in steps], self.lab.sent(result) / self.count()

    def peer(self, kind, clipped, accumulation):
        options = ["--kind", kind, "--steps", str(self.arguments.steps), "--warmup", str(self.arguments.warmup), "--accumulation", str(accumulation)]
        said = self.lab.peer(self.arguments.model, *options, *([] if clipped else ["--no-clip"]))
        if kind == "alone":
            self.updates[clipped, accumulation] = statistics.median(said["update_ms"])
        return said["step_ms"], said["sent_per_step"]

    def alone(self, clipped, accumulation):
        """Runs as many one-rank jobs of dcrun at once as there are hosts."""
        extra = ("--grad-accum", str(accumulation), "--reduction-order", "auto") if accumulation > 1 else ()
        model = self.arguments.model
        plan, report = self.lab.compile(model, self.profile, *extra, name="alone", world=1, clipped=clipped)
        self.alone_compute[clipped, accumulation] = report["prediction"]["compute_ns"]
        files = [self.lab.path(f"alone{rank}.jsonl") for rank in range(self.arguments.world)]
        jobs = [subprocess.Popen(self.lab.dcrun(plan, model, self.count(), file), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for file in files]
        try:
            if any([job.wait(timeout=900) for job in jobs]):
                raise labs.Failed("a rank alone failed: " + plan)
        finally:
            for job in jobs:
                job.kill()
        return [s["step_ms"] for s in labs.read_steps(files[0])[self.arguments.warmup :]], 0

    def seconds(self, key, row):
        """A guess of how long one measurement takes."""
        p = row.report["prediction"]
        step = p["compute_ns"] / 1e9
        if key[0] == "ours":
            step = p["step_ns"] / 1e9
        elif key[0] in ("ddp", "fsdp", "fsdp-keep"):
            passes = {"ddp": 2, "fsdp": 4 * row.accumulation, "fsdp-keep": 3 * row.accumulation}[key[0]]
            shards = (self.lab.world - 1) / self.lab.world
            step += passes * shards * row.report["parameters"]["bytes"] / labs.bytes_per_second(self.lab.rate)
        return 8 + step * self.count()

    def work(self, rows):
        """{key: (how to measure it, guess of the seconds)} of a round, in order."""
        tasks = {}
        for row in rows:
            for key, measure in (
                (("ours", row.name), lambda row=row: self.ours(row)),
                (row.peer_key(), lambda row=row: self.peer(*row.peer_key())),
                (("ours alone", *row.alone_key()), lambda row=row: self.alone(*row.alone_key())),
                (("peer alone", *row.alone_key()), lambda row=row: self.peer("alone", *row.alone_key())),
            ):
                tasks.setdefault(key, (measure, self.seconds(key, row)))
        return tasks

    def run(self, rows):
        tasks = self.work(rows)
        say(f"{len(rows)} rows, {len(tasks)} measurements a round, about {sum(guess for _, guess in tasks.values()) / 60:.0f} minutes each")
        for number in range(self.arguments.rounds):
            for index, (key, (measure, guess)) in enumerate(tasks.items()):
                label = f"round {number + 1} of {self.arguments.rounds}, {index + 1} of {len(tasks)}: {' '.join(map(str, key))}"
                if time.monotonic() + guess > self.deadline:
                    say(f"{label}: left out, it takes about {guess:.0f} s and the time is up")
                    continue
                began = time.monotonic()
                try:
                    durations, sent = measure()
                except (labs.Failed, OSError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
                    say(f"{label}: FAILED: {error}")
                    continue
                self.steps[key].append(durations)
                self.sent[key] = sent
                say(f"{label}: {statistics.median(durations):.0f} ms a step, took {time.monotonic() - began:.0f} s (guess {guess:.0f})")

    def calmest(self, key):
        """Median step of the calmest round, or None."""
        return min(map(statistics.median, self.steps[key])) if self.steps[key] else None

    def compute(self, row, side):
        """Milliseconds of compute alone, or None."""
        alone = self.calmest((side + " alone", *row.alone_key()))
        if alone is None:
            return None
        if side == "ours":
            return alone * row.report["prediction"]["compute_ns"] / self.alone_compute[row.alone_key()]
        if row.peer == "ddp":
            return alone
        return alone - self.updates[row.alone_key()] * (1 - 1 / self.lab.world)

    def line(self, row, side, key):
        medians = [statistics.median(r) for r in self.steps[key]]
        if not medians:
            return f"| {row.name} | {side} | not measured |" + " |" * 9
        step, compute, wire = min(medians), self.compute(row, "ours" if side == "ours" else "peer"), self.sent[key] / labs.bytes_per_second(self.lab.rate) * 1e3
        hidden = "" if compute is None else f"{1 - (step - compute) / wire:.0%}"
        predicted = bound = as_predicted = by_trace = ""
        if side == "ours":
            p, (collective, exposed) = row.report["prediction"], self.shares[row.name]
            predicted, bound = f"{p['step_ns'] / 1e6:.0f}", f"{100 * p['bounds_ns']['with_ends'] / p['step_ns']:.0f}"
            as_predicted, by_trace = f" ({sum(row.report['wire_bytes'].values()) / 1e6:.1f})", f"{1 - exposed / collective:.0%}"
        return (
            f"| {row.name} | {side} | {statistics.median(medians):.0f} | {step:.0f} | {max(medians) - min(medians):.0f} | {predicted} | {bound} | "
            f"{self.sent[key] / 1e6:.1f}{as_predicted} | {'' if compute is None else f'{compute:.0f}'} | {wire:.0f} | {hidden} | {by_trace} |"
        )

    def table(self, rows):
        a = self.arguments
        print(
            f"{a.model}, {a.world} hosts at {a.rate}, {a.rounds} alternating rounds of {a.steps} steps; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        )
        print(
            "| row | who | median step ms | calmest round | spread of rounds | predicted | % of with_ends | MB sent per step (predicted) | compute alone ms | "
            "wire alone ms | hidden | by trace |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|---|---|")
        for row in rows:
            print(self.line(row, "ours", ("ours", row.name)))
            print(self.line(row, row.peer, row.peer_key()))
        for row in rows:
            ours, theirs = self.calmest(("ours", row.name)), self.calmest(row.peer_key())
            if ours and theirs:
                print(f"{row.name}: {theirs / ours:.2f}x of {row.peer} (calmest rounds)")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--rows", default="a,b,c,d,chains")
    parser.add_argument("--model", choices=("M", "small-llama"), default="M")
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--keep")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, labs.Lab(arguments.keep or folder, arguments.world, arguments.rate, "bench") as lab:
        bench = Bench(lab, arguments)
        rows = bench.rows()
        try:
            bench.run(rows)
        finally:
            bench.table(rows)


if __name__ == "__main__":
    main()
