"""Plans of the published models: exported without weights, compiled once by each chain, and played with other factors by `dcc simulate`.

Not a program; published.py uses it. Archives, plans and reports stay in the folder that it gets: a plan's name has a digest of dcc, profile and options.
"""

import dataclasses
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
PROFILE = os.path.join(ROOT, "examples", "profiles", "h100x32.json")
TRAIN = {"optimizer": {"kind": "adamw", "lr": 2e-5}, "clip_norm": 1.0}
CONTENTION = {"compute": 1.35, "collective": 1.34}
SCALED_RATES = ("f64_flops_per_s", "f32_flops_per_s", "half_flops_per_s", "memory_bytes_per_s")
OVER_BUDGET = 80
KEPT = ("memory", "remarks", "prediction", "wire_bytes", "parameters")
# DeepSpeed's bucket of reductions: reduce_bucket_size elements in bf16, made once (contiguous_gradients).
BUCKET_BYTES = 2 * 500_000_000


def by_inductor(rules):
    """A chain whose element-wise operators become kernels as Inductor makes them of what follows each other; PyTorch runs them one by one."""
    return f"normalize-graph,fuse-loss,fuse-elementwise,shard-parameters=3,insert-collectives,add-update,schedule,{rules},layout-arenas"


@dataclasses.dataclass(frozen=True)
class Factors:
    compute: float = 1.0  # on all times of compute
    link: float = 1.0  # on all times of collectives
    intercept: float = 0.0  # seconds that every micro-batch takes longer
    contention: bool = False  # whether kernels and collectives that run at once slow each other
    attention: float = 1.0  # on the times of attention kernels, in addition to `compute`


@dataclasses.dataclass(frozen=True)
class Job:
    """What a plan is compiled for."""

    preset: str
    shape: tuple[int, int]  # batch, tokens of a row
    chain: str
    accumulation: int = 1
    ranks: int = 32


class Plans:
    """Steps and peaks of plans. The published rules compare times with each other only, so a plan does not depend on the factors."""

    def __init__(self, dcc, folder, memory):
        self.dcc, self.folder, self.memory = dcc, folder, memory
        with open(PROFILE) as file:
            self.base = json.load(file)
        digest = hashlib.sha256(f"{memory} {TRAIN} {self.base}".encode())
        with open(dcc, "rb") as file:
            digest.update(file.read())
        self.digest = digest.hexdigest()[:8]
        self.scratch = tempfile.TemporaryDirectory(prefix="dcc-published-")  # for this process alone
        self.train = os.path.join(self.scratch.name, "train.json")
        with open(self.train, "w") as file:
            json.dump(TRAIN, file)
        self.reports, self.attention = {}, {}
        self.kept = os.path.join(folder, f"steps-{self.digest}.json")
        self.steps = {}  # seconds without intercept
        if os.path.exists(self.kept):
            with open(self.kept) as file:
                self.steps = json.load(file)

    def save(self):
        """Steps that were simulated, for the next run."""
        with open(self.kept, "w") as file:
            json.dump(self.steps, file)

    def archive(self, preset, shape):
        path = os.path.join(self.folder, f"{preset}-b{shape[0]}-s{shape[1]}.pt2")
        if not os.path.exists(path):
            print(f"exporting {path}", file=sys.stderr)
            python = os.path.join(ROOT, "build", "venv", "bin", "python")
            size = ["--batch", str(shape[0]), "--seq", str(shape[1])]
            command = [python, os.path.join(ROOT, "scripts", "export.py"), "--preset", preset, "--headless", "--no-check", "--attention", "cuda-flash", *size]
            part = path.removesuffix(".pt2") + ".part.pt2"
            subprocess.run([*command, "-o", part], check=True, stdout=subprocess.DEVNULL)
            os.replace(part, path)
        return path

    def plan(self, job):
        name = job.chain if "," not in job.chain else hashlib.sha256(job.chain.encode()).hexdigest()[:8]
        return os.path.join(self.folder, f"{job.preset}-b{job.shape[0]}-s{job.shape[1]}-{name}-a{job.accumulation}-n{job.ranks}-{self.digest}.dcp")

    def report(self, job):
        """The report of dcc compile; None where the budget is too small."""
        if job not in self.reports:
            kept = self.plan(job) + ".json"
            if not os.path.exists(kept):
                report = self.compile(job, PROFILE, self.plan(job))
                with open(kept, "w") as file:
                    json.dump(report and {key: report[key] for key in KEPT}, file)
            with open(kept) as file:
                self.reports[job] = json.load(file)
        return self.reports[job]

    def compile(self, job, profile, plan, *more):
        chain = ["--passes" if "," in job.chain else "--chain", job.chain]
        options = ["--grad-accum", str(job.accumulation), "--world", str(job.ranks), "--memory", str(self.memory), "--recompute", "full"]
        command = [self.dcc, "compile", self.archive(job.preset, job.shape), "--profile", profile, "--no-cache", "--json", "--config", self.train]
        if "fuse-elementwise" not in job.chain:
            command += ["--providers", "aten"]  # PyTorch's operators, one by one
        result = subprocess.run([*command, *chain, *options, *more, "-o", plan], capture_output=True, text=True)
        if result.returncode == OVER_BUDGET:
            return None
        if result.returncode:
            sys.exit(result.stderr)
        return json.loads(result.stdout)

    def peak(self, job):
        report = self.report(job)
        return report and report["memory"]["peak"]["bytes"]

    def standing_peak(self, job, framework):
        """Bytes at most with the logits of the latest step, which the harness holds; with DeepSpeed's bucket of reductions and its partition of
        bf16 gradients, into which shards are copied; without the bf16 shards, which FSDP makes of f32 when it gathers. None where the budget is too small."""
        if self.report(job) is None:
            return None
        plan = self.inspect(job)
        logits, shards = 2 * job.shape[0] * job.shape[1] * _vocabulary(plan), 2 * sum(one["shard"] for one in plan["parameters"])
        if framework == "fsdp":
            return _largest_live(plan, set()) + logits - shards
        return _largest_live(plan, _gradient_shards(plan)) + logits + BUCKET_BYTES + shards

    def parameters(self, job):
        return self.report(job)["parameters"]["elements"]

    def inspect(self, job):
        text = os.path.join(self.scratch.name, "plan.json")
        subprocess.run([self.dcc, "inspect", self.plan(job), "--as", "json", "-o", text], check=True, capture_output=True)
        with open(text) as file:
            return json.load(file)

    def step(self, job, factors):
        """Seconds; None where the budget is too small."""
        if self.report(job) is None:
            return None
        key = f"{job} {dataclasses.replace(factors, intercept=0.0)}"
        if key not in self.steps:
            rows = self.attention_rows(job, factors) if factors.attention != 1 else []
            command = [self.dcc, "simulate", self.plan(job), "--profile", self.profile(factors, rows), "--json"]
            result = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            self.steps[key] = result["prediction"]["step_ns"] / 1e9
        return self.steps[key] + factors.intercept * job.accumulation

    def gathers_moved(self, job):
        """How many gathers the prefetch of a plan joined or moved."""
        return sum(remark["numbers"]["moved"] for remark in self.report(job)["remarks"] if remark["pass"] == "prefetch-gathers-greedily")

    def latency(self, factors):
        """Seconds of the smallest gather."""
        rows = [row for row in self.base["collectives"] if row["kind"] == "all_gather" and "level" not in row]
        return min(rows, key=lambda row: row["bytes"])["median_ns"] * factors.link / 1e9

    def profile(self, factors, kernels=()):
        """A copy of h100x32.json with the factors in it."""
        profile = json.loads(json.dumps(self.base))
        rates = profile["rates"]
        for rate in SCALED_RATES:
            rates[rate] = round(rates[rate] / factors.compute)
        rates["kernel_launch_ns"] = round(rates["kernel_launch_ns"] * factors.compute)
        rates["link_bytes_per_s"] = round(rates["link_bytes_per_s"] / factors.link)
        rates["collective_latency_ns"] = round(rates["collective_latency_ns"] * factors.link)
        for row in profile["collectives"]:
            for key in ("median_ns", "fastest_ns"):
                row[key] = round(row[key] * factors.link)
        if factors.contention:
            during = [(row, round(row["median_ns"] * CONTENTION["collective"])) for row in profile["collectives"]]
            permille = round(1000 * CONTENTION["compute"])
            profile["during_compute"] = [{**row, "median_ns": ns, "fastest_ns": ns, "compute_permille": permille} for row, ns in during]
        profile["kernels"] = list(kernels)
        path = os.path.join(self.scratch.name, "profile.json")
        with open(path, "w") as file:
            json.dump(profile, file)
        return path

    def attention_rows(self, job, factors):
        """Rows of a profile for the attention kernels of a shape."""
        key = job.preset, job.shape
        if key not in self.attention:
            self.attention[key] = _attention_kernels(self.inspect(job))
        per_flop = factors.compute * factors.attention / self.base["rates"]["half_flops_per_s"] * 1e9
        launch = self.base["rates"]["kernel_launch_ns"] * factors.compute
        times = [(signature, round(launch + flops * per_flop)) for signature, flops in self.attention[key]]
        return [
            {"key": signature, "provider": "aten", "scratch_bytes": 0, "median_ns": ns, "fastest_ns": ns, "deviation_ns": 0, "samples": 1}
            for signature, ns in times
        ]


