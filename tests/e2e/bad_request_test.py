"""Bad requests: command lines, configurations, launchers and outputs that cannot be served."""

import json
import os
import re
import shutil
import subprocess
import unittest

import torch
from torch import nn

import jobs
import running


WITHOUT_RECOMPUTE = "normalize-graph,shard-parameters=3,insert-collectives,add-update,schedule,layout-arenas"


class Unusual(nn.Module):
    """Has two operators that no compiler of training steps needs to know."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        y = self.inner(x)
        return (torch.special.erfcx(y) + torch.special.erfcx(y * 2) + torch.special.bessel_j0(x) * torch.special.bessel_j0(x * 2)).sum()


class BadRequestTest(jobs.JobTest):
    @classmethod
    def setUpClass(cls):
        cls.model = running.archive("mlp")
        cls.plan = running.compile_plan(cls.model, 2, 3)

    def compile(self, *options, output="out.dcp"):
        return jobs.dcc("compile", self.model, "--world", "2", "--no-cache", *options, "-o", self.path(output))

    def arguments(self, *options, plan=None):
        return [plan or self.plan, "--weights", self.model, "--data", "synthetic", *options]

    def train(self, *options):
        return jobs.dcrun("-n", "2", *self.arguments(*options))

    def test_usage_of_dcc(self):
        def usage(words, *arguments):
            result = jobs.dcc(*arguments)
            self.assertEqual(result.code, 64, result.err)
            self.assertRegex(result.err, r"^error\[DC2[68]\d\d\]: ")
            for word in words:
                self.assertIn(word, result.err)

        usage(["unknown option '--wrld'", "did you mean '--world'?", "dcc compile --help"], "compile", self.model, "--wrld", "2", "-o", "x")
        usage(["unknown command 'compil'", "did you mean 'compile'?"], "compil", self.model)
        usage(["unknown command 'lss'", "did you mean 'ls'?"], "cache", "lss")
        usage(["plan is required", "dcc verify --help"], "verify")
        usage(["foo", "summary,text,json,memory"], "inspect", self.plan, "--as=foo")
        usage(["unknown command 'diff'", "the commands are compile, frontier, profile, inspect"], "diff", self.plan, self.plan)
        usage(["no command given", "compile"])
        usage(["--world", "0"], "compile", self.model, "-o", "output", "--world", "0")  # 'output' is a value, not a command
        usage(["--zero", "not in range 0 to 3"], "compile", self.model, "--world", "2", "--zero", "4", "-o", self.path("out"))
        usage(
            ["no chain 'zero4'", "did you mean 'zero0', 'zero1', 'zero2' or 'zero3'?"],
            "compile",
            self.model,
            "--world",
            "2",
            "--chain",
            "zero4",
            "-o",
            self.path("out"),
        )
        usage(
            ["no pass 'prefetch-gather'", "did you mean 'prefetch-gathers'?"],
            "compile",
            self.model,
            "--world",
            "2",
            "--passes",
            "schedule,prefetch-gather",
            "-o",
            self.path("out"),
        )
        usage(
            ["prefetch-gathers cannot come after overlap-reductions"],
            "compile",
            self.model,
            "--world",
            "2",
            "--passes",
            "schedule,overlap-reductions,prefetch-gathers",
            "-o",
            self.path("out"),
        )
        usage(["schedule takes no argument"], "compile", self.model, "--world", "2", "--passes", "schedule=3", "-o", self.path("out"))
        usage(
            ["shard-parameters takes a ZeRO stage, 0 to 3, not 4"],
            "compile",
            self.model,
            "--world",
            "2",
            "--passes",
            "normalize-graph,shard-parameters=4,insert-collectives,add-update,schedule,layout-arenas",
            "-o",
            self.path("out"),
        )
        for missing, needs, chain in (
            ("shard-parameters", "insert-collectives", "normalize-graph,insert-collectives,add-update"),
            ("insert-collectives", "add-update", "normalize-graph,shard-parameters=3,add-update"),
        ):
            chain += ",schedule,layout-arenas"
            usage([f"{needs} needs {missing} before it"], "compile", self.model, "--world", "2", "--passes", chain, "-o", self.path("out"))
        usage(["--zero", "--chain"], "compile", self.model, "--world", "2", "--chain", "zero1", "--zero", "1", "-o", self.path("out"))
        usage(["--passes must end with layout-arenas"], "compile", self.model, "--world", "2", "--passes", "normalize-graph", "-o", self.path("out"))
        usage(["--world must be"], "compile", self.model, "--world", "0", "-o", self.path("out"))
        usage(["'lots' is not a number of bytes", "512MiB"], "compile", self.model, "--world", "2", "--memory", "lots", "-o", self.path("out"))
        usage(["--memory: 'lots' is not"], "simulate", self.path("plan.dcp"), "--memory", "lots")
        usage(["--keep: 'lots' is not"], "cache", "gc", "--keep", "lots")
        # As "$OUT" of a variable that is not set.
        usage(["--output: the value is empty"], "compile", self.model, "--world", "2", "-o", "")
        usage(["--config: the value is empty", "leave the option out"], "compile", self.model, "--world", "2", "--config", "", "-o", self.path("out"))
        usage(["plan: the value is empty"], "inspect", "")
        self.nothing_at("out")

    def test_usage_of_dcrun(self):
        for option in ("--save", "--metrics", "--config", "--resume"):
            self.refused(self.train(option, ""), 64, option + ": the value is empty", "leave the option out")
        self.refused(self.train("--stesp", "3"), 64, "unknown option '--stesp'", "did you mean '--steps'?")
        self.refused(jobs.dcrun(), 64, "no plan given", "--help")
        self.refused(jobs.dcrun(self.plan), 64, "no --weights")
        self.refused(jobs.dcrun(self.plan, "--weights", self.model), 64, "no --data")
        self.refused(self.train("--steps", "0"), 64, "--steps")
        self.refused(self.train("--comm", "nccl"), 64, "--comm")
        self.refused(jobs.dcrun("-n", "0", *self.arguments()), 64, "-n")
        self.refused(jobs.dcrun("-n", "2", self.plan, "--weights", "x.bin", "--data", "synthetic"), 64, "init:SEED")
        self.refused(jobs.dcrun("-n", "2", self.plan, "--weights", "init:x", "--data", "synthetic"), 64, "init:0")
        self.refused(jobs.dcrun("-n", "2", self.plan, "--weights", "init:1", "--data", "x.bin:int7"), 64, "uint16, uint32 or int64")

    def test_what_all_ranks_find_is_said_once(self):
        unknown = self.write("unknown.json", json.dumps({"optimizer": {"lrr": 1}}))
        for result in (self.train("--config", unknown), self.train("--weights", self.path("none.pt2")), jobs.dcrun("-n", "3", *self.arguments())):
            self.assertNotEqual(result.code, 0)
            self.assertEqual(result.err.count("error[DC"), 1, result.err)

    def test_standard_streams_that_are_closed_or_full(self):
        plan = self.path("closed.dcp")
        program = os.path.join(running.BIN, "dcc")
        compile = f"{program} compile {self.model} --world 2 --no-cache -o {plan}"
        for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
            self.assertEqual(subprocess.run(f"exec {compile} {closed}", shell=True, timeout=60, capture_output=True).returncode, 0, closed)
            self.assertEqual(jobs.dcc("verify", plan).code, 0)
            os.remove(plan)
        result = subprocess.run(f"exec {program} inspect {self.plan} --as=json >/dev/full", shell=True, timeout=60, stderr=subprocess.PIPE, text=True)
        self.assertEqual(result.returncode, 74)
        self.assertIn("cannot write to standard output", result.stderr)

    def test_few_threads(self):
        """libtorch's own pools hang, or end the process, when the system refuses them a thread."""
        plan = self.path("threads.dcp")
        jobs.dcc("compile", self.model, "--world", "2", "--threads", "3", "--no-cache", "-o", plan)
        codes = []
        for threads in (1, 2, 3, 4, 6, 12):
            variables = {"LD_PRELOAD": os.path.join(running.LIB, "libfew_threads.so"), "FEW_THREADS": str(threads)}
            result = jobs.dcrun("-n", "2", *self.arguments(plan=plan), environment=variables)
            codes.append(result.code)
            if result.code:
                self.refused(result, 69, "the system refuses another thread", "raise the limit")
        self.assertEqual((codes[0], codes[-1]), (69, 0))

    def test_units_of_bytes(self):
        for text, budget in (("20KB", 20000), ("20KiB", 20480), ("20K", 20480), ("0.02MB", 20000)):
            self.refused(self.compile("--memory", text), 80, f"budget is {budget}")

    def test_every_command_has_its_own_example(self):
        for command in ("compile", "profile", "inspect", "verify", "simulate", "calibrate", "opt", "passes", "cache", "cache ls", "cache gc"):
            self.assertIn("\n  dcc " + command, jobs.dcc(*command.split(), "--help").out, command)

    def test_configuration(self):
        unknown = self.write("unknown.json", json.dumps({"optimizer": {"lrr": 1}}))
        self.refused(self.compile("--config", unknown), 78, "unknown key 'lrr' in 'optimizer'; did you mean 'lr'?")
        self.refused(self.train("--config", unknown), 78, "unknown key 'lrr' in 'optimizer'; did you mean 'lr'?")
        for section, hint in (
            ({"lr": 1}, "unknown key 'lr' in the training configuration; give it in 'optimizer'"),
            ({"schedule": {"peak": 1}}, "unknown key 'peak' in 'schedule'; choose from kind, warmup, steps"),
        ):
            self.refused(self.compile("--config", self.write("unknown.json", json.dumps(section))), 78, hint)
        broken = self.write("broken.json", '{"optimizer": ')
        for result in (self.compile("--config", broken), self.train("--config", broken)):
            self.assertIn(result.code, (65, 78), result.err)
            self.assertIn("broken.json", result.err)
        other = self.write("other.json", json.dumps({"optimizer": {"kind": "sgd"}}))
        self.refused(self.train("--config", other), 78, "kind of optimizer", "compile again")
        self.nothing_at("out")

    def test_a_budget_that_is_too_small(self):
        message = self.refused(self.compile("--memory", "16KiB"), 80, "budget is 16384", "at index ", "module '", "raise --memory")
        values = [line for line in message.splitlines()[1:] if line.startswith("  ") and ("KiB" in line or " B " in line)]
        self.assertGreaterEqual(len(values), 4, message)
        self.assertIn("param.2.weight", message)
        self.nothing_at("out")

    def test_the_least_budget_that_works_is_named(self):
        """With offloading too: the budget that the error names has a plan, and one byte less is refused with the same words."""
        host, disk = ("--offload-space", "host"), ("--offload-space", "disk")
        for offload in ((), host, disk, (*host, "--host-memory", "4KiB"), (*host, "--host-memory", "1MiB"), (*disk, "--disk-memory", "2KiB")):
            with self.subTest(offload=offload):
                message = self.refused(self.compile("--memory", "1KiB", *offload), 80, "budget of 1024 bytes", "at index ", "module '", "takes --memory ")
                values = [line for line in message.splitlines()[1:] if line.startswith("  ") and ("KiB" in line or " B " in line)]
                self.assertGreaterEqual(len(values), 4, message)
                self.assertEqual("let --chain auto offload" in message, not offload)
                least = int(re.search(r"takes --memory (\d+) ", message).group(1))
                self.assertEqual(self.compile("--memory", str(least), *offload, output="least.dcp").code, 0)
                if len(offload) > 2:  # with little room there, less than what is found may work too
                    self.assertIn(f"raise --memory or {offload[2]}", message)
                    continue
                self.refused(self.compile("--memory", str(least - 1), *offload), 80, f"takes --memory {least} ")
                self.nothing_at("out")

    def test_little_room_outside_of_the_device(self):
        """Thousands of positions are above the budget when the host is full; before, a compile took hours here."""
        model = os.path.join(running.ROOT, "tests", "data", "llama_8b_cuda.pt2")
        asked = (model, "--no-cache", "--world", "8", "--search-effort", "1", "--offload-space", "host", "--host-memory", "1GiB", "-o", self.path("out.dcp"))
        message = self.refused(jobs.dcc("compile", *asked, "--memory", "9GiB"), 80, "takes --memory ", "raise --memory or --host-memory")
        least = int(re.search(r"takes --memory (\d+) ", message).group(1))
        self.assertEqual(jobs.dcc("compile", *asked, "--memory", str(least)).code, 0)

    def test_requests_that_contradict_themselves(self):
        def refused(code, words, *options, command="compile"):
            output = () if command == "simulate" else ("-o", self.path("out.dcp"))
            result = jobs.dcc(command, self.model, "--no-cache", *options, *output)
            self.refused(result, code, *words)
            self.assertEqual(result.err.count("error[DC"), 1)
            self.nothing_at("out")

        two, tight = ("--world", "2"), ("--memory", "20KiB")
        disk, host = ("--offload-space", "disk"), ("--offload-space", "host")
        refused(78, ["DC7036", "--ranks-per-host 3", "--world 4"], "--world", "4", "--ranks-per-host", "3")
        refused(78, ["DC7036", "--world 6"], "--world", "6", "--ranks-per-host", "4", "--chain", "hsdp")
        refused(78, ["DC7035", "--disk-memory", "goes to host"], *two, *tight, *host, "--disk-memory", "1MiB")
        refused(78, ["DC7035", "--host-memory", "goes to disk", "--offload-space host"], *two, *tight, *disk, "--host-memory", "1MiB")
        refused(78, ["DC7035", "--disk-memory"], *two, *tight, "--disk-memory", "1MiB")
        refused(64, ["--recompute full needs the pass recompute"], *two, "--recompute", "full", "--passes", WITHOUT_RECOMPUTE)
        for effort in ("0", "-1"):
            refused(64, ["--search-effort must be at least 1"], *two, "--search-effort", effort)
            refused(64, ["--search-effort must be at least 1"], *two, "--search-effort", effort, command="frontier")
        refused(64, ["--search-effort", "'many' is not a whole number"], *two, "--search-effort", "many")
        # Copies that were not measured.
        profile = {"format": "dcc-profile", "version": 2, "model_digest": "", "kernels": [], "collectives": [], "copies": []}
        profile["machine"] = {"cpu": "x", "cores": 2, "software": "x", "communicator": "local", "launcher": "x", "ranks": 2, "threads": 1}
        timing = {"bytes": 4096, "median_ns": 1000, "fastest_ns": 900, "deviation_ns": 10, "samples": 9}
        none = self.write("none.json", json.dumps(profile))
        profile["copies"] = [{"from": a, "to": b, **timing} for a, b in (("device", "host"), ("host", "device"), ("device", "disk"))]
        hosts = self.write("hosts.json", json.dumps(profile))
        for command in ("compile", "frontier", "simulate"):
            refused(78, ["DC7034", "no copies between device and disk", "--offload-dir"], *two, *disk, "--profile", none, command=command)
            refused(78, ["DC7034", "no copies between device and host"], *two, *host, "--profile", none, command=command)
        refused(78, ["DC7034", "no copies between device and disk"], *two, *disk, "--profile", hosts)
        self.assertEqual(self.compile(*host, "--profile", hosts, "--memory", "1MiB").code, 0)

    def test_options_that_do_nothing_are_noted(self):
        result = self.compile("--offload-space", "host")
        self.assertEqual(result.code, 0)
        self.assertIn("note: --offload-space does nothing without --memory", result.err)
        self.assertNotIn("does nothing", self.compile("--offload-space", "host", "--memory", "1MiB").err)
        self.assertNotIn("does nothing", self.compile("--chain", "zero-offload", "--offload-space", "host").err)
        self.assertIn("note: --offload-space does nothing here: the chain", self.compile("--zero", "1", "--offload-space", "host").err)
        for option, value in (("--search-effort", "3"), ("--search-time", "1")):
            self.assertIn(f"note: {option} does nothing here: only --chain auto searches", self.compile("--zero", "2", option, value).err)
            self.assertNotIn("does nothing", self.compile(option, value).err)
        self.assertIn("note: --host-memory does nothing without --offload-space", self.compile("--host-memory", "1MiB").err)
        self.assertNotIn("does nothing", self.compile("--chain", "zero-offload", "--host-memory", "1GiB").err)

    def test_unsupported_operators_are_listed_together(self):
        from dcc_export import export_train_step

        model = self.path("unusual.pt2")
        export_train_step(Unusual(), (torch.randn(2, 4),), model)
        result = jobs.dcc("compile", model, "--world", "2", "--no-cache", "-o", self.path("out.dcp"))
        self.refused(result, 81, "aten.special_bessel_j0.default (2x", "aten.special_erfcx.default (2x", "root module", "export it again")
        self.nothing_at("out")

    def test_outputs_that_cannot_be_written(self):
        nowhere = "/proc/nowhere"
        blocked = self.write("a-file") + "/below"
        for bad in (nowhere + "/x", blocked, self.folder):
            result = jobs.dcc("compile", self.model, "--world", "2", "--no-cache", "-o", bad)
            self.refused(result, 73, f"cannot write {bad}")
            self.refused(jobs.dcc("profile", self.model, "-o", bad), 73, f"cannot write {bad}")
            self.refused(jobs.dcc("profile", self.model, "-n", "2", "-o", bad), 73, f"cannot write {bad}")
            self.refused(self.train("--metrics", bad), 73, bad)
            self.refused(self.train("--trace", bad), 73, bad)
        for bad in (nowhere, blocked):
            self.refused(self.train("--save", bad), 73, bad)
            # The folder that could be made does not stay.
            self.refused(self.train("--save", self.path("out"), "--dump-gradients", bad), 73, bad)
            self.refused(self.train("--save", self.path("out"), "--trace", bad), 73, bad)
        self.refused(self.train("--metrics", "/dev/full"), 74, "/dev/full")
        self.nothing_at("out")

    def test_no_output_takes_the_place_of_an_input(self):
        def copied(source, name):
            shutil.copy(source, self.path(name))
            return self.path(name)

        profile = self.path("measured.json")
        self.assertEqual(jobs.dcc("profile", self.model, "-o", profile).code, 0)
        model, plan, prof, config = copied(self.model, "m.pt2"), copied(self.plan, "p.dcp"), copied(profile, "prof.json"), self.write("train.json", "{}")
        tokens = self.write("samples.safetensors", b"samples")
        other = os.path.join(os.path.dirname(model), ".", "m.pt2")
        link = self.path("link.pt2")
        os.symlink(model, link)
        compiling = ("compile", model, "--world", "2", "--profile", prof, "--config", config, "--no-cache", "-o")
        training = ("-n", "2", plan, "--weights", model, "--data", tokens, "--config", config, "--steps", "20")
        inputs = (model, plan, prof, config, tokens)
        before = [os.stat(name) for name in inputs]
        for result in (
            *(jobs.dcc(*compiling, output) for output in (model, other, link, prof, config)),
            jobs.dcc("profile", model, "-o", model),
            jobs.dcc("profile", model, "-n", "2", "-o", model),
            jobs.dcc("frontier", model, "--world", "2", "--profile", prof, "-o", prof),
            jobs.dcc("inspect", plan, "--as=text", "-o", plan),
            jobs.dcc("calibrate", plan, "--profile", prof, "--recorded", prof, "-o", plan),
            *(jobs.dcrun(*training, option, output) for option in ("--trace", "--record-profile") for output in (plan, model, tokens, config)),
            jobs.dcrun(*training, "--metrics", plan, "--overwrite"),
            jobs.dcrun(*training[:-4], "--data", f"{tokens}:uint16", "--trace", tokens),
        ):
            self.refused(result, 64, "DC1011", "give the output another name")
        self.assertEqual([(one.st_ino, one.st_size) for one in before], [(one.st_ino, one.st_size) for one in map(os.stat, inputs)])

    def test_launchers_that_contradict_each_other(self):
        torchrun = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        open_mpi = {f"OMPI_COMM_WORLD_{name}": value for name, value in (("RANK", "1"), ("SIZE", "2"), ("LOCAL_RANK", "1"), ("LOCAL_SIZE", "2"))}
        both = {**torchrun, **open_mpi, "PMIX_NAMESPACE": "1234"}
        self.refused(jobs.dcrun(*self.arguments(), environment=both), 78, "RANK=0", "OMPI_COMM_WORLD_RANK=1", "unset")
        self.refused(jobs.dcrun("-n", "2", *self.arguments(), environment=torchrun), 78, "leave out -n")
        broken = {**torchrun, "RANK": "two"}
        self.refused(jobs.dcrun(*self.arguments(), environment=broken), 78, "RANK")
        job = self.start("mpirun", 2, ["-n", "2", *self.arguments()])
        result = job.finish()
        self.assertEqual(result.code, 78, result.err)
        self.assertIn("leave out -n", result.err)

    def test_one_rank_with_another_plan(self):
        other = running.compile_plan(self.model, 2, 0)
        self.ranks_differ([self.arguments(), self.arguments(plan=other)], "the plan of rank 1 differs from rank 0's")

    def test_one_rank_with_other_options(self):
        self.ranks_differ([self.arguments("--lr", "0.1"), self.arguments()], "the run options of rank 1 differs from rank 0's")

    def test_one_rank_of_another_version(self):
        """As if one host had another build: its kernels may give other bits."""
        with open(jobs.DCRUN, "rb") as file:
            program = file.read()
        (identity,) = set(re.findall(rb"dcrun [0-9.]+ \(sources [0-9a-f]{16}\)", program))
        other = self.write("dcrun", program.replace(identity, identity[:-2] + bytes([identity[-2] ^ 1]) + b")"))
        os.chmod(other, 0o755)
        self.ranks_differ([self.arguments(), self.arguments()], "the version of dcrun of rank 1 differs from rank 0's", (jobs.DCRUN, other))

    def ranks_differ(self, arguments, sentence, programs=(jobs.DCRUN, jobs.DCRUN)):
        started = []
        for rank, mine in enumerate(arguments):
            variables = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
            place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(os.getpid())}
            job = jobs.Job([programs[rank], *mine], {**variables, **place})
            self.addCleanup(job.end)
            started.append(job)
        for job in started:
            self.refused(job.finish(), 76, sentence, "same arguments and files")


if __name__ == "__main__":
    unittest.main()
