"""One rank of PyTorch's Gloo backend: gloo_links.py BYTES...; the counterpart of tests/runtime/comm/links.cpp, same lines."""

import json
import os
import resource
import statistics
import sys
import time

import torch
import torch.distributed as dist


def processor_ms():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return (usage.ru_utime + usage.ru_stime) * 1e3


def main():
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", os.environ.get("LINK", "lo"))
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for name in ("all_gather", "reduce_scatter", "all_reduce"):
        for size in map(int, sys.argv[1:]):
            whole, shard = torch.zeros(size // 4 // world * world), torch.zeros(size // 4 // world)
            run = {
                "all_gather": lambda: dist.all_gather_into_tensor(whole, shard),
                "reduce_scatter": lambda: dist.reduce_scatter_tensor(shard, whole),
                "all_reduce": lambda: dist.all_reduce(whole),
            }[name]
            repeats = min(max((256 << 20) // size, 7), 200)
            samples, cpu = [], 0.0
            for i in range(-2, repeats):
                dist.barrier()
                cpu_before, before = processor_ms(), time.perf_counter()
                run()
                took = (time.perf_counter() - before) * 1e3
                if i >= 0:
                    samples.append(took)
                    cpu += processor_ms() - cpu_before
            if rank == 0:
                row = {"collective": name, "bytes": size, "ms": statistics.median(samples), "cpu_ms": cpu / repeats}
                print(json.dumps(row), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
