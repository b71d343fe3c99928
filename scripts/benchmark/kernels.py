"""Native kernels next to libtorch's on the shapes of the zoo, one thread: time, bytes a second, the ratio.

kernels.py [--models NAME,...] [--dtype float32|bfloat16] [--folder DIR] [--all]

Each model is compiled with `--providers native`; each operator of its step that has a native kernel runs on the plan's addresses with both providers in turns
(`kernel_table`). Rows are summed by operator and model; the last table has the kernels that are slower than libtorch's by more than 5 % and 1 us. --all prints
every kernel. Times are processor time, medians of nine rounds; operands are in the cache where they fit.
"""

import argparse
import json
import os
import platform
import re
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lab

MODELS = ("mlp", "tiny-llama", "tiny-gpt2", "tiny-bert", "tiny-mixtral", "resnet18", "M", "gpt2", "mixtral")
SLOWER, NOISE_NS = 1.05, 1000


def plan_of(model, dtype, folder):
    """The plan's path."""
    archive, plan = os.path.join(folder, f"{model}-{dtype}.pt2"), os.path.join(folder, f"{model}-{dtype}.dcp")
    if not os.path.exists(archive):
        config, options = lab.CONFIGS.get(model, (None, ()))
        source = ["--preset", model]
        if config:
            source = ["--hf-config", os.path.join(folder, f"{model}.json"), *options]
            with open(source[1], "w") as file:
                json.dump(config, file)
        lab.run([sys.executable, os.path.join(lab.ROOT, "scripts", "export.py"), *source, "--dtype", dtype, "--no-check", "-o", archive])
    lab.run([os.path.join(lab.BIN, "dcc"), "compile", archive, "--world", "1", "--providers", "native", "--no-cache", "-o", plan])
    return plan


def rows_of(plan):
    out = lab.run([os.path.join(lab.BIN, "kernel_table"), plan]).stdout
    return [json.loads(line) for line in out.splitlines()]


def cpu():
    with open("/proc/cpuinfo") as file:
        names = re.findall(r"model name\s*: (.*)", file.read())
    return names[0] if names else platform.processor()


def figures(row):
    native, aten = row["native_ns"][0], row["aten_ns"][0]
    spread = "-".join(f"{ns / 1e3:.1f}" for ns in row["native_ns"][1:])
    return (
        f"{native / 1e3:9.1f} {aten / 1e3:9.1f} {native / max(aten, 1):6.2f} {row['bytes'] / max(native, 1):7.1f} {row['bytes'] / max(aten, 1):7.1f}  {spread}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--folder", help="keeps models; a temporary one if not given")
    parser.add_argument("--all", action="store_true", help="every kernel, not only those that are slower")
    arguments = parser.parse_args()
    print(f"{cpu()}, one thread, {arguments.dtype}")
    slower, everything = [], []
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or temporary
        os.makedirs(folder, exist_ok=True)
        print(f"{'model':13s} {'operator':45s} {'kernels':>7s} {'native us':>10s} {'ATen us':>10s} {'ratio':>6s}   (sums over one step)")
        for model in arguments.models.split(","):
            rows = rows_of(plan_of(model, arguments.dtype, folder))
            by_op = {}
            for row in rows:
                by_op.setdefault(row["kernel"].split()[0], []).append(row)
                everything.append((model, row))
                native, aten = row["native_ns"][0], row["aten_ns"][0]
                if native > SLOWER * aten and native - aten > NOISE_NS:
                    slower.append((model, row))
            for op, group in sorted(by_op.items()):
                native, aten = (sum(r[side][0] * r["calls"] for r in group) for side in ("native_ns", "aten_ns"))
                calls = sum(r["calls"] for r in group)
                print(f"{model:13s} {op:45s} {calls:7d} {native / 1e3:10.1f} {aten / 1e3:10.1f} {native / max(aten, 1):6.2f}", flush=True)
    print(f"\n{'every kernel' if arguments.all else 'slower than ATen'}: native us, ATen us, ratio, native GB/s, ATen GB/s, range of native us")
    for model, row in everything if arguments.all else slower:
        print(f"{figures(row)}  {model} {row['calls']}x {row['kernel']}")
    print(f"{len(slower)} of {len(everything)} kernels are slower than ATen's by more than 5 % and 1 us")


if __name__ == "__main__":
    main()
