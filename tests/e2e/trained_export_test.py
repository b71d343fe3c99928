"""An optimizer that has taken steps is exported with its moments and step count: dcrun goes on as PyTorch does.

build/venv/bin/python tests/e2e/trained_export_test.py
"""

import copy
import functools
import os
import unittest

import torch
from safetensors.torch import load_file, save_file

import checkpoints
import jobs
import parts
import reference
import running

from dcc_export import ExportError, export_train_step

BEFORE, AFTER, BATCH = 3, 3, 4
CLIP = 1.0
KINDS = ("parameter", "exp_avg", "exp_avg_sq", "momentum_buffer")

ORDERS = 4  # of sums: one alone may lie close to the first by chance


def groups(module):
    biases = [p for n, p in module.named_parameters() if n.endswith("bias")]
    others = [p for n, p in module.named_parameters() if not n.endswith("bias")]
    return [{"params": others}, {"params": biases, "weight_decay": 0.0, "lr": 3e-3}]


MAKERS = {
    "adamw": lambda module: torch.optim.AdamW(groups(module), lr=1e-2, betas=(0.8, 0.95), weight_decay=0.1),
    "sgd": lambda module: torch.optim.SGD(groups(module), lr=0.1, momentum=0.9, weight_decay=0.02),
}
# (optimizer, world, ZeRO stage)
CASES = [("adamw", 1, 0), ("adamw", 2, 1), ("adamw", 1, 2), ("adamw", 2, 3), ("sgd", 2, 0), ("sgd", 1, 1), ("sgd", 2, 2), ("sgd", 1, 3)]


class Run:
    """PyTorch training of `parts`: a tied and a frozen parameter, two groups, buffers of both kinds."""

    def __init__(self, kind):
        torch.manual_seed(0)
        made = parts.workload(BATCH)
        self.module, self.inputs, self.roles = made.module, made.inputs, made.roles
        self.optimizer = MAKERS[kind](self.module)

    def copied(self):
        """The same run once more, as a restart of PyTorch would have it."""
        other = copy.copy(self)
        other.module = copy.deepcopy(self.module)
        other.optimizer = type(self.optimizer)(groups(other.module), lr=1.0)
        other.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        return other

    def train(self, data, steps, world, order=0):
        """`order`: 0 as given; others sum the same samples in another order, from another row on and from the last rank to the first."""
        for step in range(steps):
            self.optimizer.zero_grad()
            ranks = range(world)
            for rank in reversed(ranks) if order else ranks:
                first = (step * world + rank) * BATCH
                rows = {name: tensor[first : first + BATCH] for name, tensor in data.items()}
                (self.module(**{n: t.flip(0).roll(order - 1, 0) if order else t for n, t in rows.items()}) / world).backward()
            torch.nn.utils.clip_grad_norm_(self.module.parameters(), CLIP)
            self.optimizer.step()
        return self

    def state(self):
        """{"kind name": tensor} of the parameters and what the optimizer holds of them."""
        found = {}
        for name, parameter in self.module.named_parameters():
            found[f"parameter {name}"] = parameter.detach()
            moments = self.optimizer.state.get(parameter, {})
            found |= {f"{key} {name}": value for key, value in moments.items() if key in KINDS and value is not None}
        return found


def data_of(inputs, steps, seed):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randint(parts.WORDS, (steps * 2 * BATCH, *tensor.shape[1:]), generator=generator) for name, tensor in inputs.items()}


@functools.cache
def trained(kind):
    """(a run after three steps, its archive, what the export reported)"""
    run = Run(kind)
    run.train(data_of(run.inputs, BEFORE, 1), BEFORE, 2)
    path = running.fresh(".pt2")
    options = {} if kind == "adamw" else {"steps_taken": BEFORE}
    report = export_train_step(run.module, run.inputs, path, roles=run.roles, optimizer=run.optimizer, clip_norm=CLIP, **options)
    return run, path, report


def as_state(folder):
    """The same of a checkpoint."""
    shapes = checkpoints.shapes(folder)
    return {
        f"{kind} {name}": torch.from_numpy(value.copy()).reshape(shapes[kind, name])
        for (kind, name, _), value in checkpoints.state(folder, checksums=False).items()
        if kind in KINDS
    }


