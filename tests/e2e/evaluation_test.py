"""`dcrun --eval-every`: the loss on validation data by the plan's evaluation, next to PyTorch's module in eval mode on the same weights.

build/venv/bin/python tests/e2e/evaluation_test.py
"""

import copy
import functools
import os
import unittest

import torch
from safetensors.torch import load_file, save_file

import rotation
import running
from bits_case import BitsCase
from jobs import JobTest, dcc, dcrun
from reference import make_data, strip, workloads
from dcc_export import export_train_step, presets

STEPS = 3
MICRO_BATCHES = 5  # odd: with 2 or 3 ranks some have none in the last round
OVERLAPPED = "normalize-graph,shard-parameters={},insert-collectives,add-update,schedule,bucket-reductions,overlap-reductions,overlap-update,layout-arenas"


class Subject:
    """A preset, its archive with an evaluation, and validation data."""

    def __init__(self, preset, *options):
        torch.set_num_threads(1)
        self.archive = running.archive(preset, *options, "--eval")
        batch, seq = presets.default_shape(preset)
        dtype = options[options.index("--dtype") + 1] if "--dtype" in options else "float32"
        self.options = workloads.Options(batch=batch, seq=seq or 32, dtype=dtype)
        self.workload = workloads.make(self.options, preset=preset)
        self.batch = batch
        self.data = make_data(running.description(self.archive), self.workload.inputs, MICRO_BATCHES * batch + 1)
        self.data_file = running.fresh(".safetensors")
        save_file(self.data, self.data_file)

    def micro_batch(self, index):
        return {name: value[index * self.batch : (index + 1) * self.batch] for name, value in self.data.items()}

    def expected(self, saved):
        """The mean loss of the module in eval mode on the saved weights and buffers."""
        module = copy.deepcopy(self.workload.module)
        state = module.state_dict()
        for name, value in state.items():
            if strip(name, self.workload.root) in saved:
                value.copy_(saved[strip(name, self.workload.root)].reshape(value.shape))
        return mean_loss(module.eval(), [self.micro_batch(i) for i in range(MICRO_BATCHES)], self.options)


def mean_loss(module, micro_batches, options):
    autocast = workloads.autocast_dtype(options)
    losses = []
    for inputs in micro_batches:
        with torch.no_grad(), torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
            losses.append(float(module(**inputs)))
    return sum(losses) / len(losses)


@functools.cache
def subject(*names):
    return Subject(*names)


def evaluates(data_file, every=1, *more):
    return ("--eval-every", str(every), "--eval-data", data_file, *more)


class PyTorchTest(unittest.TestCase):
    def verify(self, names, world, chain, accumulation=1, bound=1e-5, options=()):
        with self.subTest(" ".join(names), world=world, chain=chain):
            one = subject(*names)
            config = running.train_config(optimizer={"kind": "adamw", "lr": 1e-2}, clip_norm=1.0)
            plan = running.compile_plan(one.archive, world, chain, accumulation, *options, config=config)
            run = running.train(plan, one.archive, world, STEPS, "--poison", *evaluates(one.data_file, 2))
            self.assertEqual([row["step"] for row in run.evaluations], [2, STEPS])
            self.assertEqual([row["eval_samples"] for row in run.evaluations], [MICRO_BATCHES * one.batch] * 2)
            expected = one.expected(load_file(run.saved))
            self.assertAlmostEqual(run.evaluations[-1]["eval_loss"], expected, delta=bound * abs(expected))

    def test_dropout_is_off(self):
        self.verify(("tiny-gpt2", "--dropout", "0.3"), 1, 0)
        self.verify(("tiny-gpt2", "--dropout", "0.3"), 2, 3)

    def test_tied_parameters(self):
        self.verify(("tiny-llama-tied",), 3, 0)
        self.verify(("tiny-llama-tied",), 2, 3, accumulation=2)

    def test_running_statistics(self):
        self.verify(("resnet18",), 1, 0, bound=1e-4)

    def test_reduced_precision(self):
        self.verify(("tiny-llama", "--dtype", "bfloat16"), 2, 3, bound=2e-3)
        self.verify(("tiny-llama", "--dtype", "autocast-bfloat16"), 2, 3, bound=2e-3)

    def test_searched_plan_under_a_budget(self):
        self.verify(("tiny-llama",), 2, "auto", options=("--memory", "1MiB", "--offload-space", "host"))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 5)
        )

    def forward(self, x, target):
        loss = torch.nn.functional.cross_entropy(self.layers(x), target)
        # An auxiliary term of the training, and a constant that only the evaluation has.
        return loss + 0.1 * self.layers[0].weight.square().mean() if self.training else loss * torch.tensor(1.25)


