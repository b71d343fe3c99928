"""dcrun next to PyTorch on one host, alternating in one run: medians with spread, memory, time to the first step.

run.py [--model S|M|...] [--sides LIST] [--rounds N] [--steps N] [--warmup N] [--folder FOLDER] [--half]

One thread per rank. One rank trains next to PyTorch alone, eager and `torch.compile`d; two ranks next to DDP (our plan: --zero 0), FSDP2 that
gathers parameters again and FSDP2 that keeps them (--zero 3, and the default chain with a budget of LESS of what that plan takes). S and M are the
Llamas of lab.py (4.0 and 31.6 million parameters). --half adds bfloat16 with float32 masters next to PyTorch's autocast, on one rank. --sides takes
names of the table, separated by semicolons.

Prints a row for each side: step time (median of the rounds' medians, that of the calmest round, the fastest step, the spread between rounds), time from
the process's start to the end of its first step, of ours also what of that is not the step (start and end of the processes) and to the first instruction
(of a run with a trace, both by the monotonic clock), and the largest memory
per rank in a run of three steps, as PSS and RSS. Then for each of ours and each of its peers the ratio of step times, each from its calmest round (the one with the least median).
"""

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import lab as labs
from lab import BIN, PEER

MEMORY_STEPS = 3
LESS = 0.84  # of the arena of --zero 3


@dataclasses.dataclass
class Side:
    """Who trains, and what was measured of it."""

    name: str
    world: int
    plan: str = ""  # of ours
    archive: str = ""
    peers: tuple = ()  # whom ours is compared with
    options: tuple = ()  # of peer.py
    rounds: list = dataclasses.field(default_factory=list)  # per round, steps in ms
    communication: list = dataclasses.field(default_factory=list)  # of ours: (ms in collectives, ms that compute waited)
    first: list = dataclasses.field(default_factory=list)  # seconds from the start to the end of the first step
    around: list = dataclasses.field(default_factory=list)  # of ours: seconds of those that are not the step
    begun: list = dataclasses.field(default_factory=list)  # of ours: seconds from the start to the first instruction
    memory: tuple = (0.0, 0.0)  # the largest PSS and RSS of a rank in MiB

    def calmest(self):
        return min(statistics.median(steps) for steps in self.rounds)


class Watch(threading.Thread):
    """The largest memory of the ranks among the descendants of a process, sampled five times a second."""

    def __init__(self, job, world, word):
        super().__init__(daemon=True)
        self.job, self.world, self.word = job, world, word
        self.largest = (0.0, 0.0)
        self.over = threading.Event()

    def run(self):
        while not self.over.wait(0.2):
            ranks = [memory for memory in (memory_of(pid) for pid in descendants(self.job) if runs(pid, self.word)) if memory]
            if ranks:
                self.largest = max(self.largest, tuple(sum(column) / self.world / 1024 for column in zip(*ranks)))


def descendants(pid):
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{task}/children") as file:
                    found += [int(child) for child in file.read().split()]
    return found


def runs(pid, word):
    """Whether a process's command is this program, or this script."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as file:
        return any(argument.endswith(word) for argument in file.read().split("\0")[:3])
    return False


def memory_of(pid):
    """(PSS, RSS) in KiB; None of a process that has ended."""
    with contextlib.suppress(OSError, KeyError), open(f"/proc/{pid}/smaps_rollup") as file:
        found = dict(line.split(":", 1) for line in file.read().splitlines()[1:])
        return int(found["Pss"].split()[0]), int(found["Rss"].split()[0])
    return None


def largest_memory(command, world, word):
    """(PSS, RSS) of a rank while the command runs."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"}) as job:
        watch = Watch(job.pid, world, word)
        watch.start()
        code = job.wait()
        watch.over.set()
        watch.join()
    if code:
        sys.exit(f"run.py: exit {code}: {' '.join(command)}")
    return watch.largest