class GoesOnTest(jobs.JobTest):
    def test_as_pytorch_goes_on(self):
        for case in CASES:
            with self.subTest(case):
                self.verify(*case)

    def verify(self, kind, world, zero):
        run, archive, report = trained(kind)
        self.assertEqual(report.checkpoint, archive.removesuffix(".pt2") + ".checkpoints/step-00000003")
        data = data_of(run.inputs, AFTER, 2)
        file = self.path("data.safetensors")
        save_file(data, file)
        save = self.path(f"{kind}-{world}-{zero}")
        result = jobs.dcrun(
            "-n",
            str(world),
            running.compile_plan(archive, world, zero),
            "--data",
            file,
            "--resume",
            os.path.dirname(report.checkpoint),
            "--steps",
            str(BEFORE + AFTER),
            "--save",
            save,
        )
        self.assertEqual(result.code, 0, result.err)
        self.assertRegex(result.out, r"(?m)^step 4 .*\n(.*\n)?step 5 ")
        ours = as_state(checkpoints.newest(save))
        given, *reordered = (run.copied().train(data, AFTER, world, order).state() for order in range(ORDERS))
        ratio, worst = reference.compare_state(ours, given, reordered)
        self.assertLessEqual(ratio, 1, worst)
        # A run that begins without the moments ends elsewhere, so the comparison can fail.
        fresh = run.copied()
        fresh.optimizer.state.clear()
        without = fresh.train(data, AFTER, world).state()
        self.assertGreater(reference.compare_state(ours, without, [without])[0], 1)

    def test_the_checkpoint_holds_what_pytorch_holds(self):
        for kind in MAKERS:
            with self.subTest(kind):
                run, _, report = trained(kind)
                saved, expected = as_state(report.checkpoint), run.state()
                self.assertEqual(saved.keys(), expected.keys())
                for name, value in expected.items():
                    self.assertTrue(torch.equal(saved[name], value), name)
                buffers = {name: value for (k, name, _), value in checkpoints.state(report.checkpoint).items() if k == "buffer"}
                self.assertEqual(buffers.keys(), dict(run.module.named_buffers()).keys())
                weights = load_file(os.path.join(report.checkpoint, "model.safetensors"))
                self.assertEqual(weights.keys(), run.module.state_dict().keys())

    def test_one_command_from_the_export_on(self):
        """Into the folder of --save: `--resume latest` goes on from the export, then from itself."""
        run, _, _ = trained("adamw")
        archive, save = self.path("model.pt2"), self.path("run")
        export_train_step(run.module, run.inputs, archive, roles=run.roles, optimizer=run.optimizer, clip_norm=CLIP, checkpoint=save, check=False)
        plan = running.compile_plan(archive, 2, 2)
        for steps in (5, 7):
            result = jobs.dcrun("-n", "2", plan, "--weights", archive, "--data", "synthetic:1", "--save", save, "--resume", "latest", "--steps", str(steps))
            self.assertEqual(result.code, 0, result.err)
        self.assertNotIn("step 5 loss", result.out)
        self.assertEqual([os.path.basename(f) for f in checkpoints.folders(save)], ["step-00000003", "step-00000005", "step-00000007"])

    def test_weights_alone_say_what_they_leave_behind(self):
        _, archive, _ = trained("adamw")
        result = jobs.dcrun(running.compile_plan(archive, 1, 0), "--weights", archive, "--data", "synthetic:1", "--steps", "1")
        self.assertEqual(result.code, 0, result.err)
        self.assertIn("optimizer had taken 3 steps, and this run begins without its moments", result.err)


class FolderTest(jobs.JobTest):
    def export(self, run, **options):
        return export_train_step(run.module, run.inputs, self.path("model.pt2"), roles=run.roles, optimizer=run.optimizer, check=False, **options)

    def test_an_export_replaces_its_own_checkpoint(self):
        run, _, _ = trained("adamw")
        first = self.export(run).checkpoint
        other = run.copied()
        with torch.no_grad():
            other.module.gain.add_(1.0)
        self.assertEqual(self.export(other).checkpoint, first)
        self.assertEqual(os.listdir(os.path.dirname(first)), ["step-00000003"])
        self.assertEqual(as_state(first)["parameter gain"], other.module.gain.detach())

    def test_an_earlier_step_does_not_hide_behind_a_later_one(self):
        run, _, _ = trained("adamw")
        later = run.copied().train(data_of(run.inputs, 1, 3), 1, 1)
        self.export(later)
        with self.assertRaisesRegex(ExportError, "later checkpoint step-00000004.*remove it"):
            self.export(run)

    def test_a_training_runs_checkpoint_stays(self):
        run, archive, report = trained("adamw")
        result = jobs.dcrun(running.compile_plan(archive, 1, 0), "--weights", archive, "--data", "synthetic:1", "--steps", "3", "--save", self.path("run"))
        self.assertEqual(result.code, 0, result.err)
        before = checkpoints.state(self.path("run/step-00000003"))
        with self.assertRaisesRegex(ExportError, "was not made from PyTorch's state"):
            self.export(run, checkpoint=self.path("run"))
        self.assertEqual(checkpoints.different(before, checkpoints.state(self.path("run/step-00000003"))), [])
        self.assertEqual([n for n in os.listdir(self.path("run")) if n.startswith(".")], [])

    def test_a_damaged_byte_is_named(self):
        run, _, _ = trained("adamw")
        folder = self.export(run).checkpoint
        plan = running.compile_plan(self.path("model.pt2"), 1, 0)
        for name in sorted(os.listdir(folder)):
            with self.subTest(name):
                path = os.path.join(folder, name)
                with open(path, "r+b") as file:
                    content = file.read()
                    file.seek(len(content) * 2 // 3)
                    file.write(bytes([content[len(content) * 2 // 3] ^ 4]))
                result = jobs.dcrun(plan, "--data", "synthetic:1", "--steps", "4", "--resume", folder)
                self.assertEqual(result.code, 65, result.err)
                self.assertIn(name, result.err)
                with open(path, "wb") as file:
                    file.write(content)


class BFloat16Test(jobs.JobTest):
    def test_moments_and_masters_are_float32(self):
        module = parts.Parts().to(torch.bfloat16)
        run = Run("adamw")
        module.train()
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
        for _ in range(2):
            optimizer.zero_grad()
            module(**run.inputs).backward()
            optimizer.step()
        archive = self.path("model.pt2")
        report = export_train_step(module, run.inputs, archive, roles=run.roles, optimizer=optimizer, check=False)
        self.assertIn("moments of bfloat16 go on in float32", " ".join(report.notes))
        state = checkpoints.state(report.checkpoint)
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                self.assertEqual(state["master", name, None].tobytes(), parameter.detach().float().numpy().tobytes())
                self.assertEqual(state["exp_avg", name, None].tobytes(), optimizer.state[parameter]["exp_avg"].float().numpy().tobytes())
        result = jobs.dcrun("-n", "2", running.compile_plan(archive, 2, 3), "--data", "synthetic:1", "--steps", "4", "--resume", report.checkpoint)
        self.assertEqual(result.code, 0, result.err)


if __name__ == "__main__":
    unittest.main()
