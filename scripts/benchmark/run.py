"""dcrun next to PyTorch on small-llama, alternating in one run: medians with spread.

run.py [--rounds N] [--steps N] [--warmup N] [--world N]. One thread per rank. Prints a table, and for each pair the ratio of our step time to
PyTorch's, each from its calmest round (the one with the least median).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BIN = os.path.join(ROOT, "build", "bin")
PAIRS = (("dcrun zero 0", "ddp"), ("dcrun zero 3", "fsdp"))


def run(command, **environment):
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, env={**os.environ, **environment})
    if result.returncode:
        sys.exit(f"exit {result.returncode}: {' '.join(command)}\n{result.stderr[-2000:]}")
    return result.stdout


def peer(kind, arguments):
    out = run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(arguments.world),
            os.path.join(ROOT, "scripts", "benchmark", "peer.py"),
            "--kind",
            kind,
            "--steps",
            str(arguments.steps),
            "--warmup",
            str(arguments.warmup),
        ],
        OMP_NUM_THREADS="1",
    )
    return json.loads(out.strip().splitlines()[-1])["step_ms"]


def ours(plan, model, arguments, folder):
    metrics = os.path.join(folder, "metrics.jsonl")
    run(
        [
            os.path.join(BIN, "dcrun"),
            "-n",
            str(arguments.world),
            plan,
            "--weights",
            model,
            "--data",
            "synthetic:1",
            "--steps",
            str(arguments.warmup + arguments.steps),
            "--metrics",
            metrics,
            "--overwrite",
        ]
    )
    with open(metrics) as file:
        rows = [json.loads(line) for line in file][1:]
    rows = rows[arguments.warmup :]
    return [row["step_ms"] for row in rows], [(row["collective_ms"], row["exposed_ms"]) for row in rows]


def prepare(arguments, folder):
    model, config = os.path.join(folder, "model.pt2"), os.path.join(folder, "train.json")
    run([sys.executable, os.path.join(ROOT, "scripts", "export.py"), "--preset", "small-llama", "--no-check", "-o", model])
    with open(config, "w") as file:
        json.dump({"optimizer": {"kind": "adamw", "lr": 1e-3}, "clip_norm": 1.0}, file)
    profile = os.path.join(folder, "prof.json")
    run([os.path.join(BIN, "dcc"), "profile", model, "-n", str(arguments.world), "-o", profile])
    plans = {}
    for zero in (0, 3):
        plans[zero] = os.path.join(folder, f"zero{zero}.dcp")
        run(
            [
                os.path.join(BIN, "dcc"),
                "compile",
                model,
                "--profile",
                profile,
                "--world",
                str(arguments.world),
                "--zero",
                str(zero),
                "--config",
                config,
                "--no-cache",
                "-o",
                plans[zero],
            ]
        )
    return model, plans


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--world", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, plans = prepare(arguments, folder)
        times = {name: [] for pair in PAIRS for name in pair}
        communication = {mine: [] for mine, _ in PAIRS}
        for _ in range(arguments.rounds):
            for mine, theirs in PAIRS:
                steps, collectives = ours(plans[int(mine[-1])], model, arguments, folder)
                times[mine].append(steps)
                communication[mine] += collectives
                times[theirs].append(peer(theirs, arguments))
    print(
        f"small-llama, {arguments.world} ranks, 1 thread each, {arguments.rounds} alternating rounds of {arguments.steps} steps; "
        f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    print("| who | median step ms | of the calmest round | fastest | spread between rounds |\n|---|---|---|---|---|")
    for name, rounds in times.items():
        medians = [statistics.median(r) for r in rounds]
        print(f"| {name} | {statistics.median(medians):.1f} | {min(medians):.1f} | {min(min(r) for r in rounds):.1f} | {max(medians) - min(medians):.1f} |")
    for mine, rows in communication.items():
        collective, exposed = (statistics.median(column) for column in zip(*rows))
        print(f"{mine}: {collective:.2f} ms in collectives per step, compute waited {exposed:.2f} ms: {max(0, 1 - exposed / collective):.0%} hidden")
    for mine, theirs in PAIRS:
        a, b = (min(statistics.median(r) for r in times[name]) for name in (mine, theirs))
        print(f"{mine} / {theirs}: {a / b:.3f} (calmest rounds)")


if __name__ == "__main__":
    main()