def _vocabulary(plan):
    """Rows of the output layer."""
    return next(one["sizes"][0] for one in plan["parameters"] if one["fqn"].endswith("lm_head.weight"))


def _gradient_shards(plan):
    """Slices of what reductions give."""
    return {plan["tensors"][one["gradient"]]["slice"] for one in plan["parameters"]}


def _largest_live(plan, left_out):
    """Bytes of the device that are live at most in a plan of one program, without some slices."""
    change = [0] * (len(plan["programs"][0]["instructions"]) + 1)
    for number, one in enumerate(plan["slices"]):
        if one["space"] != "device" or number in left_out:
            continue
        change[max(one["first"], 0)] += one["bytes"]
        if one["program"] >= 0:
            change[one["last"] + 1] -= one["bytes"]
    return max(itertools.accumulate(change))


def _attention_kernels(plan):
    """[(text of the KernelSignature, floating-point operations)]; all pairs of tokens count, masked or not, as in src/cost."""
    tensors = plan["tensors"]

    def operand(number):
        if number < 0:
            return "none"
        tensor = tensors[number]
        return f"{tensor['dtype']}[{','.join(map(str, tensor['sizes']))}]({','.join(map(str, tensor['strides']))})"

    def argument(one):
        if one["kind"] == "tensor":
            return operand(one["value"])
        if one["kind"] == "none":
            return f"{one['name']}=none"
        return f"{one['name']}={int(one['value']) if float(one['value']).is_integer() else one['value']}"

    found = {}
    for program in plan["programs"]:
        for one in program["instructions"]:
            if "attention" not in one.get("op", ""):
                continue
            backward = "backward" in one["op"]
            query, key = (tensors[number]["sizes"] for number in one["reads"][backward : backward + 2])
            texts = [one["op"], *map(argument, one["args"]), "->", *map(operand, one["outputs"])]
            found[" ".join(texts)] = (10 if backward else 4) * query[0] * query[1] * query[2] * query[3] * key[2]
    return list(found.items())
