"""A network lab for benchmarks: models exported once, profiled once per lab, plans compiled from a profile, and one training on all hosts.

Not a program; network.py and truth.py use it. The folder it gets keeps models and profiles, so a second run there finds them.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BIN = os.path.join(ROOT, "build", "bin")
PEER = os.path.join(ROOT, "scripts", "benchmark", "peer.py")
NETLAB = os.path.join(ROOT, "scripts", "netlab.sh")
_LLAMA_M = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 8192,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "use_cache": False,
}
_GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "n_embd": 256,
    "n_layer": 4,
    "n_head": 8,
    "n_positions": 256,
    "vocab_size": 2048,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "use_cache": False,
}
_MIXTRAL = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "hidden_size": 192,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "vocab_size": 1024,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "sliding_window": None,
    "use_cache": False,
}
_LLAMA_S = {
    **_LLAMA_M,
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 4,
    "vocab_size": 2048,
    "max_position_embeddings": 128,
}
_BERT = {
    "architectures": ["BertForMaskedLM"],
    "model_type": "bert",
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 2,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
}
CONFIGS = {
    "S": (_LLAMA_S, ("--batch", "4", "--seq", "128")),
    "M": (_LLAMA_M, ("--batch", "2", "--seq", "256")),
    "gpt2": (_GPT2, ("--batch", "4", "--seq", "256")),
    "mixtral": (_MIXTRAL, ("--batch", "2", "--seq", "256")),
    "bert": (_BERT, ("--batch", "4", "--seq", "128")),
}
# Presets at another size than their own.
PRESETS = {"resnet50": ("--batch", "4"), "transformer": ("--batch", "4", "--seq", "128")}
MODELS = ("S", "M", "small-llama", "gpt2", "mixtral")
_ADAMW = {"kind": "adamw", "lr": 1e-3}


class Failed(RuntimeError):
    pass


def say(text):
    print(time.strftime("[%H:%M:%S] ") + text, file=sys.stderr, flush=True)


def run(command, limit=1800, **environment):
    """What it printed; a command that fails or takes longer is Failed, with all that it started."""
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, **environment})
    try:
        out, err = job.communicate(timeout=limit)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGTERM)
        job.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise Failed(f"longer than {limit} s: {' '.join(command)}") from error
        raise
    if job.returncode:
        raise Failed(f"exit {job.returncode}: {' '.join(command)}\n{err[-1500:]}")
    return subprocess.CompletedProcess(command, 0, out, err)


def bytes_per_second(rate):
    """Of tc's words: 1gbit, 200mbit."""
    number, unit = re.fullmatch(r"([\d.]+)([gmk])bit", rate).groups()
    return float(number) * {"g": 1e9, "m": 1e6, "k": 1e3}[unit] / 8


