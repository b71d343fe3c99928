"""One rank of PyTorch training the same model: DDP or FSDP2 over gloo. Started by run.py through torchrun.

Prints one JSON line on rank 0: the duration of every measured step in milliseconds, and the last loss.
"""

import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from dcc_export import presets  # noqa: E402
from dcc_export import workload as workloads  # noqa: E402


def build(preset):
    batch, seq = presets.default_shape(preset)
    return workloads.make(workloads.Options(batch=batch, seq=seq or 32), preset=preset)


def blocks(module):
    """Elements of the longest list of numbered siblings: what FSDP users wrap."""
    lists = [m for m in module.modules() if isinstance(m, torch.nn.ModuleList)]
    return max(lists, key=len)


def wrap(module, kind):
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(module)
    from torch.distributed.fsdp import fully_shard

    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    for block in blocks(module):
        fully_shard(block, mesh=mesh, reshard_after_forward=True)
    fully_shard(module, mesh=mesh, reshard_after_forward=True)
    return module


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="small-llama")
    parser.add_argument("--kind", choices=("ddp", "fsdp"), required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    workload = build(arguments.preset)
    model = wrap(workload.module.train(), arguments.kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    generator = torch.Generator().manual_seed(dist.get_rank())
    times, loss = [], None
    for step in range(arguments.warmup + arguments.steps):
        inputs = {n: torch.randint(0, 2048, t.shape, generator=generator) for n, t in workload.inputs.items()}
        started = time.perf_counter()
        loss = model(**inputs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step >= arguments.warmup:
            times.append((time.perf_counter() - started) * 1e3)
    if dist.get_rank() == 0:
        print(json.dumps({"step_ms": times, "loss": float(loss.detach())}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