class BuffersOfRanksTest(unittest.TestCase):
    """Buffers are each rank's own: micro-batch m is evaluated with the running statistics of rank m mod world."""

    BATCH, WORLD = 4, 2

    def test_statistics_of_each_rank(self):
        torch.manual_seed(0)
        module, count = Net(), 10 * self.BATCH
        data = {"x": torch.randn(count, 3, 6, 6), "target": torch.randint(0, 5, (count,))}
        path, file = running.fresh(".pt2"), running.fresh(".safetensors")
        report = export_train_step(
            module, (data["x"][: self.BATCH], data["target"][: self.BATCH]), path, eval=True, optimizer=torch.optim.SGD(module.parameters(), lr=0.1)
        )
        self.assertIn("evaluation: the loss equals the module's in eval mode", report.check)
        self.assertTrue(module.training)
        save_file(data, file)
        run = running.train(running.compile_plan(path, self.WORLD, 0), path, self.WORLD, 1, *evaluates(file), data=file)
        saved, losses = load_file(run.saved), [0.0] * 10
        for rank in range(self.WORLD):
            own = copy.deepcopy(module).train()
            own(*(v[rank * self.BATCH : (rank + 1) * self.BATCH] for v in data.values()))
            for name, parameter in own.named_parameters():
                parameter.data.copy_(saved[name])
            own.eval()
            for m in range(rank, 10, self.WORLD):
                losses[m] = float(own(*(v[m * self.BATCH : (m + 1) * self.BATCH] for v in data.values())))
        expected = sum(losses) / 10
        self.assertAlmostEqual(run.evaluations[-1]["eval_loss"], expected, delta=1e-5 * expected)


def sent(rows):
    return {kind: sum(row["wire_bytes"][kind] for row in rows) for kind in rows[0]["wire_bytes"]}


@rotation.taking_turns(2)
class BitsTest(BitsCase):
    def verify_training_is_unchanged(self, names, world, chain, accumulation=1, options=()):
        with self.subTest(" ".join(names), world=world, chain=chain):
            one = subject(*names)
            plan = running.compile_plan(one.archive, world, chain, accumulation, *options)
            without = running.train(plan, one.archive, world, 6, "--poison")
            runs = [running.train(plan, one.archive, world, 6, "--poison", *evaluates(one.data_file, every)) for every in (1, 4)]
            for run, steps in zip(runs, ([1, 2, 3, 4, 5, 6], [4, 6]), strict=True):
                self.assert_same(without, run, f"{names} {chain} with evaluations", 6)
                self.assertEqual([row["step"] for row in run.evaluations], steps)
            every = {row["step"]: row["eval_loss"] for row in runs[0].evaluations}
            self.assertEqual({row["step"]: row["eval_loss"] for row in runs[1].evaluations}, {k: every[k] for k in (4, 6)})
            # Gathers that go on into the next step are counted there or here, so only the sum is the same.
            self.assertEqual(sent(without.steps), sent(runs[1].steps))

    def test_stages(self):
        for zero in (0, 3):
            self.verify_training_is_unchanged(("tiny-llama-tied",), 2, zero)

    def test_dropout_and_micro_batches(self):
        self.verify_training_is_unchanged(("tiny-gpt2", "--dropout", "0.1"), 2, 2, accumulation=2)

    def test_gathers_that_span_steps(self):
        for zero in (2, 3):
            self.verify_training_is_unchanged(("tiny-llama",), 2, OVERLAPPED.format(zero))

    def test_state_outside_the_device(self):
        self.verify_training_is_unchanged(("tiny-llama",), 2, "auto", options=("--memory", "900KiB", "--offload-space", "host"))

    def test_any_number_of_ranks(self):
        one = subject("tiny-llama")
        config = running.train_config(optimizer={"kind": "adamw", "lr": 1e-3, "weight_decay": 0.0})
        losses = set()
        for world, zero in ((1, 0), (2, 0), (2, 3), (3, 1), (3, 3)):
            plan = running.compile_plan(one.archive, world, zero, config=config)
            run = running.train(plan, one.archive, world, 1, "--lr", "0", *evaluates(one.data_file))
            losses.add(run.evaluations[-1]["eval_loss"])
        self.assertEqual(len(losses), 1, losses)


