"""Training on hosts of several ranks each, over shaped links: flat ZeRO-3, shards inside hosts (hsdp) and the compiler's own choice, alternating.

The chain `flat` is `auto` that does not know which ranks share a host: the best that it finds without groups inside hosts.

hosts.py [--hosts N] [--ranks-per-host S] [--rate RATE] [--model M|small-llama] [--accumulation A] [--memory BYTES] [--chains LIST]
         [--rounds N] [--steps N] [--warmup N] [--keep FOLDER]

Kernels and links (all ranks, inside hosts, across hosts) are profiled on the lab (root), plans compiled from that profile. --memory limits all plans
alike; without it, to what the least of zero3 and hsdp takes, so that both fit. Per chain: the median step and the range of the rounds' medians, the
prediction, and the bytes that each host sent through its link per step, headers included.
"""

import argparse
import statistics
import sys
import tempfile

import lab as labs
from lab import say


def measured(lab, plan, arguments):
    """(median step in ms, [bytes that each host sent per step])"""
    steps, result = lab.train(plan, arguments.model, arguments.warmup, arguments.steps)
    count = arguments.warmup + arguments.steps
    return statistics.median(step["step_ms"] for step in steps), [sent / count for sent in lab.sent_by_hosts(result)]


def compiled(lab, profile, chain, arguments, memory):
    name, sharing = ("auto", 1) if chain == "flat" else (chain, arguments.ranks_per_host)
    options = ["--chain", name, "--grad-accum", str(arguments.accumulation), "--ranks-per-host", str(sharing)]
    return lab.compile(arguments.model, profile, *options, *(["--memory", str(memory)] if memory else []), name=f"{chain}-{memory}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks-per-host", type=int, default=2)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--model", default="small-llama", choices=labs.MODELS)
    parser.add_argument("--accumulation", type=int, default=4)
    parser.add_argument("--memory", help="of every plan, in bytes")
    parser.add_argument("--chains", default="zero3,flat,hsdp,auto")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--keep")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, labs.Lab(arguments.keep or folder, arguments.hosts, arguments.rate, "hosts", arguments.ranks_per_host) as lab:
        profile, chains = lab.profile(arguments.model), arguments.chains.split(",")
        memory = arguments.memory
        if not memory:
            needs = [compiled(lab, profile, chain, arguments, None)[1]["memory"]["arena_bytes"]["device"] for chain in ("zero3", "hsdp")]
            memory = max(needs)
        plans = {chain: compiled(lab, profile, chain, arguments, memory) for chain in chains}
        medians, sent = {chain: [] for chain in chains}, {}
        for turn in range(arguments.rounds):
            for chain in chains:
                median, sent[chain] = measured(lab, plans[chain][0], arguments)
                medians[chain].append(median)
                say(f"round {turn + 1} {chain}: {median:.0f} ms")
        print(
            f"{arguments.model}, {arguments.hosts} hosts of {arguments.ranks_per_host} ranks, {arguments.rate}, {arguments.accumulation} micro-batches, "
            f"--memory {memory}, medians of {arguments.rounds} rounds of {arguments.steps} steps"
        )
        for chain in chains:
            all_ms, predicted = medians[chain], plans[chain][1]["prediction"]["step_ns"] / 1e6
            hosts = " and ".join(f"{count / 1e6:.1f}" for count in sent[chain])
            print(
                f"{chain:8s} {statistics.median(all_ms):8.0f} ms ({min(all_ms):.0f} to {max(all_ms):.0f}), predicted {predicted:.0f}; sent by each host {hosts} MB a step"
            )


if __name__ == "__main__":
    sys.exit(main())
