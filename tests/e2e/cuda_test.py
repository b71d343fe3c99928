"""`dcrun --device cuda` on the doubles of CUDA's libraries (tests/double): a model trains as on the CPU, and what is missing or fails is told.

Nothing about GPUs follows from it.
"""

import itertools
import json
import os
import sys
import time
import unittest

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

import running
from export_case import export_train_step
from rotation import of_today, taking_turns

DOUBLES = os.path.join(running.BIN, "..", "double")
LIBRARIES = {"cuda": "libcuda.so.1", "nvrtc": "libnvrtc.so.13", "cublasLt": "libcublasLt.so.13", "nccl": "libnccl.so.2", "nvml": "libnvidia-ml.so.1"}
STEPS = 4
CUDA = ("--device", "cuda")


class Classifier(nn.Module):
    """All that GPUs have kernels for: products with and without a bias, activations, a norm by hand, a loss."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 40)
        self.scale = nn.Parameter(torch.ones(40))
        self.second = nn.Linear(40, 24, bias=False)
        self.last = nn.Linear(24, 5)

    def forward(self, x, labels):
        x = F.gelu(self.first(x))
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.scale
        return F.cross_entropy(self.last(torch.tanh(self.second(x))), labels)


class Stretched(nn.Module):
    """What neither CPUs nor GPUs have a kernel for; libtorch has one."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv1d(2, 3, 3)

    def forward(self, x):
        return self.layer(x).asinh().square().mean()


class Summed(nn.Module):
    """The gradient of a sum is one number for all; log_sigmoid has two results; the last places are reached by no filter."""

    def __init__(self):
        super().__init__()
        self.rows, self.summed = nn.Linear(9, 4), nn.Linear(9, 3)
        self.transposed = nn.ConvTranspose1d(2, 3, 3, dilation=2, output_padding=1)

    def forward(self, x):
        return self.summed(x).sum() / 64 - F.logsigmoid(self.rows(x)).mean() + self.transposed(x).square().mean()


def environment(missing=(), **more):
    """The doubles in place of CUDA's libraries; in place of those that are missing files that are none, so that no real one is found."""
    folder = os.path.dirname(running.fresh())
    for name, file in LIBRARIES.items():
        if name in missing:
            with open(os.path.join(folder, file), "w") as none:
                none.write("no library")
        else:
            os.symlink(os.path.realpath(os.path.join(DOUBLES, file)), os.path.join(folder, file))
    return {"LD_LIBRARY_PATH": folder, "DCC_CACHE_DIR": os.environ.get("DCC_CACHE_DIR") or os.path.join(running.scratch(), "cache"), **more}


def events_of(trace):
    with open(trace) as file:
        return [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]


def what_ran(event):
    return (event["pid"], event["tid"], *(event["args"][name] for name in ("step", "run", "index")), event["name"])


