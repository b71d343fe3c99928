"""An embedding with a zero padding row, drawn by `dcrun --weights init:SEED`: its start on every world, and a step next to PyTorch's.

build/venv/bin/python tests/e2e/padding_test.py
"""

import functools
import unittest

import export_case
import numpy
import running
import torch
from dcc_export import export_train_step
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, PADDING, ROWS, LENGTH = 40, 24, 3, 2, 12
SAMPLES = 6 * ROWS
OPTIMIZERS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1, eps=1e-3),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1),
}


class Padded(nn.Module):
    """`tied`: the head is the embedding, and gives the padding row a gradient that the embedding alone does not."""

    def __init__(self, padding=PADDING, tied=False):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH, padding_idx=padding)
        self.mix, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids, labels):
        h = self.embed(ids)
        return functional.cross_entropy(self.head(h + torch.tanh(self.mix(h))).flatten(0, 1), labels.flatten())


def samples(count):
    """The first of the data file. Half of the tokens are padding."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(VOCABULARY, (SAMPLES, LENGTH), generator=generator)
    ids[torch.rand(SAMPLES, LENGTH, generator=generator) < 0.5] = PADDING
    return ids[:count].clone(), torch.randint(VOCABULARY, (SAMPLES, LENGTH), generator=generator)[:count].clone()


@functools.cache
def exported(optimizer="adamw", **options):
    torch.manual_seed(3)
    module, path = Padded(**options), running.fresh(".pt2")
    export_train_step(
        module,
        samples(ROWS),
        path,
        optimizer=OPTIMIZERS[optimizer](module.parameters()),
        check=False,
        roles={"ids": "tokens", "labels": {"role": "class", "low": 0, "high": VOCABULARY}},
    )
    return path


@functools.cache
def data():
    path = running.fresh(".safetensors")
    save_file(dict(zip(("ids", "labels"), samples(SAMPLES))), path)
    return path


@functools.cache
def start(model, world=1, zero=0):
    """Path of what init:1 draws: saved after a step at a learning rate of 0."""
    return trained(model, world, zero, 1, "--lr", "0").saved


def trained(model, world, zero, steps, *options):
    return running.train(running.compile_plan(model, world, zero), "init:1", world, steps, *options, data=data())


def table_of(path):
    return load_file(path)["embed.weight"]


class PaddingTest(unittest.TestCase):
    def test_the_row_starts_at_zero_on_every_world(self):
        model = exported()
        self.assertEqual(export_case.description(model)["initializers"]["embed.weight"]["zero_row"], PADDING)
        expected = running.read_safetensors(start(model))
        for world in (1, 2, 3):
            for zero in (0, 3):
                self.assertEqual(running.read_safetensors(start(model, world, zero)), expected, f"world {world}, ZeRO {zero}")
        table = table_of(start(model))
        self.assertEqual((table == 0).all(dim=1).nonzero().flatten().tolist(), [PADDING])

    def test_the_other_rows_are_those_of_an_embedding_without_padding(self):
        padded, plain = table_of(start(exported())), table_of(start(exported(padding=None)))
        self.assertTrue(plain[PADDING].all())
        plain[PADDING] = 0
        self.assertTrue(torch.equal(padded, plain))

    def test_the_row_stays_zero_and_stages_agree(self):
        for optimizer in OPTIMIZERS:
            model = exported(optimizer)
            for world in (1, 2, 3):
                whole, shards = (trained(model, world, zero, 4) for zero in (0, 3))
                self.assertEqual(whole.numbers(), shards.numbers(), f"{optimizer}, world {world}")
                self.assertEqual(whole.tensors(), shards.tensors(), f"{optimizer}, world {world}")
                table = table_of(whole.saved)
                self.assertFalse(table[PADDING].any(), f"{optimizer}, world {world}")
                self.assertGreater(float((table - table_of(start(model))).norm()), 0.1)

    def test_a_step_is_pytorchs(self):
        for tied in (False, True):
            for optimizer, make in OPTIMIZERS.items():
                for world in (1, 2, 3):
                    with self.subTest(optimizer, tied=tied, world=world):
                        self.compare(exported(optimizer, tied=tied), make, tied, world)

    def compare(self, model, make, tied, world):
        module = Padded(tied=tied)
        module.load_state_dict(load_file(start(model)), strict=not tied)  # a tied name is saved once
        before = module.embed.weight.detach().clone()
        optimizer = make(module.parameters())
        loss = module(*samples(world * ROWS))
        loss.backward()
        optimizer.step()
        run = trained(model, world, 3, 1)
        self.assertAlmostEqual(run.steps[0]["loss"], loss.item(), delta=1e-5 * loss.item())
        ours = load_file(run.saved)
        for name, value in module.state_dict().items():
            if name in ours:
                numpy.testing.assert_allclose(ours[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
        self.assertFalse(before[PADDING].any())
        self.assertEqual(bool(ours["embed.weight"][PADDING].any()), tied)


if __name__ == "__main__":
    unittest.main()
