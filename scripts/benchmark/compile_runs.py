"""`dcc compile` runs whose outcomes are kept in a file, so that only what can have changed runs again.

Not a program; joint.py uses it. An outcome is what the compiler says of a plan (step time, peak, bound) or why it refused, for `auto` with the
processor time and the largest resident set of the process. It is kept by archive, profile, options and compiler: runs of `auto` by the
compiler's build, runs of a fixed chain by its passes' text and by the sources outside src/search, since no search is part of them.

Fixed chains are asked of chain_table (tests/src/search), which reads the archive once and computes once what chains begin with alike: thousands of them
take minutes instead of hours. `Runs.compare` has dcc compile some of them.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import zlib

REFUSED = 80  # does not fit the budget


def sha(*parts):
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def file_digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:20]


def sources_digest(dcc):
    """Of the compiler's sources but src/search, in the checkout that `dcc` was built in; None if it is in none."""
    root = os.path.dirname(os.path.abspath(dcc))
    while not os.path.isdir(os.path.join(root, "src", "passes")):
        if root == os.path.dirname(root):
            return None
        root = os.path.dirname(root)
    digest = hashlib.sha256()
    for top in ("src", "schemas", "runtime/verify"):
        for folder, inner, names in os.walk(os.path.join(root, top)):
            inner.sort()
            if os.path.relpath(folder, root) == os.path.join("src", "search"):
                continue
            for name in sorted(names):
                if name.endswith((".cpp", ".h", ".def", ".fbs")):
                    path = os.path.join(folder, name)
                    digest.update(os.path.relpath(path, root).encode() + file_digest(path).encode())
    return digest.hexdigest()[:20]


class ChainTable:
    """`jobs` chain_table processes of one model, profile, configuration and options. A chain always goes to the same one, which remembers its smallest
    plan: that takes longer than all other answers."""

    def __init__(self, program, archive, profile, config, options, jobs):
        self.command = [program, archive, profile or "-", config, *options]
        self.locks, self.jobs = [threading.Lock() for _ in range(jobs)], [None] * jobs

    def ask(self, budget, chain, slots):
        """The outcome. `slots`: the semaphore of all processes that compute."""
        at = zlib.crc32(chain.encode()) % len(self.jobs)
        with self.locks[at], slots:
            line = self.answer(at, f"{budget or 0} {chain}\n")
        if not line:
            raise SystemExit(f"joint.py: exit {self.jobs[at].wait()} at --memory {budget} --passes {chain}: {' '.join(self.command)}")
        outcome = json.loads(line)
        return {**outcome, **read_error(outcome["error"], outcome["exit"], 0)} if outcome["exit"] else outcome

    def answer(self, at, question):
        job = self.jobs[at] = self.jobs[at] or subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        job.stdin.write(question)
        job.stdin.flush()
        return job.stdout.readline()

    def close(self):
        for job in self.jobs:
            if job:
                job.communicate()