@taking_turns(2)
class CudaTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.manual_seed(0)
        model, batch = Classifier(), (torch.randn(16, 12), torch.randint(5, (16,)))
        cls.model = running.fresh(".pt2")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
        export_train_step(model, batch, cls.model, optimizer=optimizer, clip_norm=1.0)

    def train(self, plan, world, *options, **more):
        return running.train(plan, self.model, world, STEPS, *options, environment=environment(**more))

    def test_trains_as_on_the_cpu(self):
        for world, zero, accumulation in ((1, 0, 1), (2, 3, 2), (2, 1, 1), (3, 2, 1)):
            with self.subTest(world=world, zero=zero):
                plan = running.compile_plan(self.model, world, zero, accumulation)
                expected = running.train(plan, self.model, world, STEPS)
                got = self.train(plan, world, *CUDA)
                self.assertEqual(got.header["communicator"], "ipc" if world > 1 else "local")
                for name in ("loss", "grad_norm"):
                    for one, other in zip(expected.steps, got.steps, strict=True):
                        self.assertAlmostEqual(one[name], other[name], delta=2e-5 * abs(one[name]))
                self.assertEqual([row["wire_bytes"] for row in got.steps], [row["wire_bytes"] for row in expected.steps])
                self.assertTrue(all(row["host_ms"] > 0 for row in got.steps) and "host_ms" not in expected.steps[0])
                self.assertEqual(set(got.header["start"]), {"files_ms", "memory_ms", "kernels_ms", "weights_ms"})
                again = self.train(plan, world, *CUDA, "--no-graph", "--poison")
                self.assertEqual(again.numbers(), got.numbers())
                self.assertEqual(again.tensors(), got.tensors())
                if world == 1:
                    continue
                each = self.train(plan, world, *CUDA, DOUBLE_GPUS=str(world))
                self.assertEqual(each.header["communicator"], "nccl")
                self.assertEqual(each.numbers(), got.numbers())
                self.assertEqual(each.tensors(), got.tensors())

    def test_ranks_of_a_host_need_no_nccl(self):
        """Each with a GPU; and as was asked for, where there is one."""
        plan = running.compile_plan(self.model, 2, 3)
        with_nccl = self.train(plan, 2, *CUDA, DOUBLE_GPUS="2")
        for options, more in (((), {"missing": ("nccl",)}), ((), {"DOUBLE_NCCL": "21703"}), (("--comm", "local"), {})):
            with self.subTest(options=options, more=more):
                got = self.train(plan, 2, *CUDA, *options, DOUBLE_GPUS="2", **more)
                self.assertEqual(got.header["communicator"], "ipc")
                self.assertEqual(got.numbers(), with_nccl.numbers())
                self.assertEqual(got.tensors(), with_nccl.tensors())

    def test_transformers_train_as_on_the_cpu(self):
        """Attention with shared keys, embeddings, norms, losses; f32 and bf16. Ranks that shard have equal bits again without a graph."""
        cases = (
            ("tiny-llama", (), 2, 3, 2e-5),
            ("tiny-gpt2", (), 1, 0, 2e-5),
            ("tiny-bert", (), 1, 0, 2e-5),
            ("tiny-llama", ("--dtype", "bfloat16"), 1, 0, 5e-3),
        )
        double = environment(DOUBLE_PAUSE_US="0")
        for preset, options, world, zero, tolerance in cases:
            with self.subTest(preset=preset, options=options):
                model = running.archive(preset, *options)
                plan = running.compile_plan(model, world, zero)
                expected = running.train(plan, model, world, 2)
                got = running.train(plan, model, world, 2, *CUDA, environment=double)
                for name in ("loss", "grad_norm"):
                    for one, other in zip(expected.steps, got.steps, strict=True):
                        self.assertAlmostEqual(one[name], other[name], delta=tolerance * abs(one[name]), msg=name)
                if world == 1:
                    continue
                again = running.train(plan, model, world, 2, *CUDA, "--no-graph", "--poison", environment=double)
                self.assertEqual(again.numbers(), got.numbers())
                self.assertEqual(again.tensors(), got.tensors())

    def test_archives_with_cuda_attention(self):
        """`--attention cuda-flash` calls CUDA's operators by name: the kernels of the CPU's, so the same bits, on CPUs and on GPUs."""
        double = environment(DOUBLE_PAUSE_US="0")
        numbers, tensors = {}, {}
        for attention, options in itertools.product(("cpu", "cuda-flash"), ((), CUDA)):
            model = running.archive("tiny-llama", "--dtype", "bfloat16", "--attention", attention)
            got = running.train(running.compile_plan(model, 1, 0), model, 1, 1, *options, environment=double)
            with self.subTest(attention=attention, options=options):
                self.assertEqual(got.numbers(), numbers.setdefault(options, got.numbers()))
                self.assertEqual(got.tensors(), tensors.setdefault(options, got.tensors()))

    def test_products_that_add_and_pairs_of_them(self):
        """In plans for GPUs alone. Near the CPU's numbers, which PyTorch has; equal bits over chains and ZeRO stages."""
        double = environment(DOUBLE_PAUSE_US="0")
        cases = (((), 2e-5, ("zero0", "zero3")), (("--dtype", "bfloat16"), 5e-3, ("fsdp",)))
        for options, tolerance, chains in cases:
            model = running.archive("tiny-llama", *options)
            expected = running.train(running.compile_plan(model, 2, 0), model, 2, 2)
            first = None
            for chain in chains:
                with self.subTest(options=options, chain=chain):
                    plan = running.compile_plan(model, 2, chain, 1, "--device", "cuda")
                    said = running.run([os.path.join(running.BIN, "dcc"), "inspect", plan, "--as=text"]).stdout
                    self.assertIn(" = dc.two_products(", said)
                    self.assertRegex(said, r"dc\.add_product\(|aten\.addmm\.default\(")
                    got = running.train(plan, model, 2, 2, *CUDA, environment=double)
                    for name in ("loss", "grad_norm"):
                        for one, other in zip(expected.steps, got.steps, strict=True):
                            self.assertAlmostEqual(one[name], other[name], delta=tolerance * abs(one[name]), msg=name)
                    first = first or got
                    self.assertEqual(got.numbers(), first.numbers())
                    self.assertEqual(got.tensors(), first.tensors())

    def test_weights_are_drawn_as_on_the_cpu(self):
        """Masters and copies in bf16, whole and in shards, to the bit: what is saved after a step at a learning rate of 0."""
        double = environment(DOUBLE_PAUSE_US="0")
        for options, world, zero in ((("--dtype", "bfloat16"), 1, 0), (("--dtype", "bfloat16"), 2, 3), ((), 2, 1)):
            with self.subTest(options=options, world=world):
                model = running.archive("tiny-llama", *options)
                plan = running.compile_plan(model, world, zero)
                expected = running.train(plan, "init:7", world, 1, "--lr", "0").tensors()
                got = running.train(plan, "init:7", world, 1, "--lr", "0", *CUDA, environment=double).tensors()
                self.assertEqual(got, expected)
                self.assertNotEqual(running.train(plan, "init:8", world, 1, "--lr", "0").tensors(), expected)

    def test_images_experts_and_recurrences_train_as_on_the_cpu(self):
        """Convolutions, batch norms, pooling; choices of experts; an LSTM; sorted hashes. Equal bits again without a graph."""
        cases = {"small-vgg19": 2e-5, "resnet18": 2e-4, "tiny-mixtral": 2e-5, "small-rnnlm": 2e-5, "small-reformer": 2e-5}
        more = {"small-resnet50": 2e-4, "small-transformer": 2e-5}
        double = environment(DOUBLE_PAUSE_US="0")
        for preset, tolerance in of_today((cases | more if running.SLOW else cases).items(), 2):
            with self.subTest(preset=preset):
                model = running.archive(preset)
                plan = running.compile_plan(model, 1, 0)
                # Norms of gradients through dozens of batch norms are 8e-5 from exact ones in f32 (batchnorm_test.py), which a later step multiplies.
                steps = 1 if "resnet" in preset else 2
                expected = running.train(plan, model, 1, steps)
                got = running.train(plan, model, 1, steps, *CUDA, environment=double)
                for name, bound in (("loss", 2e-5), ("grad_norm", tolerance)):
                    for one, other in zip(expected.steps, got.steps, strict=True):
                        self.assertAlmostEqual(one[name], other[name], delta=bound * abs(one[name]), msg=name)
                again = running.train(plan, model, 1, steps, *CUDA, "--no-graph", "--poison", environment=double)
                self.assertEqual(again.numbers(), got.numbers())
                self.assertEqual(again.tensors(), got.tensors())

    def test_what_only_some_models_have_trains_as_on_the_cpu(self):
        model = running.fresh(".pt2")
        export_train_step(Summed(), (torch.randn(4, 2, 9),), model)
        plan = running.compile_plan(model, 1, 0)
        expected = running.train(plan, model, 1, 3)
        got = running.train(plan, model, 1, 3, *CUDA, environment=environment(DOUBLE_PAUSE_US="0"))
        for name in ("loss", "grad_norm"):
            for one, other in zip(expected.steps, got.steps, strict=True):
                self.assertAlmostEqual(one[name], other[name], delta=2e-5 * abs(one[name]), msg=name)

    def refused(self, world, code, text, *options, plan=None, **more):
        begin = time.monotonic()
        with self.assertRaises(running.CommandFailed) as caught:
            self.train(plan or running.compile_plan(self.model, world, 2), world, *CUDA, *options, **more)
        self.assertEqual(caught.exception.code, code, caught.exception)
        self.assertIn(text, str(caught.exception))
        self.assertLess(time.monotonic() - begin, 60)

    def ended(self, plan, world, data, steps, *options, **more):
        """Exit code, what was said at the end, rows of metrics, of a run with these data."""
        metrics = running.fresh(".jsonl")
        arguments = [plan, "--weights", self.model, "--data", data, "--steps", str(steps), "--metrics", metrics, *options]
        surroundings = {**os.environ, **environment(DOUBLE_PAUSE_US="0", **more)}
        try:
            running.run(running.launch("dcrun", world, arguments), env=surroundings)
            code, sentence = 0, ""
        except running.CommandFailed as failure:
            code, sentence = failure.code, str(failure)
        return code, sentence, running.read_metrics(metrics)[1]

    def test_rows_and_ends_are_of_their_steps(self):
        """As on the CPU, though a GPU's inputs are read while it works on the step before, and a row is written while it works on the next one."""
        generator = torch.Generator().manual_seed(1)
        good = {"x": torch.randn(16 * 6, 12, generator=generator), "labels": torch.randint(5, (16 * 6,), generator=generator)}
        nan = good["x"].clone()
        nan[16 * 4 + 2, 5] = float("nan")
        cases = (("good", good, 0, ""), ("not finite", good | {"x": nan}, 84, "is not finite in step {}; nothing was updated"))
        for (name, tensors, code, text), (world, accumulation) in itertools.product(cases, ((1, 1), (1, 2), (2, 1))):
            with self.subTest(name=name, world=world, accumulation=accumulation):
                data, per_step = running.fresh(".safetensors"), world * accumulation
                save_file(tensors, data)
                plan = running.compile_plan(self.model, world, 2 * (world - 1), accumulation)
                expected, got = (self.ended(plan, world, data, 6 // per_step, *options) for options in ((), CUDA))
                self.assertEqual([got[0], expected[0]], [code, code], got[1] + expected[1])
                last = 4 // per_step + 1 if code else 6 // per_step
                for _, sentence, rows in (expected, got):
                    self.assertIn(text.format(last), sentence)
                    self.assertEqual([row["step"] for row in rows], list(range(1, last + 1)))
                for one, other in zip(expected[2], got[2], strict=True):
                    if isinstance(one["loss"], float):
                        self.assertAlmostEqual(one["loss"], other["loss"], delta=2e-5 * abs(one["loss"]))

    def test_no_rank_ends_before_the_others_know_that_a_step_is_not_finite(self):
        """Rank 0's GPU is slow: rank 1 knows long before."""
        data, metrics, plan = running.fresh(".safetensors"), running.fresh(".jsonl"), running.compile_plan(self.model, 2, 2)
        x = torch.ones(16 * 6, 12)
        x[16 * 4 + 2, 5] = float("nan")
        save_file({"x": x, "labels": torch.zeros(16 * 6, dtype=torch.int64)}, data)
        rank = [os.path.join(running.BIN, "dcrun"), plan, "--weights", self.model, "--data", data, "--steps", "3", "--metrics", metrics, *CUDA]
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-x", "LD_LIBRARY_PATH", "-x", "DCC_CACHE_DIR"]
        slow, fast = (["-n", "1", "-x", f"DOUBLE_PAUSE_US={pause}", *rank] for pause in (20000, 0))
        with self.assertRaises(running.CommandFailed) as caught:
            running.run([*command, *slow, ":", *fast], env={**os.environ, **environment()})
        self.assertEqual(caught.exception.code, 84, caught.exception)
        self.assertEqual([row["step"] for row in running.read_metrics(metrics)[1]], [1, 2, 3])

    def test_data_that_end_a_run(self):
        """A label that there is not, in step 4: the run ends after step 3, as on the CPU, and checkpoints are those of their steps."""
        labels = torch.randint(5, (16 * 6,), generator=torch.Generator().manual_seed(1))
        labels[16 * 3 + 7] = 99
        data, plan = running.fresh(".safetensors"), running.compile_plan(self.model, 1, 0)
        save_file({"x": torch.ones(16 * 6, 12), "labels": labels}, data)
        for options in ((), CUDA):
            with self.subTest(options=options):
                saved = os.path.dirname(running.fresh())
                code, sentence, rows = self.ended(plan, 1, data, 6, "--save", saved, "--save-every", "2", *options)
                self.assertEqual(code, 65, sentence)
                self.assertIn("found after step 3", sentence)
                self.assertEqual([row["step"] for row in rows], [1, 2, 3])
                self.assertEqual(sorted(name for name in os.listdir(saved) if name.startswith("step")), ["step-00000002", "step-00000003"])

    def test_traces(self):
        """They have the instructions that a trace of a CPU has, once each in order of their streams, change no number, and are shown next to the plan."""
        for world, options, more in ((1, (), {}), (1, ("--no-graph",), {}), (2, (), {}), (2, (), {"DOUBLE_GPUS": "2"})):
            with self.subTest(world=world, options=options, more=more):
                plan = running.compile_plan(self.model, world, 3 * (world - 1), 2)
                cpu, gpu = running.fresh(".json"), running.fresh(".json")
                running.train(plan, self.model, world, STEPS, "--trace", cpu)
                got = self.train(plan, world, *CUDA, *options, "--trace", gpu, **more)
                self.assertEqual(got.numbers(), self.train(plan, world, *CUDA, *options, **more).numbers())
                expected, events = events_of(cpu), events_of(gpu)
                self.assertEqual([what_ran(event) for event in events], [what_ran(event) for event in expected])
                for before, after in itertools.pairwise(events):
                    if (before["pid"], before["tid"]) == (after["pid"], after["tid"]):
                        self.assertGreaterEqual(after["ts"], before["ts"] + before["dur"] - 0.002)  # microseconds with three digits
                kernels = [e["dur"] for e in events if e["name"] not in ("wait", "copy", "all_gather", "reduce_scatter", "all_reduce")]
                self.assertGreater(min(kernels), 0)
                page = running.fresh(".html")
                running.run([os.path.join(running.BIN, "dcc"), "inspect", "--as=timeline", plan, gpu, "-o", page])
                with open(page, encoding="utf-8") as file:
                    self.assertIn(f'"whole_steps":{STEPS}', file.read())

    def test_what_is_missing_is_named(self):
        for world in (1, 2):
            with self.subTest(world=world):
                self.refused(world, 69, "DC6140", missing=("cuda",))
                self.refused(world, 69, "DC6141", DOUBLE_VERSION="11080")
                self.refused(world, 69, "DC6142", DOUBLE_GPUS="0")
                self.refused(world, 69, "DC6150", missing=("nvrtc",))
                self.refused(world, 69, "DC6157", missing=("cublasLt",))
        self.refused(2, 69, "DC6160", "--comm", "tcp", missing=("nccl",))
        self.refused(2, 69, "DC6161", "--comm", "tcp", DOUBLE_NCCL="21703")

    def test_without_cuda_cpus_train_as_with_it(self):
        plan = running.compile_plan(self.model, 2, 3)
        expected = running.train(plan, self.model, 2, STEPS)
        without = running.train(plan, self.model, 2, STEPS, environment=environment(missing=LIBRARIES))
        self.assertEqual(without.numbers(), expected.numbers())
        self.assertEqual(without.tensors(), expected.tensors())

    def test_a_full_gpu(self):
        """As when others have its memory."""
        self.refused(1, 80, "end what else uses it", DOUBLE_MEMORY="20000")

    def test_a_gpu_that_fails(self):
        """All ranks' GPUs fail here, at one call of their own; each says so."""
        self.refused(1, 69, "DC6143", DOUBLE_FAIL="cuLaunchKernel:20:719")
        for gpus in ("1", "2"):
            self.refused(2, 69, "DC6143", DOUBLE_GPUS=gpus, DOUBLE_FAIL="cuStreamWriteValue32:9:719")

    def test_a_driver_that_shares_no_memory(self):
        """Other processes' memory, or the host's."""
        for call in ("cuIpcGetMemHandle", "cuIpcOpenMemHandle", "cuMemHostRegister"):
            self.refused(2, 69, "DC6149", DOUBLE_FAIL=f"{call}:1:801")

    def test_a_lost_connection(self):
        self.refused(2, 83, "rank 1", DOUBLE_GPUS="2", DOUBLE_NCCL_ERROR="1:4:6")

    def test_what_is_not_there(self):
        with self.assertRaises(running.CommandFailed) as caught:
            recorded = ("--record-profile", running.fresh(".json"))
            running.train(running.compile_plan(self.model, 1, 0), self.model, 1, 5, *CUDA, *recorded, environment=environment())
        self.assertEqual(caught.exception.code, 81)
        self.assertIn("DC6625", str(caught.exception))
        model = running.fresh(".pt2")
        export_train_step(Stretched(), (torch.randn(4, 2, 9),), model)
        with self.assertRaises(running.CommandFailed) as caught:
            running.train(running.compile_plan(model, 1, 0), model, 1, 1, *CUDA, environment=environment())
        self.assertEqual(caught.exception.code, 81)
        for part in ("DC6624", "libtorch is needed for aten.asinh.default"):
            self.assertIn(part, str(caught.exception))

    def test_values_of_a_gpu_do_not_go_to_disk(self):
        passes = "normalize-graph,shard-parameters=0,insert-collectives,add-update,schedule,{}layout-arenas"
        whole = running.inspect(running.compile_plan(self.model, 1, passes.format("")))["arena_bytes"][0]
        budget = ("--offload-space", "disk", "--memory", f"{whole * 9 // 10}B")
        plan = running.compile_plan(self.model, 1, passes.format("offload-optimizer,"), 1, *budget)
        self.assertGreater(running.inspect(plan)["arena_bytes"][2], 0)
        self.refused(1, 81, "DC6626", "--offload-dir", running.scratch(), plan=plan)

    def test_kernels_are_kept_and_collected(self):
        cache = os.path.dirname(running.fresh())
        self.train(running.compile_plan(self.model, 1, 0), 1, *CUDA, DCC_CACHE_DIR=cache)
        kept = len(os.listdir(os.path.join(cache, "kernels")))
        self.assertGreater(kept, 3)
        dcc = [os.path.join(running.BIN, "dcc"), "cache"]
        surroundings = {**os.environ, "DCC_CACHE_DIR": cache}
        self.assertIn(f"{kept} kernels of GPUs", running.run([*dcc, "ls"], env=surroundings).stdout)
        self.assertEqual(running.run([*dcc, "gc", "--keep", "0"], env=surroundings).stdout, f"removed 0 plans and {kept} kernels\n")
        self.assertEqual(os.listdir(os.path.join(cache, "kernels")), [])


if __name__ == "__main__":
    if not os.path.exists(os.path.join(DOUBLES, LIBRARIES["cuda"])):
        sys.exit("cuda_test.py: build the doubles first: ninja cuda_double nvrtc_double cublas_lt_double nccl_double")
    unittest.main()
