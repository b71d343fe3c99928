"""What the demo compares with: makes its tokens, trains the same model in PyTorch, prints both losses and where time and bytes went.

demo_reference.py data MODEL TOKENS --ranks N --steps K
demo_reference.py compare MODEL TOKENS --ranks N --steps K --lr X --metrics FILE --plan-json FILE --trace FILE
"""

import argparse
import collections
import json
import os
import statistics
import sys

import numpy
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from dcc_export import presets
from dcc_export import workload as workloads

PRESET = "small-llama"
BOUND = 1e-4  # relative, of a loss


def make_tokens(path, batch, seq, arguments):
    """A repeating pattern with noise: something a model can learn in twenty steps."""
    samples = arguments.ranks * arguments.steps * batch
    generator = numpy.random.default_rng(0)
    tokens = (numpy.arange(samples * seq) * 7) % 512
    noise = generator.random(tokens.shape) < 0.1
    tokens[noise] = generator.integers(0, 2048, noise.sum())
    tokens.astype(numpy.uint16).tofile(path)


def train(path, batch, seq, arguments):
    """PyTorch, one process: every rank's batch on its own, gradients averaged."""
    workload = workloads.make(workloads.Options(batch=batch, seq=seq), preset=PRESET)
    module = workload.module.train()
    optimizer = torch.optim.AdamW(module.parameters(), lr=arguments.lr)
    tokens = torch.from_numpy(numpy.fromfile(path, dtype=numpy.uint16).astype(numpy.int64)).view(-1, seq)
    losses = []
    for step in range(arguments.steps):
        total = 0.0
        for rank in range(arguments.ranks):
            first = (step * arguments.ranks + rank) * batch
            rows = tokens[first : first + batch]
            loss = module(**{name: rows for name in workload.inputs}) / arguments.ranks
            loss.backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses


def print_losses(rows, losses):
    """Returns the largest relative difference."""
    print("step   dcrun's loss   PyTorch's loss   relative difference")
    worst = 0.0
    for row, loss in zip(rows, losses, strict=True):
        difference = abs(row["loss"] - loss) / abs(loss)
        worst = max(worst, difference)
        print(f"{row['step']:4d}   {row['loss']:12.6f}   {loss:14.6f}   {difference:.1e}")
    verdict = "equal up to rounding" if worst < BOUND else f"more than {BOUND:.0e} apart: FAILED"
    print(f"PyTorch: one process, the batches of both ranks averaged. Largest relative difference {worst:.1e}: {verdict}")
    return worst


def print_time(rows, prediction, trace):
    """Where rank 0's time went: per phase, in kernels and in waiting for the collectives; the kernels that took most."""
    phases, kernels, collectives = collections.Counter(), collections.Counter(), collections.Counter()
    for event in trace:
        if event["ph"] != "X" or event["pid"] != 0:
            continue
        milliseconds = event["dur"] / 1e3 / len(rows)
        if event["tid"] == 0:
            phases[event["cat"], event["name"] == "wait"] += milliseconds
            if event["name"] != "wait":
                kernels[event["name"]] += milliseconds
        elif event["name"] != "wait":
            collectives[event["name"]] += milliseconds
    print("\nwhere the time went (rank 0, ms per step, mean of all steps)")
    print(f"{'':12s}{'kernels':>10s}{'waiting for collectives':>26s}")
    for phase in ("forward", "backward", "update"):
        print(f"  {phase:10s}{phases[phase, False]:10.1f}{phases[phase, True]:26.1f}")
    print("  most in     " + ", ".join(f"{name} {ms:.0f}" for name, ms in kernels.most_common(5)))
    print("  collectives " + ", ".join(f"{name} {ms:.0f}" for name, ms in collectives.most_common()) + ", waiting for the other rank included")
    measured = statistics.median(row["step_ms"] for row in rows)
    print(
        f"  a step      {measured:.0f} measured (median), {prediction['step_ns'] / 1e6:.0f} predicted by the plan: "
        f"{prediction['compute_ns'] / 1e6:.0f} kernels, {prediction['communication_ns'] / 1e6:.0f} collectives"
    )
    print("  Both figures are those of this machine as busy as it was: they differ if its load changed between profile and training.")


def print_wire(rows, prediction):
    """Over the whole run: gathers may go on into the next step and count there."""
    counted = collections.Counter()
    for row in rows:
        counted.update(row["wire_bytes"])
    print(f"\nwhat went over the wire (bytes that rank 0 sent in {len(rows)} steps)")
    for name, size in counted.items():
        if size:
            print(f"  {name:16s}{size:>13,d}   {size / len(rows) / 2**20:.1f} MiB a step")
    planned, sent = len(rows) * sum(prediction["wire_bytes"]), sum(counted.values())
    agreement = "as the plan said" if planned == sent else f"but the plan said {planned:,d}: FAILED"
    print(f"  {'sum, counted':16s}{sent:>13,d}   {agreement}")
    return planned == sent


def compare(losses, arguments):
    """Exit code: 0 if the losses agree and as many bytes were sent as the plan says."""
    with open(arguments.metrics) as file:
        rows = [json.loads(line) for line in file][1:]
    with open(arguments.plan_json) as file:
        prediction = json.load(file)["prediction"]
    with open(arguments.trace) as file:
        trace = json.load(file)["traceEvents"]
    worst = print_losses(rows, losses)
    print_time(rows, prediction, trace)
    as_planned = print_wire(rows, prediction)
    return 0 if worst < BOUND and as_planned else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("data", "compare"))
    parser.add_argument("model")
    parser.add_argument("tokens")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--metrics")
    parser.add_argument("--plan-json")
    parser.add_argument("--trace")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # as each rank; more would spin where other programs run
    batch, seq = presets.default_shape(PRESET)
    if arguments.what == "data":
        make_tokens(arguments.tokens, batch, seq, arguments)
        return 0
    return compare(train(arguments.tokens, batch, seq, arguments), arguments)


if __name__ == "__main__":
    sys.exit(main())
