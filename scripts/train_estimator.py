#!/usr/bin/env python3
"""Trains DisCo's graph network (arXiv 2209.12769, section 4.3) on fused kernels that `dcc profile --fusions N` measured.

build/venv/bin/python scripts/train_estimator.py PROFILE... -o estimator.safetensors [--seconds 50]

Needs build/venv and the program `fused_table` of the tests. The file is for `dcc compile --fusion-estimator estimator.safetensors`. Six layers of attention over the graph of a kernel's operations
(four heads of 16), a sum over operations, three dense layers; the loss is the squared error of the logarithm of the time, by Adam; one thread. Of equal inputs and steps the weights are equal, but
where training ends depends on the clock: it is given in seconds of processor time.
"""

import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

import safetensors.torch
import torch

BIN = pathlib.Path(__file__).resolve().parent.parent / "build/release/bin"
HEADS, WIDTH, LEAK = 4, 16, 0.2
ATTENTION_LAYERS, DENSE_LAYERS = 6, 3
FORMAT, VERSION = "dcc-fused-estimator", "2"


def table(*arguments):
    """What fused_table says of each fused kernel of a profile."""
    said = subprocess.run([str(BIN / "fused_table"), *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in said.splitlines()]


def primitives():
    return subprocess.run([str(BIN / "fused_table"), "--primitives"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def log_size(value):
    return torch.log1p(torch.tensor(value, dtype=torch.float64)).float() / 10


class Graphs:
    """Kernels as tensors: nodes (kernels x most operations x features), which node is near which, which are there."""

    def __init__(self, kernels, names):
        place = {name: i for i, name in enumerate(names)}
        most = max(len(kernel["operations"]) for kernel in kernels)
        self.nodes = torch.zeros(len(kernels), most, 3 + len(names))
        self.near = torch.eye(most, dtype=torch.bool).repeat(len(kernels), 1, 1)
        self.exists = torch.zeros(len(kernels), most)
        for k, kernel in enumerate(kernels):
            for i, operation in enumerate(kernel["operations"]):
                self.nodes[k, i, :3] = log_size([operation["apart_ns"], operation["read_bytes"], operation["written_bytes"]])
                self.nodes[k, i, 3 + place[operation["primitive"]]] = 1
                self.exists[k, i] = 1
                for read in operation["reads"]:
                    self.near[k, i, read] = self.near[k, read, i] = True

    def some(self, which):
        # As many nodes as the largest of them has.
        most = int(self.exists[which].sum(1).max())
        return self.nodes[which, :most], self.near[which, :most, :most], self.exists[which, :most]


class Attention(torch.nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.nn.init.xavier_uniform_(torch.empty(HEADS * WIDTH, inputs)))
        self.source = torch.nn.Parameter(torch.nn.init.xavier_uniform_(torch.empty(HEADS, WIDTH)))
        self.target = torch.nn.Parameter(torch.nn.init.xavier_uniform_(torch.empty(HEADS, WIDTH)))

    def forward(self, nodes, near):
        made = (nodes @ self.weight.T).unflatten(-1, (HEADS, WIDTH))
        source = (made * self.source).sum(-1).permute(0, 2, 1)
        target = (made * self.target).sum(-1).permute(0, 2, 1)
        score = torch.nn.functional.leaky_relu(target.unsqueeze(-1) + source.unsqueeze(-2), LEAK)
        score = score.masked_fill(~near.unsqueeze(1), -torch.inf).softmax(-1)
        mixed = torch.einsum("bhij,bjhw->bihw", score, made).flatten(-2)
        return torch.nn.functional.leaky_relu(mixed, LEAK)


class Network(torch.nn.Module):
    def __init__(self, primitive_count):
        super().__init__()
        width = HEADS * WIDTH
        self.attention = torch.nn.ModuleList(Attention(3 + primitive_count if i == 0 else width) for i in range(ATTENTION_LAYERS))
        self.pool = torch.nn.Linear(width, width)
        self.dense = torch.nn.ModuleList(torch.nn.Linear(width, 1 if i + 1 == DENSE_LAYERS else width) for i in range(DENSE_LAYERS))

    def forward(self, nodes, near, exists):
        """The logarithm of the time in ns, of each kernel."""
        for layer in self.attention:
            nodes = layer(nodes, near)
        value = (nodes * exists.unsqueeze(-1)).sum(1) @ self.pool.weight.T + self.pool.bias
        for layer in self.dense:
            value = layer(torch.nn.functional.leaky_relu(value, LEAK))
        return value.squeeze(-1)


def train(kernels, names, seconds, seed=0):
    """A network after so many seconds of processor time, and how many of them it took."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    begin = time.process_time()
    graphs = Graphs(kernels, names)
    wanted = torch.log(torch.tensor([float(max(kernel["median_ns"], 1)) for kernel in kernels]))
    network = Network(len(names))
    with torch.no_grad():
        network.dense[-1].bias.fill_(wanted.mean())
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    batch = 64
    spent = time.process_time() - begin
    while spent < seconds:
        # Alike sizes together: less padding.
        order = torch.randperm(len(kernels))
        order = order[torch.argsort(graphs.exists[order].sum(1) + 3 * torch.rand(len(kernels)))]
        batches = list(order.split(batch))
        for i in torch.randperm(len(batches)):
            which = batches[i]
            part = min(1.0, spent / seconds)
            optimizer.param_groups[0]["lr"] = 3e-3 * (1 - part) + 1e-5
            loss = (network(*graphs.some(which)) - wanted[which]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            spent = time.process_time() - begin
            if spent >= seconds:
                break
    return network, spent


def save(network, names, path):
    tensors = {}
    for name, value in network.state_dict().items():
        tensors[name] = (value if value.dim() == 2 else value.unsqueeze(0)).contiguous()
    checksum = hashlib.sha256(b"".join(tensors[name].numpy().tobytes() for name in sorted(tensors))).hexdigest()
    safetensors.torch.save_file(tensors, path, {"format": FORMAT, "version": VERSION, "primitives": ",".join(names), "sha256": checksum})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="+", metavar="PROFILE")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--seconds", type=float, default=50, help="processor time to train for")
    arguments = parser.parse_args()
    if any(os.path.realpath(one) == os.path.realpath(arguments.output) for one in arguments.profiles):
        parser.error(f"{arguments.output} is to be read and would be replaced; give the output another name")
    kernels = [kernel for profile in arguments.profiles for kernel in table(profile)]
    if not kernels:
        sys.exit("train_estimator.py: the profiles have no fused kernels; measure some with dcc profile --fusions 2000")
    names = primitives()
    network, spent = train(kernels, names, arguments.seconds)
    save(network, names, arguments.output)
    graphs = Graphs(kernels, names)
    with torch.no_grad():
        said = torch.exp(network(*graphs.some(torch.arange(len(kernels)))))
    errors = sorted(abs(float(one) / kernel["median_ns"] - 1) for one, kernel in zip(said, kernels, strict=True))
    print(
        f"{arguments.output}: {len(kernels)} fused kernels, {spent:.1f} s; half of them within {errors[len(errors) // 2]:.1%}, 90 % within {errors[len(errors) * 9 // 10]:.1%}"
    )


if __name__ == "__main__":
    main()
