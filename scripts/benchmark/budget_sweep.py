"""Budgets from too small to more than enough: what `--chain auto` makes of each, next to the best named chain that fits.

budget_sweep.py MODEL.pt2 [--profile P] [--world N] [--config C] [--points N] [-- OPTIONS OF dcc compile]

Checks that every plan keeps to its budget, that the predicted step never gets longer by more than 2 % as the budget grows, that auto is
never slower than a named chain, and that what is too small is refused with exit 80. Exit 1 if one of these fails.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
DCC = os.path.join(ROOT, "build", "bin", "dcc")
FACTORS = (0.05, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2, 4)


class Sweep:
    def __init__(self, arguments, folder):
        self.plan = os.path.join(folder, "plan.dcp")
        self.base = [DCC, "compile", arguments.model, "--world", str(arguments.world), "--no-cache", "--json", "-o", self.plan, *arguments.options]
        for flag in ("profile", "config"):
            if getattr(arguments, flag):
                self.base += ["--" + flag, getattr(arguments, flag)]

    def compile(self, *options):
        """(predicted ms, device bytes), or the error where the budget is too small."""
        result = subprocess.run([*self.base, *options], capture_output=True, text=True)
        if result.returncode == 80:
            return result.stderr.strip()
        if result.returncode:
            sys.exit(result.stderr)
        said = json.loads(result.stdout)
        return said["prediction"]["step_ns"] / 1e6, said["memory"]["arena_bytes"]["device"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--profile")
    parser.add_argument("--config")
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("options", nargs="*", default=[])
    arguments = parser.parse_args()
    listed = subprocess.run([DCC, "passes"], capture_output=True, text=True, check=True).stdout.splitlines()
    chains = [line.split()[1] for line in listed if line.startswith("--chain")]
    if "--ranks-per-host" not in arguments.options:
        chains.remove("hsdp")  # it has to know which ranks share a host
    failures, gains, last = [], [], math.inf
    with tempfile.TemporaryDirectory() as folder:
        sweep = Sweep(arguments, folder)
        _, need = sweep.compile("--chain", "zero3")
        print("| budget, of zero3's need | MiB | auto ms | MiB used | best named chain that fits | ms | gain |\n|---|---|---|---|---|---|---|")
        for factor in FACTORS:
            budget = int(need * factor)
            auto = sweep.compile("--memory", str(budget))
            named = {}
            for chain in chains:
                found = sweep.compile("--chain", chain, "--memory", str(budget))
                if isinstance(found, tuple):
                    named[chain] = found[0]
            if isinstance(auto, str):
                print(f"| {factor} | {budget / 2**20:.1f} | exit 80: {auto.splitlines()[0][:90]}... | | {', '.join(named) or 'none'} | | |")
                if named or "needs" not in auto:
                    failures.append(f"{factor}: refused although {list(named)} fit, or without a reason")
                continue
            if auto[1] > budget:
                failures.append(f"{factor}: {auto[1]} bytes are more than the budget")
            if auto[0] > last * 1.02:
                failures.append(f"{factor}: {auto[0]:.1f} ms after {last:.1f} ms with less memory")
            last = min(last, auto[0])
            best = min(named, key=named.get, default=None)
            gain = named[best] / auto[0] if best else math.nan
            if best:
                gains.append(gain)
                if gain < 0.999:
                    failures.append(f"{factor}: {best} is faster")
            print(f"| {factor} | {budget / 2**20:.1f} | {auto[0]:.1f} | {auto[1] / 2**20:.1f} | {best} | {named.get(best, math.nan):.1f} | {gain:.3f} |")
    print(f"geometric mean gain over the best named chain: {math.exp(sum(map(math.log, gains)) / len(gains)):.3f}")
    for failure in failures:
        print("FAILED:", failure)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
