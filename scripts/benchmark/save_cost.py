"""What --save-every costs: the same training with it and without, alternating; processor time and the clock, as a share of 50 steps.

save_cost.py [--model M|small-llama] [--rounds N] [--steps N] [--every K] [--world N] [--folder DIR]

Every side writes one checkpoint at the end, so a pair differs by the periodic ones, (steps - 1) // every of them. A save each 50 steps would need an hour for 2 %
to show in the noise; here saves come every few steps, and the cost of one is divided by 50 steps. Processor time is user and system of all ranks: other programs
on the machine change it less than they change the clock. A third run of one step gives what a start costs, so that a step's own cost is known. The memory
for the copy is taken once a run, and counts as cost of its saves. In the clock's figures are both what a save makes the steps wait and how far its writing slows
them down; a save that begins before the last one is on the disk waits for it, which with 50 steps between them it does not, so --every must leave the disk its time.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lab

PERIOD = 50  # steps between saves for which the share is given


def prepare(arguments):
    """(archive, plan)"""
    model = lab.Bench(arguments.folder).archive(arguments.model)
    config, plan = os.path.join(arguments.folder, "train.json"), os.path.join(arguments.folder, "plan.dcp")
    with open(config, "w") as file:
        json.dump({"optimizer": {"kind": "adamw", "lr": 1e-3}, "clip_norm": 1.0}, file)
    lab.run([os.path.join(lab.BIN, "dcc"), "compile", model, "--world", str(arguments.world), "--zero", "2", "--config", config, "--no-cache", "-o", plan])
    return model, plan


def train(arguments, model, plan, steps, every=None):
    """One run: (processor seconds, seconds on the clock, what one rank copies, bytes of a checkpoint)."""
    save, metrics = os.path.join(arguments.folder, "saved"), os.path.join(arguments.folder, "metrics.jsonl")
    shutil.rmtree(save, ignore_errors=True)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    lab.run(
        [
            os.path.join(lab.BIN, "dcrun"),
            "-n",
            str(arguments.world),
            plan,
            "--weights",
            model,
            "--data",
            "synthetic:1",
            "--steps",
            str(steps),
            "--save",
            save,
            "--metrics",
            metrics,
            "--overwrite",
            *(["--save-every", str(every), "--keep", "2"] if every else []),
        ]
    )
    clock, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(metrics) as file:
        header = json.loads(file.readline())
    newest = os.path.join(save, sorted(os.listdir(save))[-1])
    size = sum(entry.stat().st_size for entry in os.scandir(newest))
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, clock, header["save_bytes"], size


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=("M", "small-llama"), default="M")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--every", type=int, default=3)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--folder", help="keeps the model; a temporary one if not given")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        arguments.folder = arguments.folder or temporary
        report(arguments, *prepare(arguments))


def report(arguments, model, plan):
    saves = (arguments.steps - 1) // arguments.every
    rows = []
    for round_ in range(arguments.rounds):
        one = train(arguments, model, plan, 1)
        sides = {every: train(arguments, model, plan, arguments.steps, every) for every in ((None, arguments.every) if round_ % 2 else (arguments.every, None))}
        without, with_saves = sides[None], sides[arguments.every]
        step = [(without[i] - one[i]) / (arguments.steps - 1) for i in (0, 1)]
        cost = [(with_saves[i] - without[i]) / saves for i in (0, 1)]
        rows.append((step, cost, [c / (PERIOD * s) for c, s in zip(cost, step)]))
        lab.say(f"round {round_ + 1}: a step {step[0]:.3f} s of processor time, {step[1]:.3f} s; a save {cost[0]:.3f} s, {cost[1]:.3f} s")
        copied, size = with_saves[2:]
    print(
        f"{arguments.model}, {arguments.world} ranks, {arguments.rounds} alternating rounds of {arguments.steps} steps with and without {saves} saves; a checkpoint "
        f"has {size / 1e6:.1f} MB, a rank copies {copied / 1e6:.1f} MB; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    print("| | a step | a save | share at --save-every 50 | least and most of the rounds |\n|---|---|---|---|---|")
    for i, name in enumerate(("processor time", "clock")):
        step, cost = (statistics.median(row[j][i] for row in rows) for j in (0, 1))
        shares = [row[2][i] for row in rows]
        print(f"| {name} | {step:.3f} s | {cost:.3f} s | {statistics.median(shares):.2%} | {min(shares):.2%} to {max(shares):.2%} |")


if __name__ == "__main__":
    main()
