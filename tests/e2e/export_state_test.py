"""What a forward changes besides buffers: frozen parameters, which follow the training, and numbers in attributes, which cannot.

build/venv/bin/python tests/e2e/export_state_test.py
"""

import copy
import os
import random
import re
import unittest

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.export.graph_signature import InputKind, OutputKind
from torch.nn import functional as F

import running
from export_case import ExportError, ExportTest, export_train_step, targets

WORLD, STEPS, ROWS = 2, 3, 4


def in_place(teacher, student):
    teacher.mul_(0.9).add_(student, alpha=0.1)


def by_data(teacher, student):
    teacher.data = teacher.data * 0.9 + student.data * 0.1


class Student(nn.Module):
    """A net and a frozen teacher that follows it, as in self-distillation; the teacher's bias stays as it is."""

    def __init__(self, follow=in_place):
        super().__init__()
        self.follow = follow
        self.net = nn.Linear(6, 5)
        self.teacher = copy.deepcopy(self.net).requires_grad_(False)
        self.steps = nn.Parameter(torch.zeros((), dtype=torch.int64), requires_grad=False)

    def forward(self, x):
        with torch.no_grad():
            target = self.teacher(x + 0.1).softmax(-1)
            if self.training:
                self.follow(self.teacher.weight, self.net.weight)
                self.steps.add_(1)
        return F.cross_entropy(self.net(x), target)


def optimizer_of(module):
    return torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.5, momentum=0.9)


def student(follow=in_place):
    torch.manual_seed(0)
    module = Student(follow)
    nn.init.normal_(module.net.weight)
    return module


def eager(data):
    """The state after STEPS steps: gradients of all ranks' rows, averaged."""
    module = student()
    optimizer = optimizer_of(module)
    for step in range(STEPS):
        followed = {n: p.clone() for n, p in module.named_parameters() if not p.requires_grad}
        for rank in range(WORLD):
            with torch.no_grad():  # each rank has its own teacher, and they stay equal
                for name, value in followed.items():
                    module.get_parameter(name).copy_(value)
            first = (step * WORLD + rank) * ROWS
            (module(data[first : first + ROWS]) / WORLD).backward()
        optimizer.step()
        optimizer.zero_grad()
    return module.state_dict()


class WrittenParametersTest(ExportTest):
    def test_as_eager_trains(self):
        module, before = student(), student().state_dict()
        data = torch.randn(STEPS * WORLD * ROWS, 6)
        self.trains_as_eager(module, data, before)

    def test_data_that_is_set(self):
        """`parameter.data = ...`, as MoCo and BYOL write it."""
        self.trains_as_eager(student(by_data), torch.randn(STEPS * WORLD * ROWS, 6), student().state_dict())

    def trains_as_eager(self, module, data, before):
        program = self.export(module, (data[:ROWS],), optimizer=optimizer_of(module), eval=True)
        for name, value in module.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        self.assertEqual(targets(program, InputKind.PARAMETER), ["net.weight", "net.bias", "teacher.bias"])
        self.assertCountEqual(targets(program, OutputKind.BUFFER_MUTATION), ["teacher.weight", "steps"])
        file = running.fresh(".safetensors")
        save_file({"x": data}, file)
        for zero in (0, 3):
            with self.subTest(zero=zero):
                saved = load_file(running.train(running.compile_plan(self.path(), WORLD, zero), self.path(), WORLD, STEPS, data=file).saved)
                for name, value in eager(data).items():
                    torch.testing.assert_close(saved[name], value, rtol=1e-5, atol=1e-6, msg=name)

    def test_goes_on_from_a_checkpoint(self):
        """The teacher of an optimizer that has taken steps is in its checkpoint."""
        data = torch.randn(2 * ROWS, 6)
        module = student()
        optimizer = optimizer_of(module)
        module(data[:ROWS]).backward()
        optimizer.step()
        optimizer.zero_grad()
        self.export(module, (data[:ROWS],), optimizer=optimizer)
        file, checkpoints = running.fresh(".safetensors"), os.path.join(self.folder, "model.checkpoints")
        save_file({"x": data}, file)
        saved = load_file(running.train(running.compile_plan(self.path(), 1, 0), self.path(), 1, 2, "--resume", checkpoints, data=file).saved)
        module(data[:ROWS]).backward()
        optimizer.step()
        for name, value in module.state_dict().items():
            torch.testing.assert_close(saved[name], value, rtol=1e-5, atol=1e-6, msg=name)

    def test_trained_parameters_are_refused(self):
        class Clamped(Student):
            def forward(self, x):
                with torch.no_grad():
                    self.net.bias.clamp_(-0.1, 0.1)
                return super().forward(x)

        with self.assertRaisesRegex(ExportError, "parameter net.bias; only an optimizer may change it: .*freeze it"):
            self.export(Clamped(), (torch.randn(4, 6),))

    def test_evaluation_that_writes(self):
        class Always(Student):
            def forward(self, x):
                with torch.no_grad():
                    self.teacher.weight.mul_(0.9)
                return super().forward(x)

        with self.assertRaisesRegex(ExportError, "in eval mode the forward writes buffer teacher.weight"):
            self.export(Always(), (torch.randn(4, 6),), eval=True)


