"""Plans that shard inside hosts and repeat the shards across them: equal bits over communicators, schedules and budgets; resuming; hosts of a lab.

What they train is compared with PyTorch by parity.py (`--only hsdp`). The lab needs root and network namespaces; skipped elsewhere.

    build/venv/bin/python tests/e2e/hosts_test.py
    DCC_SLOW_TESTS=1 build/venv/bin/python tests/e2e/hosts_test.py     # more models and meshes
"""

import json
import os
import re
import subprocess
import unittest

import bits_case
import jobs
import resume_test
import rotation
import running
import tcp_test
import torch
from safetensors.torch import load_file

# (model, ranks, ranks of a host, accumulation, settings)
CASES = [("tiny-llama", 4, 2, 1, "clipped"), ("tiny-llama bfloat16", 4, 2, 2, "clipped"), ("mlp", 6, 3, 2, "unclipped")]
MORE = [
    ("mlp", 6, 2, 1, "clipped"),
    ("tiny-llama-tied", 4, 2, 2, "clipped"),
    ("tiny-mixtral", 4, 2, 1, "clipped"),
    ("tiny-gpt2 dropout", 4, 2, 2, "clipped"),
    ("tiny-llama autocast", 4, 2, 1, "unclipped"),
]
PLAIN = "split-by-host=2,normalize-graph,shard-parameters=3,insert-collectives,add-update,schedule,{}layout-arenas"
LAB = os.path.join(running.ROOT, "scripts", "netlab.sh")


def compiled(subject, world, per_host, accumulation, settings, *options, chain="hsdp"):
    model = running.archive(*bits_case.SUBJECTS[subject])
    config = running.train_config(**bits_case.SETTINGS[settings])
    plan = running.compile_plan(model, world, chain, accumulation, "--ranks-per-host", str(per_host), *options, config=config)
    return plan, model


