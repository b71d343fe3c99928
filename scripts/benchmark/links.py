"""Our collectives next to others', alternating: medians over rounds with their spread.

links.py [--rounds N] [--world N] [--rate RATE] [--bin FOLDER]: the tcp communicator next to PyTorch's Gloo, on shaped links of a network lab (root) and on
loopback. links.py --one-host [...]: the local communicator next to Open MPI and Gloo, all ranks on this host, 4 KiB to 64 MiB.
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
HOST_SIZES = tuple(str(4096 << shift) for shift in range(0, 15, 2))
GLOO = (sys.executable, os.path.join(ROOT, "scripts", "benchmark", "gloo_links.py"))


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


def under_mpirun(command, world):
    result = subprocess.run(
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(world), *command], capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL
    )
    return rows_of(result.stdout) or sys.exit(result.stderr)


def compare(title, sides, rounds):
    """Runs the sides in turns and prints a table. Each of `sides` gives for a name what runs it: a list of (place, rows)."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for _ in range(rounds):
        for who, run in sides.items():
            for where, rows in run():
                for row in rows:
                    place = found[where, row["collective"], row["bytes"]]
                    place[who].append(row["ms"])
                    place[who + ", CPU"].append(row["cpu_ms"])
    columns = [*sides, *(f"{who}, CPU" for who in sides)]
    print(f"{title}; ms: median of {rounds} rounds (least to most); load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"| link | collective | KiB | {' | '.join(columns)} |\n|{'---|' * (3 + len(columns))}")
    for (where, collective, size), place in found.items():
        print(f"| {where} | {collective} | {size // 1024} | {' | '.join(spread(place[column]) for column in columns)} |")


def one_host(arguments):
    ours = os.path.join(arguments.bin, "dcr_comm_links")
    mpi = os.path.join(arguments.bin, "dcr_comm_mpi_links")
    sides = {
        "local": lambda: [("host", under_mpirun([ours, "local", *HOST_SIZES], arguments.world))],
        "Open MPI": lambda: [("host", under_mpirun([mpi, *HOST_SIZES], arguments.world))],
        "Gloo": lambda: [("host", on_loopback([*GLOO, *HOST_SIZES], arguments.world))],
    }
    compare(f"{arguments.world} ranks on this host", sides, arguments.rounds)


def over_links(arguments):
    lab = {**os.environ, "NETLAB": "bench"}
    subprocess.run([LAB, "up", str(arguments.world), arguments.rate], env=lab, check=True)
    ours = [os.path.join(arguments.bin, "dcr_comm_links"), "tcp", *SIZES]

    def both(command):
        return lambda: [(arguments.rate, on_links(command)), ("loopback", on_loopback(command, arguments.world))]

    try:
        compare(f"{arguments.world} ranks", {"tcp": both(ours), "Gloo": both([*GLOO, *SIZES])}, arguments.rounds)
    finally:
        subprocess.run([LAB, "down"], env=lab, check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"))
    parser.add_argument("--one-host", action="store_true")
    arguments = parser.parse_args()
    (one_host if arguments.one_host else over_links)(arguments)


if __name__ == "__main__":
    main()
