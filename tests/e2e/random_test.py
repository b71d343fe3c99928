"""Random chains over random modules: no bug of ours, equal bits, near eager PyTorch (tests/random).

    build/venv/bin/python tests/e2e/random_test.py                       # a quarter of a minute, a fresh seed
    build/venv/bin/python tests/e2e/random_test.py --seed 7 --cases 2500 # that many cases of that seed
    DCC_SLOW_TESTS=1 build/venv/bin/python tests/e2e/random_test.py      # 2500 cases, a fresh seed

The seed is printed; with it everything is drawn again.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import unittest

import running

CASES = 2500


def sweep(seed, modules, module_seconds, limits):
    """The counts that random_chains prints last, and all it printed."""
    folder = os.path.dirname(running.fresh())
    make = [
        sys.executable,
        os.path.join(running.ROOT, "tests", "random", "modules.py"),
        folder,
        "--seed",
        str(seed),
        "--count",
        str(modules),
        "--seconds",
        str(module_seconds),
    ]
    print(f"\n  random modules and chains: seed {seed}; again: tests/random/modules.py FOLDER --seed {seed} --count {modules}", flush=True)
    made = subprocess.run(make, capture_output=True, text=True, timeout=3600)
    if made.returncode != 0:
        raise AssertionError(f"seed {seed}: a module was not exported\n{made.stdout[-3000:]}{made.stderr[-3000:]}")
    program = os.path.join(running.BIN, "random_chains")
    ran = subprocess.run([program, folder, "--seed", str(seed), *limits], capture_output=True, text=True, timeout=7200)
    last = (ran.stdout.strip().splitlines() or [""])[-1]
    if ran.returncode != 0:
        raise AssertionError(f"seed {seed}: exit {ran.returncode}\n{ran.stdout[-6000:]}{ran.stderr[-2000:]}")
    return json.loads(last)


class RandomChains(unittest.TestCase):
    def test_random_chains_over_random_modules(self):
        seed = time.time_ns() % 10**9
        counts = sweep(seed, 40, 600, ("--cases", str(CASES))) if running.SLOW else sweep(seed, 6, 10, ("--seconds", "15"))
        print("  " + json.dumps(counts))
        self.assertEqual(counts["failed"], 0)
        self.assertGreater(counts["bits_equal"], 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--cases", type=int, required=True)
    parser.add_argument("--modules", type=int, default=40)
    arguments = parser.parse_args()
    print(json.dumps(sweep(arguments.seed, arguments.modules, 3600, ("--cases", str(arguments.cases)))))


if __name__ == "__main__":
    main() if len(sys.argv) > 1 else unittest.main()
