"""Data files: several of them, files of something else, and files that change while a job reads them."""

import os
import struct
import time
import unittest

import torch
from safetensors.torch import save_file
from torch import nn

import jobs
import running
from dcc_export import export_train_step

VOCABULARY = 256  # of the tiny presets
WINDOW = 32


class Data(jobs.JobTest):
    @classmethod
    def setUpClass(cls):
        cls.model = running.archive("tiny-llama")
        cls.plan = running.compile_plan(cls.model, 2, 3)

    def tokens(self, name, values, kind="H"):
        return self.write(name, struct.pack(f"<{len(values)}{kind}", *values))

    def arguments(self, *data, steps=2):
        given = [word for text in data for word in ("--data", text)]
        return [self.plan, "--weights", self.model, *given, "--steps", str(steps), "--save", self.path("out.saved/model.safetensors")]

    def dcrun(self, *data, steps=2):
        return jobs.dcrun("-n", "2", *self.arguments(*data, steps=steps))

    def test_several_files_are_their_samples_in_order(self):
        values = [(i * i + 7 * i) % VOCABULARY for i in range(16 * WINDOW)]
        whole = self.tokens("whole.bin", values)
        first = self.tokens("first.bin", values[: 5 * WINDOW] + [1] * 9)  # the tail is no window
        second = self.tokens("second.bin", values[5 * WINDOW :], "I")
        results = []
        for data in ((whole,), (first, second + ":uint32")):
            result = jobs.dcrun("-n", "2", self.plan, "--weights", self.model, "--steps", "3", *(w for d in data for w in ("--data", d)))
            self.assertEqual(result.code, 0, result.err)
            results.append([line.split(" tokens/s")[0] for line in result.out.splitlines() if line.startswith("step ")])
        self.assertEqual(len(results[0]), 3)
        self.assertEqual(*results)

    def test_a_wrong_element_type_and_a_token_outside_are_found_at_the_start(self):
        wide = self.tokens("wide.bin", [i % VOCABULARY for i in range(64 * WINDOW)], "I")
        self.refused(self.dcrun(wide), 65, "every second number is 0", wide + ":uint32")
        late = self.tokens("late.bin", [i % VOCABULARY for i in range(64 * WINDOW - 1)] + [VOCABULARY])
        self.refused(self.dcrun(late), 65, f"token {VOCABULARY} at byte {(64 * WINDOW - 1) * 2}")
        self.nothing_at("out")

    def endless(self):
        data = self.tokens("tokens.bin", [i % VOCABULARY for i in range(64 * WINDOW)])
        job = self.start("dcrun", 2, self.arguments(data, steps=1000000))
        job.await_steps(2)
        return data, job

    def stopped(self, job, code, *words):
        result = job.finish()
        message = self.refused(result, code, *words)
        step = len([line for line in result.out.splitlines() if line.startswith("step ")])
        self.assertIn(f"the parameters after step {step} are in {self.path('out.saved/model.safetensors')}", message)
        self.assertTrue(os.path.getsize(self.path("out.saved/model.safetensors")) > 0)

    def test_a_file_cut_short_ends_the_job_with_its_work_saved(self):
        data, job = self.endless()
        os.truncate(data, 10)
        self.stopped(job, 74, data)

    def test_a_token_that_turns_bad_ends_the_job_with_its_work_saved(self):
        data, job = self.endless()
        with open(data, "r+b") as file:
            file.write(struct.pack(f"<{64 * WINDOW}H", *[60000] * (64 * WINDOW)))
        self.stopped(job, 65, "token 60000", data)