class DataTest(ExportTest):
    """`tensor.data = ...` in the forward; each export is compared with eager PyTorch."""

    class Net(nn.Module):
        def __init__(self, act):
            super().__init__()
            self.net, self.out, self.act = nn.Linear(6, 6), nn.Linear(6, 5), act
            self.register_buffer("mean", torch.ones(6))

        def forward(self, x, labels):
            return F.cross_entropy(self.out(self.act(self, x)), labels)

    def inputs(self):
        return torch.randn(4, 6), torch.tensor([0, 1, 4, 2])

    def test_of_activations_and_buffers(self):
        def activation(m, x):
            h = m.net(x)
            before, kept = h.sin(), h.data
            h.data = h.data * 2
            return before + h.cos() + kept

        def buffer(m, x):
            h, kept = m.net(x), m.mean.data
            m.mean.data = m.mean * 0.9 + h.detach().mean(0) * 0.1
            m.mean.mul_(0.5)
            return h * m.mean + kept

        for act, written in ((activation, []), (buffer, ["mean"])):
            with self.subTest(act.__name__):
                module = self.Net(act)
                program = self.export(module, self.inputs())
                self.assertEqual(targets(program, OutputKind.BUFFER_MUTATION), written)
                self.assertTrue(torch.equal(module.mean, torch.ones(6)))
        self.assertNotIn("data", vars(torch.Tensor))

    def test_refused(self):
        def trained(m, x):
            m.net.weight.data = m.net.weight.data.clamp(-0.1, 0.1)
            return m.net(x)

        def reshaped(m, x):
            h = m.net(x)
            h.data = h.data[:2]
            return h

        for act, pattern in ((trained, "replaces parameter net.weight; only an optimizer"), (reshaped, "another shape or type.*copy_")):
            for check in (True, False):
                with self.subTest(act.__name__, check=check), self.assertRaisesRegex(ExportError, pattern):
                    export_train_step(self.Net(act), self.inputs(), self.path(), check=check)


class NumbersTest(ExportTest):
    def test_numbers_that_a_forward_counts(self):
        class Counts(Student):
            calls, last = 0, 0

            def forward(self, x):
                self.calls += 1
                self.last = len(x)
                return super().forward(x) * (1.0 if self.calls < 1000 else 0.5)

        report = export_train_step(Counts(), (torch.randn(4, 6),), self.path())
        self.assertEqual(len(report.notes), 1)
        self.assertIn("changes the number calls in Python", report.notes[0])
        self.assertEqual(export_train_step(Student(), (torch.randn(4, 6),), self.path()).notes, [])

    def test_wherever_they_are(self):
        """Under any name, in containers, objects, closures, classes and generators; with a check the archive is the first call's, without it the trace's."""

        class Cell:
            __slots__ = ("count",)

            def __init__(self):
                self.count = 0

        class Counts(Student):
            shared = 0

            def __init__(self, count):
                super().__init__()
                self.count = count
                self._calls, self.state, self.cells, self.own = 0, {"step": 0, "deep": [0]}, [Cell()], random.Random(1)
                total = 0

                def add():
                    nonlocal total
                    total += 1

                self.add = add
                self.array = np.zeros(2)

            def forward(self, x):
                self.count(self)
                return super().forward(x)

        def hidden(m):
            m._calls += 1

        def entry(m):
            m.state["step"] += 1

        def deep(m):
            m.state["deep"][0] += 1

        def cell(m):
            m.cells[0].count += 1

        def of_class(m):
            type(m).shared += 1

        for count, name in (
            (hidden, "_calls"),
            (entry, "state['step']"),
            (deep, "state['deep'][0]"),
            (cell, "cells[0].count"),
            (of_class, "Counts.shared"),
            (lambda m: m.add(), "add.total"),
            (lambda m: m.own.random(), "own"),
            (lambda m: m.array.__iadd__(1), "array"),
        ):
            for check in (True, False):
                with self.subTest(name, check=check):
                    notes = export_train_step(Counts(count), (torch.randn(4, 6),), self.path(), check=check).notes
                    self.assertEqual(len(notes), 1, notes)
                    self.assertRegex(notes[0], rf"changes the number .*{re.escape(name)} in Python")


if __name__ == "__main__":
    unittest.main()