class Bench:
    """A folder of exported models, configs and plans."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def shape(self, model):
        """Options of export.py and peer.py."""
        if model not in CONFIGS:
            return ["--preset", model, *PRESETS.get(model, ())]
        config, shape = CONFIGS[model]
        path = self.path(f"config-{model}.json")
        with open(path, "w") as file:
            json.dump(config, file)
        return ["--hf-config", path, *shape]

    def archive(self, model, *options):
        """Exported the first time it is asked for, with further options of export.py."""
        path = self.path(re.sub(r"\W+", "-", " ".join([model, *options])) + ".pt2")
        if not os.path.exists(path):
            say(f"exporting {model}")
            run([sys.executable, os.path.join(ROOT, "scripts", "export.py"), *self.shape(model), *options, "--no-check", "-o", path])
        return path

    def config(self, clipped):
        path = self.path("clipped.json" if clipped else "free.json")
        with open(path, "w") as file:
            json.dump({"optimizer": _ADAMW, **({"clip_norm": 1.0} if clipped else {})}, file)
        return path

    def compile(self, model, profile, *options, name="plan", world=None, clipped=True):
        """(path of the plan, its report)"""
        plan = self.path(re.sub(r"\W+", "-", name) + ".dcp")
        said = run(
            [
                os.path.join(BIN, "dcc"),
                "compile",
                self.archive(model),
                "--profile",
                profile,
                "--no-cache",
                "--json",
                "--world",
                str(world or self.world),
                "--config",
                self.config(clipped),
                *options,
                "-o",
                plan,
            ]
        )
        return plan, json.loads(said.stdout)

    def dcrun(self, plan, model, steps, metrics):
        return [
            os.path.join(BIN, "dcrun"),
            plan,
            "--weights",
            self.archive(model),
            "--data",
            "synthetic:1",
            "--steps",
            str(steps),
            "--metrics",
            metrics,
            "--overwrite",
        ]


class Lab(Bench):
    """`with Lab(...)`: up at the beginning, down at the end, also when it is interrupted. One of this name left by a killed run goes first."""

    def __init__(self, folder, hosts, rate, name, ranks_per_host=1):
        super().__init__(folder)
        self.hosts, self.rate = hosts, rate
        self.world = hosts * ranks_per_host
        self.variables = {"NETLAB": os.environ.get("NETLAB", name), "RANKS_PER_HOST": str(ranks_per_host), "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        run([NETLAB, "down"], **self.variables)
        run([NETLAB, "up", str(self.hosts), self.rate], **self.variables)
        return self

    def __exit__(self, *_):
        run([NETLAB, "down"], **self.variables)

    def on_hosts(self, *command, limit=1800):
        return run([NETLAB, "run", *command], limit, **self.variables)

    def peer(self, model, *options):
        """What rank 0 of PyTorch's side (peer.py) prints."""
        said = self.on_hosts(sys.executable, PEER, *self.shape(model), *options).stdout
        return json.loads([line for line in said.splitlines() if line.startswith("{")][-1])

    def sent(self, result):
        """Bytes that host 0 sent during a command on the hosts."""
        return self.sent_by_hosts(result)[0]

    def sent_by_hosts(self, result):
        return [int(count) for count in re.findall(r"host \d+ sent (\d+) bytes", result.stderr)]

    def profile_path(self, model, world, rate, computing=0):
        hosts = f"-{self.hosts}-hosts" if self.hosts != self.world else ""
        return self.path(f"profile-{model}-{world}{hosts}-{rate}{f'-with-{computing}' if computing else ''}.json")

    def profile(self, model, *options, computing=0):
        """Measured on this lab the first time it is asked for, with copies to the disk of its folder and further options of `dcc profile`, while `computing` other ranks compute the model's step all the time."""
        path = self.profile_path(model, self.world, self.rate, computing)
        if not os.path.exists(path):
            began = time.monotonic()
            say(f"profiling {model} on {self.hosts} hosts, {self.world} ranks, at {self.rate}" + (f" with {computing} more ranks" if computing else ""))
            with self.computing(model, computing):
                self.on_hosts(
                    os.path.join(BIN, "dcc"), "profile", self.archive(model), "--comm", "tcp", "--offload-dir", self.folder, *options, "-o", path + ".part"
                )
            os.replace(path + ".part", path)
            say(f"  took {time.monotonic() - began:.0f} s")
        return path

    @contextlib.contextmanager
    def computing(self, model, count):
        jobs = []
        try:
            for rank in range(count):
                plan = self.path("computing.dcp")
                if rank == 0:
                    run([os.path.join(BIN, "dcc"), "compile", self.archive(model), "--world", "1", "-o", plan])
                jobs.append(
                    subprocess.Popen(self.dcrun(plan, model, 10**6, self.path(f"computing{rank}.jsonl")), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                )
            yield
            if any(job.poll() is not None for job in jobs):
                raise Failed("a rank that was to compute stopped")
        finally:
            for job in jobs:
                job.kill()
                job.wait()

    def train(self, plan, model, warmup, steps, *options):
        """(rows of the metrics of rank 0 after the warm-up, what the command printed)"""
        metrics = self.path("metrics.jsonl")
        result = self.on_hosts(*self.dcrun(plan, model, warmup + steps, metrics), *options)
        return read_steps(metrics)[warmup:], result


def read_steps(metrics):
    """The steps' rows; the first row says what ran, the last what each host sent."""
    with open(metrics) as file:
        rows = [json.loads(line) for line in file]
    return [row for row in rows if "step_ms" in row]
