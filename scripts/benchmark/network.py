"""Training over shaped links: dcrun beside PyTorch DDP and FSDP2 on the hosts of a network lab (root), alternating in one run.

network.py [--world N] [--rate RATE] [--rounds N] [--steps N] [--rows a,b,c,d,chains] [--model M|small-llama] [--keep FOLDER]

M is a Llama of 8 x 512 with 31.6 M parameters, 2 x 256 tokens per rank, float32. Kernels and links are profiled on the lab, plans
compiled from that profile, all by --chain auto unless a chain is named. Rows: a, memory too small to keep gathered parameters, beside
FSDP2 that reshards; b, memory for one copy of the parameters, beside FSDP2 that keeps them; c, no limit, beside DDP; d, the same with
4 micro-batches, beside DDP and two ranks that compute without a link; chains, our zero3 and fsdp. Clipped, and not clipped (a, b, c).
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BIN = os.path.join(ROOT, "build", "bin")
LAB = os.path.join(ROOT, "scripts", "netlab.sh")
LAB_NAME = {"NETLAB": "bench", "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 8,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 8192, "max_position_embeddings": 256, "tie_word_embeddings": False,
    "use_cache": False,
}
OPTIMIZER = {"kind": "adamw", "lr": 1e-3}


def run(command, **environment):
    result = subprocess.run(command, capture_output=True, text=True, timeout=1800, env={**os.environ, **environment})
    if result.returncode:
        sys.exit(f"exit {result.returncode}: {' '.join(command)}\n{result.stderr[-2000:]}")
    return result


def on_hosts(*command):
    return run([LAB, "run", *command], **LAB_NAME)


class Bench:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.model = self.path("model.pt2")
        self.shape = ["--preset", "small-llama"]
        if arguments.model == "M":
            with open(self.path("config.json"), "w") as file:
                json.dump(CONFIG, file)
            self.shape = ["--hf-config", self.path("config.json"), "--batch", "2", "--seq", "256"]
        run([sys.executable, os.path.join(ROOT, "scripts", "export.py"), *self.shape, "--no-check", "-o", self.model])
        for name, config in (("clip", {"optimizer": OPTIMIZER, "clip_norm": 1.0}), ("free", {"optimizer": OPTIMIZER})):
            with open(self.path(name + ".json"), "w") as file:
                json.dump(config, file)
        on_hosts(os.path.join(BIN, "dcc"), "profile", self.model, "--comm", "tcp", "-o", self.path("prof.json"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def compile(self, name, *options, world=None):
        """(path of the plan, its report)"""
        plan = self.path(re.sub(r"\W+", "-", name) + ".dcp")
        said = run([os.path.join(BIN, "dcc"), "compile", self.model, "--profile", self.path("prof.json"), "--no-cache", "--json",
                    "--world", str(world or self.arguments.world), *options, "-o", plan])
        return plan, json.loads(said.stdout)

    def train(self, plan, *launcher):
        """Measured steps of rank 0, and the bytes that host 0 sent per step."""
        metrics, steps = self.path("metrics.jsonl"), self.arguments.warmup + self.arguments.steps
        result = run([*launcher, os.path.join(BIN, "dcrun"), plan, "--weights", self.model, "--data", "synthetic:1", "--steps", str(steps),
                      "--metrics", metrics], **LAB_NAME)
        with open(metrics) as file:
            rows = [json.loads(line) for line in file][1:]
        sent = re.search(r"rank 0 sent (\d+) bytes", result.stderr)
        return rows[self.arguments.warmup :], int(sent.group(1)) / steps if sent else 0

    def peer(self, kind, *options):
        result = on_hosts(sys.executable, os.path.join(ROOT, "scripts", "benchmark", "peer.py"), *self.shape, "--kind", kind,
                          "--steps", str(self.arguments.steps), "--warmup", str(self.arguments.warmup), *options)
        times = json.loads([line for line in result.stdout.splitlines() if line.startswith("{")][-1])["step_ms"]
        sent = re.search(r"rank 0 sent (\d+) bytes", result.stderr)
        return times, int(sent.group(1)) / (self.arguments.warmup + self.arguments.steps)

    def alone(self, plan):
        """As many single ranks at once as there are hosts, with nothing to send."""
        command = [os.path.join(BIN, "dcrun"), plan, "--weights", self.model, "--data", "synthetic:1", "--steps",
                   str(self.arguments.warmup + self.arguments.steps), "--metrics"]
        jobs = [subprocess.Popen([*command, self.path(f"alone{rank}.jsonl")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for rank in range(self.arguments.world)]
        for job in jobs:
            job.wait(timeout=900)
        with open(self.path("alone0.jsonl")) as file:
            return [json.loads(line)["step_ms"] for line in file.readlines()[1 + self.arguments.warmup :]]


def rows_of(bench):
    """(row, ours: plan and report, peer: kind and options)"""
    wanted = bench.arguments.rows.split(",")
    clip, free = ("--config", bench.path("clip.json")), ("--config", bench.path("free.json"))
    need = bench.compile("need", *clip, "--chain", "zero3")[1]
    tight = need["memory"]["arena_bytes"]["device"] * 102 // 100
    copy = need["memory"]["arena_bytes"]["device"] + need["parameters"]["bytes"]
    for name, config, peer_options in (("clipped", clip, ()), ("not clipped", free, ("--no-clip",))):
        if "a" in wanted:
            yield f"a {name}", bench.compile("a " + name, *config, "--memory", str(tight)), ("fsdp", peer_options)
        if "b" in wanted:
            yield f"b {name}", bench.compile("b " + name, *config, "--memory", str(copy)), ("fsdp-keep", peer_options)
        if "c" in wanted:
            yield f"c {name}", bench.compile("c " + name, *config), ("ddp", peer_options)
    if "d" in wanted:
        plan = bench.compile("d", *clip, "--grad-accum", "4", "--reduction-order", "auto")
        yield "d 4 micro-batches", plan, ("ddp", ("--accumulation", "4"))
    if "chains" in wanted:
        for chain in ("zero3", "fsdp"):
            yield f"chain {chain}", bench.compile(chain, *clip, "--chain", chain), None


def table(bench, rows, times, details, alone):
    print(f"{bench.arguments.model}, {bench.arguments.world} hosts at {bench.arguments.rate}, {bench.arguments.rounds} alternating rounds of "
          f"{bench.arguments.steps} steps; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("| row | who | median step ms | calmest round | spread of rounds | predicted | % of B1 | MB sent per step (foretold) | wire hidden |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row, (_, said), peer in rows:
        for who in ("ours", peer[0] if peer else None):
            if who is None:
                continue
            medians = [statistics.median(r) for r in times[row, who]]
            extra = " |" * 4
            if who == "ours":
                steps, sent = details[row]
                collective, exposed = (statistics.median(s[key] for s in steps) for key in ("collective_ms", "exposed_ms"))
                foretold = sum(said["wire_bytes"].values())
                predicted = said["prediction"]["step_ns"]
                extra = (f" {predicted / 1e6:.0f} | {100 * said['prediction']['bounds_ns']['b1'] / predicted:.0f} | "
                         f"{sent / 1e6:.1f} ({foretold / 1e6:.1f}) | {max(0, 1 - exposed / collective):.0%} |")
            else:
                extra = f" | | {details[row, who] / 1e6:.1f} | |"
            print(f"| {row} | {who} | {statistics.median(medians):.0f} | {min(medians):.0f} | {max(medians) - min(medians):.0f} |{extra}")
        if peer:
            ours, theirs = (min(statistics.median(r) for r in times[row, who]) for who in ("ours", peer[0]))
            print(f"| {row} | | {theirs / ours:.2f}x of {peer[0]} (calmest rounds) | | | | | | |")
    if alone:
        print(f"\ncompute alone, {bench.arguments.world} ranks at once, 4 micro-batches: {min(map(statistics.median, alone)):.0f} ms (calmest round)")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--rows", default="a,b,c,d,chains")
    parser.add_argument("--model", choices=("M", "small-llama"), default="M")
    arguments = parser.parse_args()
    run([LAB, "up", str(arguments.world), arguments.rate], **LAB_NAME)
    try:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(arguments, folder)
            rows = list(rows_of(bench))
            single = bench.compile("alone", "--config", bench.path("clip.json"), "--grad-accum", "4", world=1)[0] if "d" in arguments.rows.split(",") else None
            times, details, alone = {}, {}, []
            for _ in range(arguments.rounds):
                for row, (plan, _), peer in rows:
                    steps, sent = bench.train(plan, LAB, "run")
                    times.setdefault((row, "ours"), []).append([s["step_ms"] for s in steps])
                    details[row] = (steps, sent)
                    if peer:
                        measured, sent = bench.peer(peer[0], *peer[1])
                        times.setdefault((row, peer[0]), []).append(measured)
                        details[row, peer[0]] = sent
                if single:
                    alone.append(bench.alone(single))
            table(bench, rows, times, details, alone)
    finally:
        run([LAB, "down"], **LAB_NAME)


if __name__ == "__main__":
    main()
