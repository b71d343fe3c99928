"""How `dcc compile` grows with the graph: a table for three Llamas and one core.

compile_time.py [--layers N] [--rounds N] [--core C]. Compiles Llama-3-8B and 70B and a 70B with so many layers (default 990,
200 000 nodes; made by deeper.py) for 32 H100 by examples/profiles/h100x32.json: the first valid plan (`--chain zero3`, no
budget) and the search (`--chain auto`, with a budget that makes it recompute). Seconds are the processor time of the whole command
in the fastest round; the next columns divide it by the nodes, and by the nodes and the schedules that the search tried. The parts
are wall time, so they say little on a busy machine. At the end come a cache hit, the simulator's events per second, and the exchanges
per second that `keep-jointly` decides by, each with its time and peak, 1 in 100 compared with the step in which it is carried out.
Limits for 70B: 2 s for the first plan, 10 s for the search, 0.5 s for the hit, 5000 exchanges a second, none of those compared other.
"""

import argparse
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import zipfile

from deeper import deeper

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BIN = os.path.join(ROOT, "build", "bin")
DATA = os.path.join(ROOT, "tests", "data")
PROFILE = os.path.join(ROOT, "examples", "profiles", "h100x32.json")
LLAMA_70B = os.path.join(DATA, "llama_70b_cuda.pt2")
GIB_PER_LAYER_OF_70B = 0.9
BOUNDS = {"first": 2.0, "auto": 10.0, "hit": 0.5}
LEAST_EXCHANGES = 5000  # a second


def elsewhere(function, *arguments):
    """Calls `function` in a new process: the memory of this one would count as that of the processes it starts."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def nodes_of(model):
    with zipfile.ZipFile(model) as archive:
        file = next(name for name in archive.namelist() if name.endswith("models/model.json"))
        return len(json.loads(archive.read(file))["graph_module"]["graph"]["nodes"])


def timed(core, command, environment=None):
    """(processor seconds, bytes at the peak, stdout)"""
    pinned = ["taskset", "-c", str(core), *command]
    with subprocess.Popen(pinned, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **(environment or {})}) as process:
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"exit {process.returncode}: {' '.join(command)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, said


def compile_command(model, plan, *options):
    return [os.path.join(BIN, "dcc"), "compile", model, "--world", "32", "--profile", PROFILE, "--json", "-o", plan, *options]


def measure(arguments, model, plan, *options):
    """The round with the least processor time: (seconds, bytes, what compile says)"""
    runs = []
    for _ in range(arguments.rounds):
        if os.path.exists(plan):
            os.remove(plan)  # else it is compared with the new one
        runs.append(timed(arguments.core, compile_command(model, plan, "--no-cache", *options)))
    seconds, peak, said = min(runs)
    return seconds, peak, json.loads(said)


def print_row(name, nodes, what, seconds, peak, said):
    parts = "  ".join(f"{part} {ms / 1000:.2f}" for part, ms in said["compile_ms"].items() if ms >= 5)
    search = [remark["numbers"]["simulated"] for remark in said["remarks"] if remark["code"] == "chain-chosen"]
    schedules = search[0] if search else 1
    per_node = 1e6 * seconds / nodes
    print(f"{name:12} {nodes:8} {what:7} {seconds:9.2f} {per_node:12.1f} {schedules:9} {per_node / schedules:12.1f} {peak / 1e6:9.0f}   {parts}", flush=True)


def print_bound(what, seconds, bound):
    print(f"{what:40} {seconds:8.2f} s   {'within' if seconds <= bound else 'ABOVE'} {bound} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=990, help="of the generated graph; 0: none")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--core", type=int, default=0)
    arguments = parser.parse_args()
    found = {}
    print(
        f"{'graph':12} {'nodes':>8} {'chain':7} {'CPU s':>9} {'us per node':>12} {'schedules':>9} {'and schedule':>12} {'peak MB':>9}   parts, s by the clock"
    )
    with tempfile.TemporaryDirectory(prefix="dcc-compile-time-") as folder:
        plan = os.path.join(folder, "plan.dcp")
        graphs = [("llama 8B", os.path.join(DATA, "llama_8b_cuda.pt2"), 16), ("llama 70B", LLAMA_70B, 72)]
        if arguments.layers:
            deep = os.path.join(folder, "deep.pt2")
            elsewhere(deeper, LLAMA_70B, deep, arguments.layers)
            graphs.append((f"{arguments.layers} layers", deep, round(GIB_PER_LAYER_OF_70B * arguments.layers)))
        for name, model, gib in graphs:
            nodes = elsewhere(nodes_of, model)
            for what, options in (("first", ("--chain", "zero3")), ("auto", ("--memory", f"{gib}GiB"))):
                seconds, peak, said = measure(arguments, model, plan, *options)
                print_row(name, nodes, what, seconds, peak, said)
                found[name, what] = seconds
        cache = {"DCC_CACHE_DIR": os.path.join(folder, "cache")}
        command = compile_command(LLAMA_70B, plan, "--chain", "zero3")
        timed(arguments.core, command, cache)
        os.remove(plan)
        hit, _, said = timed(arguments.core, command, cache)
        if json.loads(said)["cache"] != "hit":
            sys.exit("a second compilation did not hit the cache")
    print()
    print_bound("70B, first valid plan", found["llama 70B", "first"], BOUNDS["first"])
    print_bound("70B, search", found["llama 70B", "auto"], BOUNDS["auto"])
    print_bound("70B, cache hit", hit, BOUNDS["hit"])
    print("\nthe simulator, 70B:", flush=True)
    said = subprocess.run(["taskset", "-c", str(arguments.core), os.path.join(BIN, "simulate_benchmark")], check=True, stdout=subprocess.PIPE, text=True).stdout
    print(said)
    rate, other = re.search(r"an exchange .* (\d+) a second, .*; (\d+) of \d+ compared differ", said).groups()
    enough = int(rate) >= LEAST_EXCHANGES and other == "0"
    print(f"{'70B, exchanges':40} {rate:>8} /s  {'within' if enough else 'BELOW'} {LEAST_EXCHANGES} /s, {other} compared differ")


if __name__ == "__main__":
    main()