def owned(elements, members):
    """Elements of a value that each of so many ranks owns: equal shards of whole 32s, the last ones shorter."""
    shard = -(-elements // members // 32) * 32
    return [max(0, min(elements - member * shard, shard)) for member in range(members)]


def hand_count(plan, saved):
    """Bytes per step that each of two hosts of two ranks sends to the other, of a model of f32 parameters only."""
    numels = [len(body) // 4 for _, _, body in saved.values()]
    table = 2 * 2 * 8 * (len(numels) + 2)  # two ranks send their row of f64, a column per parameter and two more, to two ranks
    said = running.inspect(plan)
    if len(said["mesh"]) == 2:
        # Of a shard two ranks, one on each host, own parts; one sends the summand of the other's part and the sum of its own: together the shard.
        shards = sum(-(-numel // 2 // 32) * 32 for numel in numels)
        return [2 * 4 * shards + table] * 2
    sent = [table, table]
    for host, there in ((0, 1), (1, 0)):
        for run in said["step"]:
            for instruction in said["programs"][run["program"]]["instructions"]:
                if instruction["kind"] != "collective" or instruction["phase"] == "update":
                    continue
                for buffer in instruction["buffers"]:
                    parts = owned(buffer["elements"], 4)
                    # Ranges that travel: of a gather this host's, of a reduction the other's. Two ranks take or give each.
                    whose = host if instruction["collective"] == "all_gather" else there
                    sent[host] += run["repeat"] * 2 * 4 * sum(parts[2 * whose : 2 * whose + 2])
    return sent


def groups(plan):
    """The axes of the groups of a plan."""
    return {group["axis"] for group in running.inspect(plan)["groups"]}


@rotation.taking_turns(2)
class HostsTest(tcp_test.TcpCase):
    """Over every communicator; with tcp, hosts are known by LOCAL_WORLD_SIZE."""

    def pairs_of_mpirun(self, arguments):
        """Four ranks of mpirun, which find in their variables that two share each host."""
        places = "OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=$((OMPI_COMM_WORLD_RANK % 2))"
        *mpirun, dcrun = running.launch("mpirun", 4, [])
        return self.start_all([([*mpirun, "sh", "-c", f'{places} exec "$@"', "sh", dcrun, *arguments], {})])

    def test_equal_bits_over_communicators(self):
        for subject, world, per_host, accumulation, settings in CASES + (MORE if running.SLOW else []):
            with self.subTest(subject, world=world, per_host=per_host):
                plan, self.model = compiled(subject, world, per_host, accumulation, settings)
                self.assertEqual(groups(plan), {"host", "dp", "host+dp"})
                expected = running.train(plan, self.model, world, bits_case.STEPS, "--poison")
                self.assertEqual(expected.header["communicator"], "local")
                self.assert_same(expected, self.trained(self.hosts(world, self.arguments(plan), per_host)), "tcp")
                mpi = running.train(plan, self.model, world, bits_case.STEPS, "--comm", "mpi", launcher="mpirun")
                self.assertEqual(mpi.header["communicator"], "mpi")
                self.assert_same(expected, mpi, "mpi")

    def test_equal_bits_over_schedules_and_budgets(self):
        plan, model = compiled("tiny-llama", 4, 2, 2, "clipped")
        sums = {"reductions": "per-micro-batch", "levels": ["dp", "host"], "shards": "dp"}
        self.assertEqual(running.inspect(plan)["sums"], sums)
        expected = running.train(plan, model, 4, bits_case.STEPS)
        offloads = PLAIN.format("offload-optimizer,offload-activations,offload-parameters,")
        for chain, options in ((PLAIN.format(""), ()), ("hsdp", ("--memory", "1750KiB")), (offloads, ("--memory", "1500KiB", "--offload-space", "host"))):
            with self.subTest(chain, options=options):
                other, _ = compiled("tiny-llama", 4, 2, 2, "clipped", *options, chain=chain)
                self.assertEqual(running.inspect(other)["sums"], sums)
                self.assert_same(expected, running.train(other, model, 4, bits_case.STEPS, "--poison"), chain)
        kinds = [i["kind"] for program in running.inspect(other)["programs"] for i in program["instructions"]]
        self.assertIn("copy", kinds)

    def test_updates_before_the_norm(self):
        """Without clipping; the bits are those of a plan where all updates wait for the norm. The gradients written are whole in both, and near ZeRO-3's."""
        runs, gradients = [], []
        for chain, by_range in ((PLAIN.format(""), False), (PLAIN.format("overlap-reductions,overlap-update,"), True), ("zero3", False)):
            plan, model = compiled("tiny-llama", 4, 2, 1, "unclipped", chain=chain)
            self.assertEqual(running.inspect(plan)["updates_by_range"], by_range)
            folder = running.fresh()
            runs.append(running.train(plan, model, 4, bits_case.STEPS, "--poison", "--dump-gradients", folder))
            gradients.append(load_file(os.path.join(folder, "gradients.safetensors")))
        self.assert_same(runs[0], runs[1], "before the norm")
        for name, flat in gradients[2].items():
            self.assertTrue(torch.equal(gradients[0][name], gradients[1][name]), name)
            self.assertLessEqual(float((flat - gradients[0][name]).norm()), 1e-5 * float(flat.norm()) + 1e-7, name)

    def test_another_order_of_sums_is_another_field(self):
        """Plans with equal fields have equal bits; those with other fields have others, which agree within rounding."""
        runs = {}
        for chain, order in (("hsdp", "per-micro-batch"), ("hsdp", "per-step"), (PLAIN.format(""), "per-step"), ("zero3", "per-step"), ("zero1", "per-step")):
            plan, model = compiled("tiny-llama", 4, 2, 4, "clipped", "--reduction-order", order, chain=chain)
            said = running.inspect(plan)["sums"]
            self.assertEqual(said["reductions"], order)
            self.assertEqual(said["levels"], ["dp"] if chain.startswith("zero") else ["dp", "host"])
            runs.setdefault(str(said), []).append(running.train(plan, model, 4, bits_case.STEPS))
        self.assertEqual([len(same) for same in runs.values()], [1, 2, 2])
        for first, *others in runs.values():
            for other in others:
                self.assert_same(first, other, "equal fields")
        firsts = [same[0] for same in runs.values()]
        self.assertEqual(len({str(run.numbers()) for run in firsts}), 3)
        for run in firsts[1:]:
            for mine, other in zip(run.numbers()[0], firsts[0].numbers()[0], strict=True):
                self.assertAlmostEqual(mine, other, delta=1e-5 * abs(other))

    def test_bytes_to_other_hosts_are_counted(self):
        cases = [("zero3", 1, "tcp"), ("zero3", 4, "tcp"), ("hsdp", 1, "tcp"), ("hsdp", 4, "tcp"), ("zero3", 1, "mpi"), ("hsdp", 4, "mpi")]
        for chain, accumulation, communicator in cases:
            with self.subTest(chain, accumulation=accumulation, communicator=communicator):
                plan, self.model = compiled("tiny-llama", 4, 2, accumulation, "clipped", chain=chain)
                ranks = self.hosts(4, self.arguments(plan), 2) if communicator == "tcp" else self.pairs_of_mpirun(self.arguments(plan))
                got = self.trained(ranks, communicator)
                expected = hand_count(plan, got.tensors())
                said = running.read_across_hosts(self.path("metrics.jsonl"))
                steps = bits_case.STEPS
                hosts = [{"first_rank": 2 * i, "ranks": 2, "across_hosts_bytes": steps * bytes_} for i, bytes_ in enumerate(expected)]
                self.assertEqual(said, {"step": steps, "steps": steps, "hosts": hosts})
                self.assertEqual(got.header["hosts"], 2)
                # Rank 0 owns a whole shard of everything, rank 1 never more.
                own = sum(row["across_hosts_bytes"] for row in got.steps)
                self.assertTrue(steps * expected[0] / 2 <= own < steps * expected[0], own)
                counts = sorted({str(bytes_) for bytes_ in expected}, key=int)
                self.assertIn(f"each of 2 hosts sent {' to '.join(counts)} bytes per step to other hosts\n", ranks[0].finish().out)
                if chain == "hsdp":
                    summary = running.run([os.path.join(running.BIN, "dcc"), "inspect", plan, "--as=summary"]).stdout
                    self.assertIn(f"({expected[0]} bytes) to other hosts", summary)
        local = running.train(plan, self.model, 4, 2)
        self.assertEqual(local.header["hosts"], 1)
        self.assertNotIn("across_hosts_bytes", local.steps[0])

    def test_another_number_of_ranks_on_each_host_is_said(self):
        plan, self.model = compiled("tiny-llama", 4, 2, 1, "clipped")
        said = {}
        for per_host in (1, 2, 4):
            ranks = self.hosts(4, self.arguments(plan, "--comm", "tcp"), per_host)
            self.trained(ranks)
            said[per_host] = [rank.finish().err for rank in ranks]
        self.assertIn("note: the plan is for hosts of 2 ranks, but ranks 0 and 1 are on different hosts", said[1][0])
        self.assertEqual([text for per_host in (2, 4) for text in said[per_host] if "hosts" in text], [])
        self.assertEqual([text for text in said[1][1:] if "hosts" in text], [])

    def test_one_host(self):
        """The bits are those of ZeRO-3 there."""
        flat = bits_case.run_once("tiny-llama", 4, 3)
        plan, model = compiled("tiny-llama", 4, 4, 1, "clipped")
        self.assert_same(flat, running.train(plan, model, 4, bits_case.STEPS), "one host")


@rotation.taking_turns(2)
class HostsResumeTest(resume_test.ResumeCase):
    def test_to_ranks_without_hosts_and_back(self):
        model = "tiny-llama bfloat16"
        hosts, _ = compiled(model, 4, 2, 1, "clipped")
        flat = {world: resume_test.compiled(model, world, 3, 1, resume_test.ADAMW) for world in (3, 4)}
        self.run_to(resume_test.HALF, hosts, model, 4, "hosts", "--save-every", "1")
        start, last = self.state("hosts"), "hosts"
        for hop, (world, plan) in enumerate(((3, flat[3]), (4, hosts), (4, flat[4]), (4, hosts))):
            name = f"hop{hop}"
            self.run_to(resume_test.HALF, plan, model, world, name, "--resume", self.path(last), weights=False)
            self.assert_same_state(start, self.state(name), name)
            last = name

    def test_straight(self):
        plan, _ = compiled("tiny-llama", 4, 2, 2, "clipped")
        self.run_to(resume_test.STEPS, plan, "tiny-llama", 4, "straight", "--save-every", "1", "--poison")
        self.run_to(resume_test.HALF, plan, "tiny-llama", 4, "halves")
        self.run_to(resume_test.STEPS, plan, "tiny-llama", 4, "halves", "--resume", "latest", weights=False)
        self.assertEqual(self.numbers("straight"), self.numbers("halves"))
        self.assert_same_state(self.state("straight"), self.state("halves"))


@rotation.taking_turns(2)
class HostsLabTest(bits_case.BitsCase, jobs.JobTest):
    """Two hosts of two ranks each."""

    NAMES = {"NETLAB": "pairs", "RANKS_PER_HOST": "2"}

    @classmethod
    def lab(cls, *arguments):
        return subprocess.run([LAB, *arguments], env={**os.environ, **cls.NAMES}, capture_output=True, text=True, timeout=60)

    @classmethod
    def setUpClass(cls):
        cls.lab("down")
        raised = cls.lab("up", "2", "1gbit")
        cls.addClassCleanup(cls.lab, "down")
        if raised.returncode != 0:
            raise unittest.SkipTest("no network lab here: " + raised.stderr.strip())

    def train(self, plan, model, name):
        """(the run, bytes that each host sent)"""
        files = ["--metrics", self.path(name + ".jsonl"), "--save", self.path(name + ".safetensors")]
        dcrun = [os.path.join(running.BIN, "dcrun"), plan, "--weights", model, "--data", "synthetic:1", "--steps", str(bits_case.STEPS)]
        job = jobs.Job([LAB, "run", *dcrun, *files], self.NAMES)
        self.addCleanup(job.end)
        result = job.finish()
        self.assertEqual(result.code, 0, result.err)
        run = running.Run(*running.read_metrics(self.path(name + ".jsonl")), self.path(name + ".safetensors"))
        self.assertEqual(run.header["communicator"], "tcp")
        sent = [int(count) for count in re.findall(r"host \d sent (\d+) bytes", result.err)]
        for host, wire in zip(running.read_across_hosts(self.path(name + ".jsonl"))["hosts"], sent, strict=True):
            # What the kernel counted has packet headers, acknowledgements, control messages and connections too.
            counted = host["across_hosts_bytes"]
            self.assertTrue(counted < wire < 1.25 * counted + 400_000, (counted, wire))
        return run, sent

    def test_bits_and_fewer_bytes_between_hosts(self):
        plan, model = compiled("tiny-llama", 4, 2, 4, "clipped")
        got, sent = self.train(plan, model, "hosts")
        self.assert_same(running.train(plan, model, 4, bits_case.STEPS), got, "on two hosts")
        flat = running.compile_plan(model, 4, 3, 4, config=running.train_config(**bits_case.CLIPPED))
        _, flat_sent = self.train(flat, model, "flat")
        self.assertEqual(len(sent), 2)
        for mine, other in zip(sent, flat_sent, strict=True):
            # ZeRO-3 gathers each parameter across hosts in every micro-batch, and reduces as often.
            self.assertLess(mine, other / 4)

    def test_a_profile_has_the_levels(self):
        model = running.archive("mlp")
        measured = subprocess.run(
            [LAB, "run", os.path.join(running.BIN, "dcc"), "profile", model, "-o", self.path("prof.json")],
            env={**os.environ, **self.NAMES},
            capture_output=True,
            text=True,
            timeout=240,
        )
        self.assertEqual(measured.returncode, 0, measured.stderr)
        with open(self.path("prof.json"), encoding="utf-8") as file:
            profile = json.load(file)
        self.assertEqual(profile["machine"]["ranks_per_host"], 2)
        for table in ("collectives", "during_compute"):
            rows = {(row["kind"], row["ranks"], row.get("level", "world")) for row in profile[table]}
            kinds = ("all_gather", "all_reduce", "reduce_scatter")
            self.assertEqual(rows, {(kind, *rest) for kind in kinds for rest in ((4, "world"), (2, "inside"), (2, "across"))})


if __name__ == "__main__":
    unittest.main()