class ResumeTest(JobTest):
    def test_goes_on_with_the_same_numbers(self):
        one = subject("tiny-gpt2", "--dropout", "0.1")
        plan = running.compile_plan(one.archive, 2, 3)
        common = ("-n", "2", plan, "--weights", one.archive, "--data", "synthetic:1", *evaluates(one.data_file, 2))
        rows = {}
        for name, parts in {"whole": [8], "parts": [4, 8]}.items():
            for steps in parts:
                done = dcrun(
                    *common,
                    "--steps",
                    str(steps),
                    "--save",
                    self.path(name),
                    "--save-every",
                    "2",
                    "--resume",
                    "latest",
                    "--metrics",
                    self.path(name + ".jsonl"),
                )
                self.assertEqual(done.code, 0, done.err)
            _, lines = running.read_metrics(self.path(name + ".jsonl"))
            rows[name] = [(row["step"], row.get("loss"), row.get("eval_loss")) for row in lines]
        self.assertEqual(rows["whole"], rows["parts"])
        self.assertEqual([step for step, _, loss in rows["whole"] if loss is not None], [2, 4, 6, 8])


class PlanTest(JobTest):
    def test_shown_and_checked(self):
        one = subject("tiny-llama")
        plan = running.compile_plan(one.archive, 2, 3)
        checked = dcc("verify", plan)
        self.assertEqual(checked.code, 0, checked.err)
        shown = running.inspect(plan)
        (variant,) = shown["variants"]
        self.assertEqual((variant["purpose"], variant["step"]), ("evaluate", [{"program": 1, "repeat": 1}]))
        self.assertEqual([p["name"] for p in shown["programs"]], ["step", "evaluation"])
        self.assertGreater(variant["prediction"]["step_ns"], 0)
        self.assertLess(variant["prediction"]["step_ns"], shown["prediction"]["step_ns"])
        self.assertEqual(shown["arena_bytes"][0], max(variant["prediction"]["peak_bytes"], shown["prediction"]["peak_bytes"]))
        kernels = {i.get("op", "") for i in shown["programs"][1]["instructions"]}
        self.assertFalse([op for op in kernels if "backward" in op or op in ("dc.adamw", "dc.dropout")])
        self.assertIn("variant evaluate evaluation*1", dcc("inspect", plan, "--as=text").out)
        self.assertIn("evaluation ", dcc("inspect", plan, "--as=summary").out)

    def test_training_is_as_without(self):
        """The step of an archive with an evaluation is that of one without, and so are its checkpoints and weights."""
        one = subject("tiny-llama")
        plain = running.archive("tiny-llama")
        plans = [running.inspect(running.compile_plan(archive, 2, 3)) for archive in (plain, one.archive)]
        for key in ("model_digest", "step_digest", "step", "inputs", "state", "parameters", "prediction"):
            self.assertEqual(plans[0][key], plans[1][key], key)
        self.assertEqual(plans[0]["programs"][0], plans[1]["programs"][0])
        running.train(running.compile_plan(plain, 2, 3), one.archive, 2, 1)

    def test_profile_measures_it(self):
        archive, profile = running.archive("mlp", "--eval"), self.path("prof.json")
        done = dcc("profile", archive, "-n", "1", "-o", profile)
        self.assertEqual(done.code, 0, done.err)
        shown = running.inspect(running.compile_plan(archive, 1, 0, 1, "--profile", profile))
        measured, *others = shown["variants"][0]["prediction"]["figures_ns"]
        self.assertGreater(measured, 0)
        self.assertEqual(others, [0, 0, 0])


