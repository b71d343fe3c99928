"""One rank of PyTorch training the same model: DDP or FSDP2 over gloo. Started by run.py through torchrun, by network.py on the hosts of a lab.

Prints one JSON line on rank 0: the duration of every measured step and of the update in it (clipping and optimizer) in milliseconds, the
last loss, and what the host's eth0, if it has one, sent per measured step. FSDP2 wraps every block; `fsdp` gathers parameters again in the
backward phase, `fsdp-keep` keeps them. Of several micro-batches only the last one is reduced in DDP. `alone` is the bare module: the ranks
begin each step together and send nothing; `compiled` is it under torch.compile, `ddp-compiled` DDP under torch.compile. --autocast computes in bfloat16 with float32 parameters.
`first_step_s` is the time from the process's start to the end of its first step.
"""

import argparse
import contextlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from dcc_export import presets
from dcc_export import workload as workloads


def build(arguments):
    if arguments.hf_config:
        return workloads.make(workloads.Options(batch=arguments.batch, seq=arguments.seq), hf_config=arguments.hf_config)
    batch, seq = presets.default_shape(arguments.preset)
    return workloads.make(workloads.Options(batch=arguments.batch or batch, seq=arguments.seq or seq or 32), preset=arguments.preset)


def drawn(workload, generator):
    """A batch: like the workload's, with other numbers."""
    batch = {}
    for name, like in workload.inputs.items():
        role = (workload.roles or {}).get(name)
        high = min(2048, role["high"]) if isinstance(role, dict) else 2048
        if like.is_floating_point():
            batch[name] = torch.rand(like.shape, generator=generator) * 2 - 1
        else:
            batch[name] = torch.randint(0, high, like.shape, generator=generator)
    return batch


def blocks(module):
    """Elements of the longest list of numbered siblings: what FSDP users wrap."""
    lists = [m for m in module.modules() if isinstance(m, torch.nn.ModuleList)]
    return max(lists, key=len)


def wrap(module, kind):
    if kind == "alone":
        return module
    if kind == "compiled":
        return torch.compile(module)
    if kind in ("ddp", "ddp-compiled"):
        replica = torch.nn.parallel.DistributedDataParallel(module)
        return torch.compile(replica) if kind == "ddp-compiled" else replica
    from torch.distributed.fsdp import fully_shard

    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    for block in blocks(module):
        fully_shard(block, mesh=mesh, reshard_after_forward=kind == "fsdp")
    fully_shard(module, mesh=mesh, reshard_after_forward=kind == "fsdp")
    return module


def sent():
    """Bytes that this host has sent so far."""
    try:
        with open("/sys/class/net/eth0/statistics/tx_bytes") as file:
            return int(file.read())
    except OSError:
        return 0


def age():
    """Seconds since this process started."""
    with open("/proc/self/stat") as file:
        started = int(file.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    with open("/proc/uptime") as file:
        return float(file.read().split()[0]) - started


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="small-llama")
    parser.add_argument("--hf-config")
    parser.add_argument("--batch", type=int, help="a preset's own if it is not given")
    parser.add_argument("--seq", type=int, help="a preset's own if it is not given")
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--no-clip", action="store_true")
    parser.add_argument("--kind", choices=("ddp", "ddp-compiled", "fsdp", "fsdp-keep", "alone", "compiled"), required=True)
    parser.add_argument("--autocast", action="store_true")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    workload = build(arguments)
    model = wrap(workload.module.train(), arguments.kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    generator = torch.Generator().manual_seed(dist.get_rank())
    times, updates, loss, before = [], [], None, 0
    for step in range(arguments.warmup + arguments.steps):
        if step == arguments.warmup:
            before = sent()
        batches = [drawn(workload, generator) for _ in range(arguments.accumulation)]
        if arguments.kind in ("alone", "compiled"):
            dist.barrier()
        started = time.perf_counter()
        for inputs in batches:
            waits = arguments.kind.startswith("ddp") and inputs is not batches[-1]
            with model.no_sync() if waits else contextlib.nullcontext():
                with torch.autocast("cpu", torch.bfloat16, enabled=arguments.autocast):
                    loss = model(**inputs)
                (loss / arguments.accumulation).backward()
        updating = time.perf_counter()
        if not arguments.no_clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step == 0:
            first = age()
        if step >= arguments.warmup:
            ended = time.perf_counter()
            times.append((ended - started) * 1e3)
            updates.append((ended - updating) * 1e3)
    if dist.get_rank() == 0:
        print(
            json.dumps(
                {
                    "step_ms": times,
                    "first_step_s": first,
                    "update_ms": updates,
                    "loss": float(loss.detach()),
                    "sent_per_step": (sent() - before) / arguments.steps,
                }
            )
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
