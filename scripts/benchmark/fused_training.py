"""Training with fused operators and merged reductions: DisCo's search, what it is compared with and ours, next to PyTorch, alternating (root).

fused_training.py [--models LIST] [--links LIST] [--chains LIST] [--peers LIST] [--fusions N] [--rounds N] [--steps N] [--warmup N] [--minutes N]
                  [--keep FOLDER]

Two ranks, ZeRO 0, float32, no clipping, one thread a rank. A link is a rate of tc's words between two hosts (network namespaces on this machine), or `loopback`:
both ranks on one host. Models are M of lab.py, BERT-base of two layers (4 x 128 tokens), ResNet50 (4 pictures of 224 x 224) and Transformer base (4 x 128 tokens).
Kernels, fused kernels (--fusions, drawn from the model's graph) and links are profiled on the lab; plans are compiled from that profile.

`ddp`, `default-fusion` and `disco` are the chains of that name (src/search/README.md), `fuse-jointly` our search of the same decisions, `auto` the default:
all decisions, without a limit of memory. Peers: `ddp` is DistributedDataParallel, `ddp-compiled` the same under torch.compile; both over Gloo.

Per model and link a row for each: the median step of all rounds and of the calmest one, the range of the rounds' medians, the prediction and its error, the
predicted share of compute in the step, and how often its step goes into that of default-fusion (calmest rounds). What fails is said and left out; after --minutes
nothing new is started. --keep keeps models and profiles for the next run; of this build only.
"""

import argparse
import dataclasses
import os
import statistics
import subprocess
import tempfile
import time

import lab as labs
from lab import say

BASE = "default-fusion"


@dataclasses.dataclass
class Side:
    """A chain of ours or a peer, and the medians of its rounds in ms."""

    name: str
    plan: str = ""
    prediction: dict = None
    medians: list = dataclasses.field(default_factory=list)

    def calmest(self):
        return min(self.medians)


class Bench:
    def __init__(self, lab, model, arguments):
        self.lab, self.model, self.arguments = lab, model, arguments
        self.deadline = arguments.deadline

    def sides(self):
        profile = self.lab.profile(self.model, *(["--fusions", str(self.arguments.fusions)] if self.arguments.fusions else []))
        found = []
        for chain in self.arguments.chains.split(","):
            name = f"{self.model}-{self.lab.rate}-{chain}"
            plan, report = self.lab.compile(self.model, profile, "--chain", chain, name=name, clipped=False)
            found.append(Side(chain, plan, report["prediction"]))
        return found + [Side(f"PyTorch {kind}") for kind in self.arguments.peers.split(",") if kind]

    def train(self, side):
        if side.plan:
            steps, _ = self.lab.train(side.plan, self.model, self.arguments.warmup, self.arguments.steps)
            return [step["step_ms"] for step in steps]
        options = ["--kind", side.name.split()[1], "--no-clip", "--steps", str(self.arguments.steps), "--warmup", str(self.arguments.warmup)]
        return self.lab.peer(self.model, *options)["step_ms"]

    def run(self):
        sides = self.sides()
        for number in range(self.arguments.rounds):
            for side in sides:
                if time.monotonic() > self.deadline:
                    say("the time is up")
                    return sides
                try:
                    side.medians.append(statistics.median(self.train(side)))
                    say(f"{self.model}, {self.lab.rate}, round {number + 1}: {side.name} {side.medians[-1]:.0f} ms")
                except (labs.Failed, OSError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
                    say(f"{self.model}, {self.lab.rate}, round {number + 1}: {side.name} FAILED: {error}")
        return sides


def print_rows(model, link, sides):
    base = next((side.calmest() for side in sides if side.name == BASE and side.medians), None)
    for side in sides:
        if not side.medians:
            print(f"| {model} | {link} | {side.name} | not measured | | | | | | |")
            continue
        predicted = error = share = ""
        if side.prediction:
            step = side.prediction["step_ns"] / 1e6
            predicted, error = f"{step:.0f}", f"{step / side.calmest() - 1:+.1%}"
            share = f"{side.prediction['compute_ns'] / side.prediction['step_ns']:.0%}"
        gain = f"{base / side.calmest():.3f}" if base else ""
        spread = f"{min(side.medians):.0f} to {max(side.medians):.0f}"
        print(
            f"| {model} | {link} | {side.name} | {statistics.median(side.medians):.0f} | {side.calmest():.0f} | {spread} | {predicted} | {error} | {share} | {gain} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="M,bert,resnet50,transformer")
    parser.add_argument("--links", default="1gbit,200mbit,loopback")
    parser.add_argument("--chains", default="ddp,default-fusion,disco,fuse-jointly,auto")
    parser.add_argument("--peers", default="ddp,ddp-compiled")
    parser.add_argument("--fusions", type=int, default=250)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--keep")
    arguments = parser.parse_args()
    arguments.deadline = time.monotonic() + 60 * arguments.minutes
    errors = []
    with tempfile.TemporaryDirectory() as folder:
        print("| model | link | who | median step ms | calmest round | rounds | predicted | error | compute | of default-fusion |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        for link in arguments.links.split(","):
            hosts, rate = (1, "10gbit") if link == "loopback" else (2, link)
            with labs.Lab(arguments.keep or folder, hosts, rate, "fused", 2 // hosts) as lab:
                for model in arguments.models.split(","):
                    if time.monotonic() > arguments.deadline:
                        continue
                    sides = Bench(lab, model, arguments).run()
                    print_rows(model, link, sides)
                    errors += [side.prediction["step_ns"] / 1e6 / side.calmest() - 1 for side in sides if side.prediction and side.medians]
    if errors:
        print(
            f"\n{len(errors)} plans: mean distance of prediction from the calmest round {statistics.mean(map(abs, errors)):.1%}, bias {statistics.median(errors):+.1%}"
        )
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
