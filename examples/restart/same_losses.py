"""same_losses.py ONE OTHER: exits 1 unless two metrics files have the same steps with the same losses and norms."""

import json
import sys


def rows(path):
    with open(path) as file:
        return [(row["step"], row["loss"], row["grad_norm"]) for row in map(json.loads, file) if "step" in row]


def main():
    one, other = map(rows, sys.argv[1:])
    different = [a[0] for a, b in zip(one, other) if a != b]
    if len(one) != len(other) or different:
        print(f"{len(one)} and {len(other)} steps; different: {different[:5]}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
