"""What the demo compares with: makes its tokens, trains the same model in PyTorch, prints both losses and where time and bytes went.

demo_reference.py data MODEL TOKENS --ranks N --steps K
demo_reference.py compare MODEL TOKENS --ranks N --steps K --metrics FILE --plan-json FILE
"""

import argparse
import json
import os
import statistics
import sys

import numpy
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from dcc_export import presets  # noqa: E402
from dcc_export import workload as workloads  # noqa: E402

PRESET = "small-llama"


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
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
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


def compare(losses, arguments):
    with open(arguments.metrics) as file:
        rows = [json.loads(line) for line in file][1:]
    print("step   dcrun loss   PyTorch loss   relative difference")
    for row, loss in zip(rows, losses, strict=True):
        difference = abs(row["loss"] - loss) / abs(loss)
        print(f"{row['step']:4d}   {row['loss']:10.6f}   {loss:12.6f}   {difference:.1e}")
    worst = max(abs(r["loss"] - x) / abs(x) for r, x in zip(rows, losses, strict=True))
    with open(arguments.plan_json) as file:
        prediction = json.load(file)["prediction"]
    measured = statistics.median(row["step_ms"] for row in rows[2:])
    print(f"\ntime: a step took {measured:.0f} ms (median), predicted {prediction['step_ns'] / 1e6:.0f} ms: "
          f"{prediction['compute_ns'] / 1e6:.0f} compute, {prediction['communication_ns'] / 1e6:.0f} communication")
    print(f"memory: {prediction['peak_bytes'] / 2**20:.1f} MiB arena per rank, {prediction['live_bytes'] / 2**20:.1f} MiB live at the peak")
    print(f"wire: {sum(prediction['wire_bytes']) / 2**20:.1f} MiB sent per rank and step")
    print(f"largest relative difference of the loss: {worst:.1e}")
    return 0 if worst < 1e-4 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("data", "compare"))
    parser.add_argument("model")
    parser.add_argument("tokens")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--metrics")
    parser.add_argument("--plan-json")
    arguments = parser.parse_args()
    torch.set_num_threads(os.cpu_count())
    batch, seq = presets.default_shape(PRESET)
    if arguments.what == "data":
        make_tokens(arguments.tokens, batch, seq, arguments)
        return 0
    return compare(train(arguments.tokens, batch, seq, arguments), arguments)


if __name__ == "__main__":
    sys.exit(main())
