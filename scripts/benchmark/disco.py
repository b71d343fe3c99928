"""DisCo (arXiv 2209.12769) by its own simulator, next to the paper's figures.

build/venv/bin/python scripts/benchmark/disco.py [--models NAME,...] [--clusters A,B] [--fusible in-plans|any] [--constants]

Each model of the paper is exported without weights, in f32, at the batch of its preset (the paper gives none for all), and `disco_table` (cmake --build build/release
--target disco_table) plays ZeRO 0's forward and backward phase with all-reduce under each rule, on the two clusters as profiles of published rates (examples/profiles). Columns:

  no, op, ar, both, ddp   no-fusion, op-fusion, allreduce-fusion, default-fusion, ddp: ms
  disco                   DisCo's search with its constants: ms, and the seconds of one core that it took
  of FO                   full overlap of what it found (compute or communication alone, the longer), as a part of its time; the paper's from its speed-ups
  of ends                 the same of with_ends (src/fusion/bounds.h): full overlap, and what must come before the first bucket and after each kernel; of joint
  gain                    (T_min - T) / T against the best of the five; the paper's
  joint                   ours (src/fusion/joint.h): a descent from the search and three shorter ones, from greedy fusion and from none, each fusion judged with the buckets that are
                          best for it: ms, the seconds of one core that all of this took, of FO, gain
  other order             with_ends as a part of the time of the same kernels and buckets (of joint), if the device could also run all that one bucket needs before it turns to the next
  -fuse -copies -merges   the search without one of its moves: ms

--fusible in-plans (default): what a fused kernel of a plan runs; any: every operator of the model, as the paper fuses, which nothing here can run.
--constants: the paper's tables of alpha and beta instead.
"""

import argparse
import json
import math
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLE = os.path.join(ROOT, "build", "release", "bin", "disco_table")
FOLDER = os.path.join(ROOT, "build", "disco")
MODELS = {"vgg19": "VGG19", "resnet50": "ResNet50", "transformer": "Transformer", "rnnlm": "RNNLM", "bert-base": "BERT", "reformer": "Reformer"}
CLUSTERS = {"A": ("gtx1080ti-x12", 12), "B": ("t4-x64", 64)}
# Speed-up of DisCo and of full overlap over the best baseline, in per cent.
PAPER = {
    "A": {
        "vgg19": (8.6, 18.9),
        "resnet50": (12.5, 28.5),
        "transformer": (26.7, 34.7),
        "rnnlm": (5.1, 10.9),
        "bert-base": (18.5, 27.6),
        "reformer": (13.4, 25.4),
    },
    "B": {
        "vgg19": (10.1, 12.5),
        "resnet50": (9.6, 16.8),
        "transformer": (20.6, 25.9),
        "rnnlm": (8.6, 12.3),
        "bert-base": (13.7, 19.5),
        "reformer": (14.5, 21.8),
    },
}
BASELINES = ("no-fusion", "op-fusion", "allreduce-fusion", "default-fusion", "ddp")
WITHOUT = ("disco-no-fuse", "disco-no-copies", "disco-no-merges")


def exported(model):
    path = os.path.join(FOLDER, model + ".pt2")
    if not os.path.exists(path):
        os.makedirs(FOLDER, exist_ok=True)
        export = [sys.executable, os.path.join(ROOT, "scripts", "export.py"), "--preset", model, "--headless", "--dtype", "float32", "--no-check", "-o", path]
        subprocess.run(export, check=True, stderr=subprocess.DEVNULL)
    return path


def played(model, cluster, *options):
    """{(fusible, rule): row}"""
    profile, world = CLUSTERS[cluster]
    command = [TABLE, exported(model), os.path.join(ROOT, "examples", "profiles", profile + ".json"), str(world), *options]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return {(row["fusible"], row["rule"]): row for row in map(json.loads, lines)}


def of_ends(row, also="time_ns"):
    return row["with_ends_ns"] / min(row["time_ns"], row[also])


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def line_of(model, cluster, rows, fusible):
    times = {rule: rows[fusible, rule]["time_ns"] / 1e6 for rule in (*BASELINES, "disco", *WITHOUT)}
    found = rows[fusible, "disco"]
    best = min(times[rule] for rule in BASELINES)
    disco, full = PAPER[cluster][model]
    cells = [f"{times[rule]:8.2f}" for rule in BASELINES]
    cells += [f"{times['disco']:8.2f}", f"{found['seconds']:6.1f} s", f"{100 * found['full_overlap_ns'] / found['time_ns']:5.1f} % of FO"]
    cells += [
        f"(paper {100 * (1 + disco / 100) / (1 + full / 100):4.1f})",
        f"gain {100 * (best - times['disco']) / times['disco']:5.1f} % (paper {disco:4.1f})",
    ]
    joint = rows[fusible, "joint"]
    joint_ms = joint["time_ns"] / 1e6
    cells += [
        f"joint {joint_ms:8.2f} {joint['seconds']:5.1f} s {100 * joint['full_overlap_ns'] / joint['time_ns']:5.1f} % of FO of ends {100 * of_ends(joint):5.1f} % (other order {100 * of_ends(joint, 'bucket_by_bucket_ns'):5.1f} %) gain {100 * (best - joint_ms) / joint_ms:5.1f} %"
    ]
    cells += [f"{rule.removeprefix('disco-no')} {times[rule]:.2f}" for rule in WITHOUT]
    return " ".join(cells)


def constants_of(rows, fusible):
    return "  ".join(f"{rule}: {row['time_ns'] / 1e6:.2f} ms / {row['seconds']:.1f} s" for (of, rule), row in rows.items() if of == fusible)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--clusters", default="A,B")
    parser.add_argument("--fusible", choices=("in-plans", "any"), default="in-plans")
    parser.add_argument("--constants", action="store_true")
    arguments = parser.parse_args()
    reached = {"disco": [], "joint": []}
    for cluster in arguments.clusters.split(","):
        print(f"cluster {cluster}: {CLUSTERS[cluster][0]}, fusible: {arguments.fusible}")
        if not arguments.constants:
            print(f"{'':12} {'no':>8} {'op':>8} {'ar':>8} {'both':>8} {'ddp':>8} {'disco':>8}")
        for model in arguments.models.split(","):
            rows = played(model, cluster, arguments.fusible, *(["alpha-beta"] if arguments.constants else []))
            text = constants_of(rows, arguments.fusible) if arguments.constants else line_of(model, cluster, rows, arguments.fusible)
            print(f"{MODELS[model]:12} {text}", flush=True)
            if not arguments.constants:
                for rule, values in reached.items():
                    values.append(of_ends(rows[arguments.fusible, rule]))
    for rule, values in reached.items():
        if values:
            print(f"{rule}: geometric mean {100 * geometric_mean(values):.1f} % of with_ends, least {100 * min(values):.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
