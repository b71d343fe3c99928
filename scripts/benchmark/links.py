"""The tcp communicator next to PyTorch's Gloo, alternating: shaped links of a network lab (root), and loopback.

links.py [--rounds N] [--world N] [--rate RATE] [--bin FOLDER]. Prints medians over rounds with their spread.
"""

import argparse
import collections
import json
import os
import socket
import statistics
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
LAB = os.path.join(ROOT, "scripts", "netlab.sh")
SIZES = ("65536", "1048576", "16777216")
GLOO = [sys.executable, os.path.join(ROOT, "scripts", "benchmark", "gloo_links.py"), *SIZES]


def rows_of(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def on_links(command):
    environment = {**os.environ, "NETLAB": "bench", "LINK": "eth0"}
    result = subprocess.run([LAB, "run", *command], env=environment, capture_output=True, text=True, timeout=900)
    return rows_of(result.stdout) or sys.exit(result.stderr)


def on_loopback(command, world):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(world):
        numbers = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": port}
        environment = {**os.environ, "LINK": "lo", "MASTER_ADDR": "127.0.0.1", **{k: str(v) for k, v in numbers.items()}}
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
    outputs = [rank.communicate(timeout=900)[0] for rank in ranks]
    return rows_of(outputs[0])


def spread(values):
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"))
    arguments = parser.parse_args()
    ours = [os.path.join(arguments.bin, "dcr_comm_links"), "tcp", *SIZES]
    lab = {**os.environ, "NETLAB": "bench"}
    subprocess.run([LAB, "up", str(arguments.world), arguments.rate], env=lab, check=True)
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    try:
        for _ in range(arguments.rounds):
            for where in (arguments.rate, "loopback"):
                for who, command in (("tcp", ours), ("gloo", GLOO)):
                    rows = on_links(command) if where == arguments.rate else on_loopback(command, arguments.world)
                    for row in rows:
                        place = found[where, row["collective"], row["bytes"]]
                        place[who].append(row["ms"])
                        place[who + " cpu"].append(row["cpu_ms"])
    finally:
        subprocess.run([LAB, "down"], env=lab, check=True)
    print(f"{arguments.world} ranks; ms: median of {arguments.rounds} rounds (least to most); load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("| link | collective | KiB | tcp | Gloo | tcp, CPU | Gloo, CPU |\n|---|---|---|---|---|---|---|")
    for (where, collective, size), place in found.items():
        cells = [spread(place[column]) for column in ("tcp", "gloo", "tcp cpu", "gloo cpu")]
        print(f"| {where} | {collective} | {size // 1024} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