class Runs:
    """Compiles and keeps outcomes in `store`, a file of JSON lines. Thread-safe.

    An outcome: {"exit"} and, with exit 0, {"step_ns", "arena", "peak"}; otherwise {"error"}, and for exit 80 {"needs"}, the bytes of the smallest plan.
    Of `auto` also {"cpu_s", "rss_mib", "bound_ns", "simulated", "busiest", "parts_ns"}.
    """

    def __init__(self, dcc, store, limit, any_build=False, jobs=2):
        self.dcc, self.store, self.limit = dcc, store, limit
        self.slots = threading.Semaphore(jobs)  # processes of dcc and chain_table at once
        self.build = subprocess.run([dcc, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        self.without_search = "any" if any_build else sources_digest(dcc) or self.build
        self.lock, self.digests, self.ran = threading.Lock(), {}, 0
        self.known = {}
        if os.path.exists(store):
            with open(store) as file:
                for line in file:
                    if line.endswith("\n"):
                        key, *aliases, outcome = json.loads(line)
                        for name in (key, *aliases):
                            self.known[name] = outcome

    def digest(self, path):
        if path not in self.digests:
            self.digests[path] = file_digest(path)
        return self.digests[path]

    def compile(self, archive, profile, config, options, budget, chain=None, table=None):
        """The outcome. `chain`: text of passes that run as they are, asked of `table`; None: the default chain."""
        memory = ["--memory", str(budget)] if budget else []
        what = [self.digest(archive), self.digest(profile) if profile else "", self.digest(config), *options, *memory, chain or "auto"]
        key = sha(self.build if chain is None else self.without_search, *what)
        with self.lock:
            if key in self.known:
                return self.known[key]
        outcome = table.ask(budget, chain, self.slots) if chain else self.run(self.command(archive, profile, config, [*options, *memory]))
        with self.lock:
            self.ran += 1
            self.known[key] = outcome
            aliases = [sha("any", *what)] if chain else []
            with open(self.store, "a") as file:
                file.write(json.dumps([key, *aliases, outcome]) + "\n")
        return outcome

    def command(self, archive, profile, config, options):
        command = [self.dcc, "compile", archive, "--config", config, "--no-cache", "--json", *options]
        return command + (["--profile", profile] if profile else [])

    def compare(self, archive, profile, config, options, budget, chain, outcome):
        """What dcc compile says otherwise of a fixed chain than `outcome`, as a sentence; None if nothing."""
        memory = ["--memory", str(budget)] if budget else []
        made = self.run([*self.command(archive, profile, config, [*options, *memory]), "--passes", chain])
        other = [
            f"{name} {outcome.get(name)} but dcc compile {made.get(name)}"
            for name in ("exit", "step_ns", "arena", "needs")
            if outcome.get(name) != made.get(name)
        ]
        return f"--memory {budget} --passes {chain}: {', '.join(other)}" if other else None

    def run(self, command):
        with self.slots, tempfile.TemporaryDirectory(prefix="dcc-joint-") as folder:
            plan, said, errors = (os.path.join(folder, name) for name in ("plan.dcp", "said", "errors"))
            with open(said, "w") as out, open(errors, "w") as err:
                job = subprocess.Popen([*command, "-o", plan], stdout=out, stderr=err)
                timer = threading.Timer(self.limit, job.kill)
                timer.start()
                _, status, used = os.wait4(job.pid, 0)
                timer.cancel()
                job.returncode = os.waitstatus_to_exitcode(status)
            outcome = {"exit": job.returncode, "cpu_s": round(used.ru_utime + used.ru_stime, 3), "rss_mib": round(used.ru_maxrss / 1024, 1)}
            with open(said) as out, open(errors) as err:
                return {**outcome, **(read_report(out.read()) if job.returncode == 0 else read_error(err.read(), job.returncode, self.limit))}


def read_report(said):
    report = json.loads(said)
    chosen = next((remark["numbers"] for remark in report["remarks"] if remark["code"] == "chain-chosen"), {})
    bound = report["prediction"]["bounds_ns"].get("over_choices") or chosen.get("bound_ns")
    return {
        "step_ns": report["prediction"]["step_ns"],
        "arena": report["memory"]["arena_bytes"]["device"],
        "peak": report["memory"]["peak"]["bytes"],
        "bound_ns": bound,
        "simulated": chosen.get("simulated"),
        "text": next((remark["text"] for remark in report["remarks"] if remark["code"] == "chain-chosen"), ""),
        "busiest": max(("compute", "communication", "copy"), key=lambda name: report["prediction"].get(name + "_ns", 0)),
        "parts_ns": parts_of(report["prediction"], bound or 0),
    }


def parts_of(prediction, bound):
    """What the step takes more than the bound, as parts that add up, in nanoseconds. Of the plan's own bounds (src/sim/bounds.h):

    work: its kernels, or its transfers, alone take longer than the bound. ends: what must come before and after them. memory: what has to
    wait for room. contention: kernels and transfers at the same time. order: the rest, which another order of the same work might save.
    """
    parts, at = {}, bound
    for part, name in (("work", "full_overlap"), ("ends", "with_ends"), ("memory", "within_memory"), ("contention", "with_contention")):
        to = max(at, prediction["bounds_ns"].get(name, 0))
        parts[part], at = to - at, to
    return {**parts, "order": prediction["step_ns"] - at}


def read_error(errors, code, limit):
    lines = [line for line in errors.splitlines() if not line.startswith("note:")]
    text = lines[0] if lines else f"killed after {limit} s" if code < 0 else "no message"
    needs = re.search(r"smallest that was found takes --memory (\d+)", text) or re.search(r"needs (\d+) bytes", text)
    return {"error": text[:300], **({"needs": int(needs[1])} if needs and code == REFUSED else {})}


# DisCo and what it is compared with: other kernels than those of the default, which does not try them.
FUSION = ("no-fusion", "op-fusion", "allreduce-fusion", "default-fusion", "ddp", "disco")


def chain_texts(dcc, archive):
    """Name to text of all named chains, and the names of the passes that a chain may leave out, in a list."""
    listed = subprocess.run([dcc, "passes"], capture_output=True, text=True, check=True).stdout.splitlines()
    names = [line.split()[1] for line in listed if line.startswith("--chain")]
    names = [name for name in names if name not in FUSION]
    passes = [re.match(r"[\w-]+", line)[0] for line in listed if re.match(r"[a-z]", line)]
    needed = {"normalize-graph", "shard-parameters", "insert-collectives", "add-update", "schedule", "layout-arenas"}
    texts = {}
    with tempfile.TemporaryDirectory(prefix="dcc-joint-") as folder:
        plan = os.path.join(folder, "plan.dcp")
        for name in names:
            command = [dcc, "compile", archive, "--world", "4", "--ranks-per-host", "2", "--no-cache", "--chain", name, "-o", plan]
            made = subprocess.run(command, capture_output=True, text=True)
            if made.returncode:
                sys.exit(f"joint.py: {' '.join(command)}: {made.stderr}")
            said = subprocess.run([dcc, "inspect", plan, "--as=json"], capture_output=True, text=True, check=True).stdout
            texts[name] = json.loads(said)["passes"]
    return texts, [name for name in passes if name not in needed]


def without(text, pass_name):
    """The chain's text without that pass, or None if it has none."""
    calls = text.split(",")
    rest = [call for call in calls if call.split("=")[0] != pass_name]
    return ",".join(rest) if len(rest) < len(calls) else None
