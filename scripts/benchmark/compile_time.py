"""How long `dcc compile` takes, and how much memory: Llama-3-70B for 32 ranks, ZeRO 3, unless told otherwise.

compile_time.py [--model FILE] [--world N] [--zero Z] [--rounds N]. Prints the median of every part over the rounds, the
peak resident set, and the time of a cache hit. Bounds for the default model: 5 s, 1 GB, and 0.5 s for a hit.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
DCC = os.path.join(ROOT, "build", "bin", "dcc")
BOUNDS = {"compile": 5.0, "hit": 0.5, "bytes": 1e9}


def compile_once(arguments, cache, plan):
    """(seconds, bytes at the peak, what compile says)"""
    command = [DCC, "compile", arguments.model, "--world", str(arguments.world), "--zero", str(arguments.zero), "--json", "-o", plan]
    start = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "DCC_CACHE_DIR": cache}) as process:
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"exit {process.returncode}: {' '.join(command)}")
    return time.monotonic() - start, usage.ru_maxrss * 1024, json.loads(said)


def verdict(value, bound):
    return "within" if value <= bound else "ABOVE"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=os.path.join(ROOT, "tests", "data", "llama_70b_cuda.pt2"))
    parser.add_argument("--world", type=int, default=32)
    parser.add_argument("--zero", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    misses, hits = [], []
    with tempfile.TemporaryDirectory(prefix="dcc-compile-time-") as folder:
        plan = os.path.join(folder, "plan.dcp")
        for i in range(arguments.rounds):
            cache = os.path.join(folder, f"cache{i}")
            misses.append(compile_once(arguments, cache, plan))
            hits.append(compile_once(arguments, cache, plan))
    if any(said["cache"] != "hit" for _, _, said in hits):
        sys.exit("a second compilation did not hit the cache")
    compile_s, hit_s = (statistics.median(run[0] for run in runs) for runs in (misses, hits))
    peak = max(run[1] for run in misses)
    print(f"{os.path.basename(arguments.model)}, world {arguments.world}, zero {arguments.zero}; medians of {arguments.rounds}")
    print(f"compile      {compile_s:8.3f} s   {verdict(compile_s, BOUNDS['compile'])} {BOUNDS['compile']} s")
    for part in misses[0][2]["compile_ms"]:
        median = statistics.median(said["compile_ms"][part] for _, _, said in misses)
        print(f"  {part:18} {median / 1000:8.3f} s")
    print(f"peak memory  {peak / 1e6:8.1f} MB  {verdict(peak, BOUNDS['bytes'])} {BOUNDS['bytes'] / 1e6:.0f} MB")
    print(f"cache hit    {hit_s:8.3f} s   {verdict(hit_s, BOUNDS['hit'])} {BOUNDS['hit']} s")


if __name__ == "__main__":
    main()