class Run:
    def __init__(self, arguments, bench):
        self.arguments, self.bench = arguments, bench

    def plan(self, name, world, archive, *options):
        profile = self.bench.path(f"profile-{os.path.basename(archive)}-{world}.json")
        if not os.path.exists(profile):
            labs.say(f"profiling {name} on {world} ranks")
            labs.run([os.path.join(BIN, "dcc"), "profile", archive, "-n", str(world), "-o", profile])
        plan = self.bench.path(f"{name.replace(' ', '-')}.dcp")
        command = [os.path.join(BIN, "dcc"), "compile", archive, "--profile", profile, "--world", str(world), "--no-cache"]
        labs.run([*command, "--config", self.bench.config(clipped=True), *options, "-o", plan])
        return plan

    def less_memory(self, plan):
        described = json.loads(labs.run([os.path.join(BIN, "dcc"), "inspect", plan, "--as=json"]).stdout)
        return str(int(LESS * described["arena_bytes"][0]))

    def sides(self):
        archive = self.bench.archive(self.arguments.model)
        sharded = self.plan("zero3", 2, archive, "--zero", "3")
        smaller = self.plan("less", 2, archive, "--memory", self.less_memory(sharded))
        found = [
            Side("dcrun, 1 rank", 1, self.plan("one", 1, archive), archive, ("eager", "compiled")),
            Side("eager", 1, options=("--kind", "alone")),
            Side("compiled", 1, options=("--kind", "compiled")),
            Side("dcrun --zero 0", 2, self.plan("zero0", 2, archive, "--zero", "0"), archive, ("DDP",)),
            Side("DDP", 2, options=("--kind", "ddp")),
            Side("dcrun --zero 3", 2, sharded, archive, ("FSDP2, reshard", "FSDP2, keep")),
            Side("dcrun --memory", 2, smaller, archive, ("FSDP2, reshard", "FSDP2, keep")),
            Side("FSDP2, reshard", 2, options=("--kind", "fsdp")),
            Side("FSDP2, keep", 2, options=("--kind", "fsdp-keep")),
        ]
        if self.arguments.half:
            half = self.bench.archive(self.arguments.model, "--dtype", "autocast-bfloat16")
            found.append(Side("dcrun, bf16, 1 rank", 1, self.plan("half", 1, half), half, ("eager, bf16", "dcrun, 1 rank")))
            found.append(Side("eager, bf16", 1, options=("--kind", "alone", "--autocast")))
        wanted = [name.strip() for name in self.arguments.sides.split(";") if name.strip()]
        return [side for side in found if not wanted or side.name in wanted]

    def command(self, side, warmup, steps):
        if not side.plan:
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(side.world), PEER, *side.options]
            return [*command, *self.bench.shape(self.arguments.model), "--steps", str(steps), "--warmup", str(warmup)]
        command = self.bench.dcrun(side.plan, self.arguments.model, warmup + steps, self.bench.path("metrics.jsonl"))
        command[command.index("--weights") + 1] = side.archive
        return [command[0], "-n", str(side.world), *command[1:]]

    def train(self, side):
        out = labs.run(self.command(side, self.arguments.warmup, self.arguments.steps), OMP_NUM_THREADS="1").stdout
        if side.plan:
            rows = labs.read_steps(self.bench.path("metrics.jsonl"))[self.arguments.warmup :]
            side.rounds.append([row["step_ms"] for row in rows])
            side.communication += [(row["collective_ms"], row["exposed_ms"]) for row in rows]
            began = time.perf_counter()
            labs.run(self.command(side, 0, 1), OMP_NUM_THREADS="1")
            side.first.append(time.perf_counter() - began)
            side.around.append(side.first[-1] - labs.read_steps(self.bench.path("metrics.jsonl"))[0]["step_ms"] / 1000)
            side.begun.append(self.seconds_to_begin(side))
        else:
            row = json.loads(out.strip().splitlines()[-1])
            side.rounds.append(row["step_ms"])
            side.first.append(row["first_step_s"])

    def seconds_to_begin(self, side):
        trace = self.bench.path("trace.json")
        began = time.monotonic()
        labs.run([*self.command(side, 0, 1), "--trace", trace], OMP_NUM_THREADS="1")
        with open(trace) as file:
            events = json.load(file)["traceEvents"]
        return min(event["ts"] for event in events if event["ph"] == "X") / 1e6 - began

    def remember(self, side):
        """Another run: reading a process's maps slows it down."""
        side.memory = largest_memory(self.command(side, 0, MEMORY_STEPS), side.world, "dcrun" if side.plan else "peer.py")


def report(arguments, sides):
    print(
        f"{arguments.model}, 1 thread a rank, {arguments.rounds} alternating rounds of {arguments.steps} steps; "
        f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    print(
        "| who | ranks | median step ms | of the calmest round | fastest | between rounds | to the first step s | around it ms | to the first instruction ms | PSS MiB | RSS MiB |"
    )
    print("|---" * 11 + "|")
    for side in sides:
        medians = [statistics.median(steps) for steps in side.rounds]
        pss, rss = side.memory
        around, begun = (f"{1000 * min(times):.0f}" if times else "" for times in (side.around, side.begun))
        print(
            f"| {side.name} | {side.world} | {statistics.median(medians):.1f} | {side.calmest():.1f} | {min(min(steps) for steps in side.rounds):.1f} | "
            f"{max(medians) - min(medians):.1f} | {min(side.first):.3f} | {around} | {begun} | {pss:.0f} | {rss:.0f} |"
        )
    named = {side.name: side for side in sides}
    for side in sides:
        if side.world > 1 and side.communication:
            collective, exposed = (statistics.median(column) for column in zip(*side.communication))
            print(f"{side.name}: {collective:.2f} ms in collectives per step, compute waited {exposed:.2f} ms: {max(0, 1 - exposed / collective):.0%} hidden")
        for peer in side.peers:
            if peer in named:
                print(f"{peer} / {side.name}: {named[peer].calmest() / side.calmest():.2f} (step), {named[peer].memory[0] / side.memory[0]:.2f} (PSS)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="small-llama")
    parser.add_argument("--sides", default="", help="names of the table, separated by semicolons; all if not given")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--folder", help="keeps models and profiles for the next run; of this build only")
    parser.add_argument("--half", action="store_true")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = arguments.folder or stack.enter_context(tempfile.TemporaryDirectory())
        run = Run(arguments, labs.Bench(folder))
        sides = run.sides()
        for number in range(arguments.rounds):
            for side in sides:
                labs.say(f"round {number + 1}: {side.name}")
                run.train(side)
        for side in sides:
            labs.say(f"memory: {side.name}")
            run.remember(side)
        report(arguments, sides)


if __name__ == "__main__":
    main()
