"""Fusion of operators decided together with the rest, next to fusion before the search and to none, over budgets of device memory.

build/venv/bin/python scripts/benchmark/fusion.py [--cases NAME,...] [--budgets N] [--effort N] [--check]

`fusion_table` (cmake --build build/release --target fusion_table) searches each case three times at each budget, from what ZeRO 3 needs with all activations made again to what it
needs with all kept; simulated, nothing is trained. ms of the step, as the search finds it

  off      with no operators fused
  on       with fuse-elementwise in every chain, as named chains have it
  joint    with the way of fusing one of its decisions
  of off, of on   joint as a part of these; below 1 is faster
  on of off       fusion before the rest of the search as a part of none
  CPU s    of one core, of on and joint

The last lines are the geometric means, and the gain that these are: time that is not needed, as a part of what it is next to. --check: exits 1 if joint is slower than off or on anywhere.
"""

import argparse
import json
import math
import os
import subprocess
import sys

import lab

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLE = os.path.join(ROOT, "build", "release", "bin", "fusion_table")
FOLDER = os.path.join(ROOT, "build", "fusion")
# Archive or preset, profile ("-": a generic CPU), ranks, offloading, budgets.
CASES = {
    "M": ("preset:M", "-", 2, "none", 5),
    "M-host": ("preset:M", "-", 2, "host", 5),
    "8b": ("tests/data/llama_8b_cuda.pt2", "examples/profiles/h200x8.json", 8, "none", 5),
    "8b-host": ("tests/data/llama_8b_cuda.pt2", "examples/profiles/h200x8.json", 8, "host", 5),
    "70b": ("tests/data/llama_70b_cuda.pt2", "examples/profiles/h100x32.json", 32, "none", 3),
    "70b-host": ("tests/data/llama_70b_cuda.pt2", "examples/profiles/h100x32.json", 32, "host", 3),
}
DEFAULT = "M,8b,70b"
TIE = 1.001  # what the search takes for equal


def archive(path):
    if not path.startswith("preset:"):
        return os.path.join(ROOT, path)
    return lab.Lab(FOLDER, 1, "1gbit", "fusion").archive(path[7:])


def played(case, budgets, effort):
    path, profile, world, offload, usual = CASES[case]
    command = [TABLE, archive(path), profile if profile == "-" else os.path.join(ROOT, profile), str(world), str(budgets or usual), offload]
    command += [str(effort)] if effort else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode:
        sys.exit(process.returncode)


def part(row, of, what="joint"):
    """nan where nothing fits in one of them."""
    time, other = row[what + "_ns"], row[of + "_ns"]
    return time / other if time and other else math.nan


def size(budget):
    return f"{budget / 2**30:.2f} GiB" if budget >= 2**30 else f"{budget / 2**20:.1f} MiB"


def ms(time):
    return f"{time / 1e6:.2f}" if time else "nothing fits"


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=DEFAULT, help=f"of {','.join(CASES)}")
    parser.add_argument("--budgets", type=int, help="of each case; 5 or 3 if absent")
    parser.add_argument("--effort", type=int)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    parts = {("joint", "off"): [], ("joint", "on"): [], ("on", "off"): []}
    lost = []
    print("| case | budget | off | on | joint | of off | of on | on of off | joint over bound | CPU s | fusion |\n|---" + "|---" * 10 + "|")
    for case in arguments.cases.split(","):
        for row in played(case, arguments.budgets, arguments.effort):
            for (what, of), values in parts.items():
                if not math.isnan(part(row, of, what)):
                    values.append(part(row, of, what))
            if not row["joint_ns"] and (row["off_ns"] or row["on_ns"]):
                lost.append(f"{case} {size(row['budget'])}")
            chosen = next((call for call in row["chain"].split(",") if call.startswith("fuse-elementwise")), "none")
            cells = [case, size(row["budget"]), *(ms(row[key + "_ns"]) for key in ("off", "on", "joint"))]
            cells += [
                f"{part(row, 'off'):.4f}",
                f"{part(row, 'on'):.4f}",
                f"{part(row, 'off', 'on'):.4f}",
                f"{row['joint_ns'] / max(1, row['joint_bound_ns']):.3f}",
            ]
            print(f"| {' | '.join(cells)} | {row['on_s']:.1f}, {row['joint_s']:.1f} | {chosen} |", flush=True)
    for (what, of), values in parts.items():
        if values:
            mean = geometric_mean(values)
            print(f"{what} of {of}: geometric mean {mean:.4f} (gain {1 - mean:.2%}), least {min(values):.4f}, most {max(values):.4f}, {len(values)} points")
    for where in lost:
        print(f"joint fits nothing where another does: {where}")
    slower = bool(lost) or any(max(parts["joint", of], default=0) > TIE for of in ("off", "on"))
    sys.exit(bool(arguments.check and slower))


if __name__ == "__main__":
    main()