class Counted(nn.Module):
    """`shift` may be any number: it indexes nothing."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 5)

    def forward(self, x, labels, shift):
        scores = self.fc(x + shift[:, None] * 0.1)
        return nn.functional.binary_cross_entropy_with_logits(scores, nn.functional.one_hot(labels, 5).float())


class Table(nn.Module):
    """Columns of one input with their own embeddings, and one that may be any number."""

    def __init__(self):
        super().__init__()
        self.few, self.many, self.fc = nn.Embedding(3, 4), nn.Embedding(50, 4), nn.Linear(4, 1)

    def forward(self, rows):
        return self.fc(self.few(rows[:, 0]) * self.many(rows[:, 1]) + rows[:, 2:] * 0.01).square().mean()


class IntegersBeyondTheExample(jobs.JobTest):
    """A range that nothing in the graph gives is that of the example; a data file is not held to it."""

    def train(self, module, example, **data):
        """Trains on two ranks next to PyTorch, which never sees what is out of range."""
        model, steps = running.fresh(".pt2"), 3
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        export_train_step(module, example, model, optimizer=optimizer)
        rows = len(example[0])
        save_file(data, self.path("data.safetensors"))
        plan = running.compile_plan(model, 2, 1)
        run = running.train(plan, model, 2, steps, data=self.path("data.safetensors"))
        for step in range(steps):
            optimizer.zero_grad()
            loss = module(*(values[2 * rows * step : 2 * rows * (step + 1)] for values in data.values()))
            loss.backward()
            optimizer.step()
            self.assertAlmostEqual(run.steps[step]["loss"], float(loss.detach()), delta=1e-5 * max(1.0, abs(float(loss.detach()))))
        return model, plan

    def wrong(self, model, plan, words, **data):
        save_file(data, self.path("wrong.safetensors"))
        self.refused(jobs.dcrun("-n", "2", plan, "--weights", model, "--data", self.path("wrong.safetensors"), "--steps", "3"), 65, words)

    def test_numbers_and_classes(self):
        torch.manual_seed(0)
        example = torch.randn(4, 3), torch.tensor([0, 1, 2, 1]), torch.tensor([0, 1, 2, 3])
        data = {"x": torch.randn(24, 3), "labels": torch.arange(24) % 5, "shift": torch.arange(24) * 7 - 40}
        model, plan = self.train(Counted(), example, **data)
        data["labels"][9] = 5
        self.wrong(model, plan, "value 5 of 'labels'", **data)

    def test_columns(self):
        torch.manual_seed(0)
        numbers = torch.arange(24)
        rows = torch.stack((numbers % 3, numbers * 2, numbers * 7 - 40), 1)
        model, plan = self.train(Table(), (torch.tensor([[0, 1, 2], [1, 2, 0], [2, 1, 0], [0, 0, 1]]),), rows=rows)
        rows[9, 0] = 3
        self.wrong(model, plan, "the index 3 in a dim of size 3", rows=rows)


class OddInputs(jobs.JobTest):
    """Inputs that are no files, or never end: a message at once, whatever reads them."""

    def test_pipes_devices_and_folders(self):
        model = running.archive("mlp")
        plan = running.compile_plan(model, 1, 0)
        os.mkfifo(self.path("pipe"))
        with open(self.path("huge.json"), "wb") as file:
            file.truncate(1 << 40)
        train = [plan, "--weights", model, "--data", "synthetic"]
        for bad in (self.path("pipe"), "/dev/zero", self.folder, self.path("huge.json")):
            commands = [
                (jobs.dcrun, [*train, "--config", bad]),
                (jobs.dcc, ["compile", model, "--world", "1", "--config", bad, "-o", self.path("out.dcp")]),
                (jobs.dcc, ["compile", model, "--world", "1", "--profile", bad, "-o", self.path("out.dcp")]),
            ]
            if bad != self.path("huge.json"):
                commands += [
                    (jobs.dcrun, [bad, "--weights", model, "--data", "synthetic"]),
                    (jobs.dcrun, [plan, "--weights", model, "--data", bad]),
                    (jobs.dcc, ["verify", bad]),
                    (jobs.dcc, ["compile", bad, "--world", "1", "-o", self.path("out.dcp")]),
                ]
            for program, arguments in commands:
                start = time.monotonic()
                result = program(*arguments)
                self.assertEqual(result.code, 65, f"{arguments}: {result.err}")
                self.assertIn(bad.rsplit("/", 1)[-1], result.err)
                self.assertLess(time.monotonic() - start, 20)
        self.nothing_at("out")


if __name__ == "__main__":
    unittest.main()