class AlwaysDropping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.nn.functional.dropout(self.linear(x), 0.5, training=True).square().mean()


class RefusedTest(JobTest):
    def run_mlp(self, *options, evaluation=True):
        archive = running.archive("mlp", *(["--eval"] if evaluation else []))
        return dcrun(running.compile_plan(archive, 1, 0), "--weights", archive, "--data", "synthetic:1", *options)

    def test_plan_without_evaluation(self):
        result = self.run_mlp("--eval-every", "1", "--eval-data", "synthetic:2", "--eval-batches", "2", evaluation=False)
        self.refused(result, 76, "DC6871", "eval=True", "compile it again")

    def test_random_numbers_in_eval_mode(self):
        export_train_step(AlwaysDropping(), (torch.randn(2, 4),), self.path("model.pt2"), check=False, eval=True)
        self.refused(dcc("compile", self.path("model.pt2"), "--world", "1", "-o", self.path("plan.dcp")), 81, "DC2603", "stays on in eval mode")

    def test_options_that_need_each_other(self):
        self.refused(self.run_mlp("--eval-every", "1"), 64, "--eval-data")
        self.refused(self.run_mlp("--eval-data", "synthetic:2"), 64, "--eval-every")
        self.refused(self.run_mlp("--eval-batches", "2"), 64, "--eval-every")
        self.refused(self.run_mlp("--eval-every", "1", "--eval-data", "synthetic:2"), 64, "DC6873", "--eval-batches")

    def test_too_little_data(self):
        one = subject("tiny-llama")
        plan = running.compile_plan(one.archive, 2, 3)
        common = ("-n", "2", plan, "--weights", one.archive, "--data", "synthetic:1", "--eval-every", "1")
        asked = dcrun(*common, "--eval-data", one.data_file, "--eval-batches", str(MICRO_BATCHES + 1))
        self.refused(asked, 65, "DC6872", f"{MICRO_BATCHES + 1} micro-batches", f"has {MICRO_BATCHES} of {one.batch} samples")
        short = self.write("short.bin", b"\1\0" * 40)
        self.refused(dcrun(*common, "--eval-data", short + ":uint16"), 65, "--eval-data", "longer file")

    def test_data_of_another_kind(self):
        tokens = self.write("tokens.bin", b"\1\0" * 4096)
        self.refused(self.run_mlp("--eval-every", "1", "--eval-data", tokens + ":uint16"), 65, "holds no tokens", "--eval-data")

    def test_bad_value_in_the_data(self):
        """Found in the evaluation: the run ends on all ranks with its state saved."""
        one = subject("tiny-llama")
        plan = running.compile_plan(one.archive, 2, 3)
        bad, file = {name: value.clone() for name, value in one.data.items()}, self.path("bad.safetensors")
        bad["input_ids"][3 * one.batch] = 10**6
        save_file(bad, file)
        result = dcrun("-n", "2", plan, "--weights", one.archive, "--data", "synthetic:1", "--steps", "4", "--save", self.path("saved"), *evaluates(file, 2))
        self.refused(result, 65, "outside", "--eval-data")
        self.assertTrue(os.path.isdir(self.path("saved/step-00000002")))


if __name__ == "__main__":
    unittest.main()
