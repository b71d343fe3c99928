"""Which tokens the labels are: found by the export, carried by the plan, fed by dcrun.

The reference is PyTorch on windows cut here: label i is token i + 1 where the caller shifts.
"""

import functools
import os
import random
import struct
import unittest

import export_case
import running
import torch
from dcc_export import export_train_step
from dcc_export.errors import ExportError
from dcc_export.labels import describe_labels
from dcc_export.step import StepModule, flatten_inputs
from torch import nn
from torch.nn import functional

VOCABULARY, WINDOW, WIDTH = 40, 8, 16


class Net(nn.Module):
    """Embedding, one attention, head. `loss`: function(scores [B, S, V], labels [B, S])."""

    def __init__(self, causal, loss):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.query, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.causal, self.loss = causal, loss

    def scores(self, x):
        h = self.embed(x)
        h = h + functional.scaled_dot_product_attention(self.query(h), h, self.value(h), is_causal=self.causal)
        return self.head(h)

    def forward(self, x, targets):
        return self.loss(self.scores(x), targets)


class Mixed(Net):
    """Its last layer is bfloat16, whatever the others are."""

    def __init__(self, causal, loss):
        super().__init__(causal, loss)
        self.head.bfloat16()

    def scores(self, x):
        head, self.head = self.head, nn.Identity()
        try:
            return head(super().scores(x).bfloat16()).float()
        finally:
            self.head = head


def plain(scores, labels):
    return functional.cross_entropy(scores.reshape(-1, VOCABULARY), labels.reshape(-1))


def shifted(scores, labels):
    return plain(scores[:, :-1], labels[:, 1:])


def padded(scores, labels):
    """As transformers shifts: the last position has nothing to predict."""
    return plain(scores, functional.pad(labels, (0, 1), value=-100)[:, 1:])


def behind(prompt, loss):
    """A loss that leaves out the first positions, as of a prompt."""

    def without(scores, labels):
        return loss(scores[:, prompt:], labels[:, prompt:])

    without.__name__ = f"{loss.__name__} behind {prompt}"
    return without


def by_hand(scores, labels):
    """A loss that cannot leave labels out."""
    return -scores.log_softmax(-1).gather(-1, labels[..., None]).sum()


def with_auxiliary(scores, labels):
    """A second term that sees all tokens and no labels, as a router's load balance does."""
    return plain(scores, labels) + 10 * scores.softmax(-1).mean((0, 1)).square().sum()


def found(module, rows=2, **given):
    x = torch.randint(0, VOCABULARY, (rows, WINDOW))
    tensors, keywords, _ = flatten_inputs(module, (x, x.clone()), None)
    bound = {"low": 0, "high": VOCABULARY}
    described = [{"name": "x", "role": "tokens", **bound}, {"name": "targets", "role": "labels", **bound, **given}]
    describe_labels(StepModule(module, len(tensors), list(keywords), None), tensors, described, True, 0)
    return described[1]["labels"]


class Convolved(nn.Module):
    """Causal convolutions with a norm over batch and time between them."""

    def __init__(self, loss, norm):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(VOCABULARY, WIDTH), norm, nn.Linear(WIDTH, VOCABULARY)
        self.convolution = nn.Conv1d(WIDTH, WIDTH, 3)
        self.loss = loss

    def forward(self, x, targets):
        h = self.embed(x).transpose(1, 2)
        h = self.norm(self.convolution(functional.pad(h, (2, 0)))).relu()
        return self.loss(self.head(h.transpose(1, 2)), targets)


class Recurrent(nn.Module):
    """torch.nn's default: dim 0 of the tokens is the time, unless `batch_first`."""

    def __init__(self, batch_first):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.GRU(WIDTH, WIDTH, batch_first=batch_first), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x, targets):
        return plain(self.head(self.rnn(self.embed(x))[0]), targets)


class Leaky(Net):
    """Causal, but for a little of the last token that every position sees, as in ProphetNet's second stream."""

    def scores(self, x):
        return super().scores(x) + 2e-5 * self.head(self.embed(x[:, -1:]))


class Found(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def test_by_behaviour(self):
        for causal, loss, expected in (
            (True, plain, "next"),
            (True, by_hand, "next"),
            (True, with_auxiliary, "next"),
            (True, shifted, "same"),
            (True, padded, "same"),
            (False, plain, "same"),
            (False, by_hand, "same"),
            (False, with_auxiliary, "same"),
        ):
            with self.subTest(causal=causal, loss=loss.__name__):
                self.assertEqual(found(Net(causal, loss)), expected)

    def test_a_prompt_that_does_not_count(self):
        """Ignoring the first labels is no sign of a model that shifts."""
        for prompt in (1, 3, WINDOW - 2):
            for causal, loss, expected in ((True, plain, "next"), (True, by_hand, "next"), (True, padded, "same"), (False, plain, "same")):
                with self.subTest(prompt=prompt, causal=causal, loss=loss.__name__):
                    self.assertEqual(found(Net(causal, behind(prompt, loss))), expected)
        self.assertEqual(found(Net(True, behind(WINDOW - 2, shifted))), "same")  # the last label alone
        for causal in (True, False):
            with self.assertRaisesRegex(ExportError, "no label counts but the last one"):
                found(Net(causal, behind(WINDOW - 1, by_hand)))

    def test_no_label_that_counts(self):
        with self.assertRaisesRegex(ExportError, "the loss does not depend on them"):
            found(Net(True, lambda scores, labels: plain(scores, labels * 0)))

    def test_norms_over_batch_and_time(self):
        """Statistics of a batch depend on later tokens, and say nothing of what the labels are."""
        for loss, expected in ((plain, "next"), (shifted, "same")):
            module = Convolved(loss, nn.BatchNorm1d(WIDTH))
            self.assertEqual(found(module), expected)
            self.assertTrue(module.norm.training)
        for norm in (nn.BatchNorm1d(WIDTH, track_running_stats=False), nn.GroupNorm(2, WIDTH), nn.InstanceNorm1d(WIDTH)):
            with self.assertRaisesRegex(ExportError, "a norm over positions|dim 0 seems to be no batch"):
                found(Convolved(plain, norm))

    def test_time_first(self):
        """Rows of a token file are rows of dim 0, so that a module that wants the time there would train on something else."""
        self.assertEqual(found(Recurrent(True)), "next")
        with self.assertRaisesRegex(ExportError, "dim 0 seems to be no batch; inputs are .batch, time.: transpose them"):
            found(Recurrent(False), rows=6)

        def shifted_in_time(scores, labels):
            return plain(scores[:-1], labels[1:])

        module = Net(False, shifted_in_time)
        module.scores = lambda x: Net.scores(module, x.T).transpose(0, 1)
        with self.assertRaisesRegex(ExportError, "dim 0 seems to be no batch"):
            found(module, rows=6)

    def test_attention_that_starts_at_zero_is_seen_by_its_gradient(self):
        for causal, expected in ((True, "next"), (False, "same")):
            module = Net(causal, plain)
            nn.init.zeros_(module.value.weight)
            nn.init.zeros_(module.value.bias)
            self.assertEqual(found(module), expected)

    def test_bfloat16(self):
        for causal, loss, expected in ((True, plain, "next"), (True, shifted, "same"), (False, plain, "same")):
            self.assertEqual(found(Net(causal, loss).bfloat16()), expected)

    def test_a_forward_that_names_its_types(self):
        for causal, loss, expected in ((True, plain, "next"), (True, shifted, "same"), (False, plain, "same")):
            self.assertEqual(found(Mixed(causal, loss)), expected)

    def test_the_module_stays_as_it_was(self):
        module = Net(True, plain)
        module.norm = nn.BatchNorm1d(WINDOW)
        module.loss = lambda scores, labels: plain(module.norm(scores), labels)
        before = {k: v.clone() for k, v in module.state_dict().items()}
        state = torch.get_rng_state()
        found(module)
        for name, value in module.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        self.assertTrue(all(p.grad is None for p in module.parameters()))
        torch.randint(0, VOCABULARY, (2, WINDOW))
        torch.set_rng_state(state)

    def test_what_cannot_be_told_asks_for_roles(self):
        blind = Net(True, plain)
        nn.init.zeros_(blind.embed.weight)
        nn.init.zeros_(blind.head.weight)
        blind.requires_grad_(False)
        blind.head.bias.requires_grad_(True)
        with self.assertRaisesRegex(ExportError, 'roles=.*"targets".*"labels": "next"'):
            found(blind)
        self.assertEqual(found(blind, labels="next"), "next")

    def test_a_leak_of_later_tokens_is_neither_causal_nor_masked(self):
        with self.assertRaisesRegex(ExportError, "neither plainly causal nor plainly bidirectional"):
            found(Leaky(True, plain))


def eager_losses(module, tokens, rate, steps, world):
    """Plain SGD over `world` windows of one row per step."""
    losses = []
    for step in range(steps):
        total = 0
        for rank in range(world):
            start = (step * world + rank) * WINDOW
            x, y = (torch.tensor([tokens[start + d : start + d + WINDOW]]) for d in (0, 1))
            total = total + functional.cross_entropy(module.scores(x)[0], y[0]) / world
        losses.append(total.item())
        gradients = torch.autograd.grad(total, list(module.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(module.parameters(), gradients):
                parameter -= rate * gradient
    return losses


class Trained(export_case.ExportTest):
    @functools.cached_property
    def tokens(self):
        random.seed(5)
        return [random.randrange(VOCABULARY) for _ in range(200)]

    def test_targets_that_the_caller_shifts_are_the_next_tokens(self):
        torch.manual_seed(2)
        module = Net(True, plain)
        x = torch.randint(0, VOCABULARY, (1, WINDOW))
        report = export_train_step(module, (x, x.clone()), self.path(), optimizer=torch.optim.SGD(module.parameters(), lr=0.5))
        self.assertIn("targets are the next tokens", report.labels)
        self.assertEqual(export_case.description(self.path())["inputs"][1]["labels"], "next")
        data = self.path("tokens.bin")
        with open(data, "wb") as file:
            file.write(struct.pack("<200H", *self.tokens))
        plan = running.compile_plan(self.path(), 2, 3)
        self.assertEqual({i["name"]: i.get("labels") for i in running.inspect(plan)["inputs"]}["targets"], "next")
        ours = [row["loss"] for row in running.train(plan, self.path(), 2, 6, data=data).steps]
        theirs = eager_losses(module, self.tokens, 0.5, 6, 2)
        for step, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            self.assertAlmostEqual(a, b, delta=1e-5 * b, msg=f"step {step + 1}")
        # (200 - 1) // 8 windows are 12 steps of 2: the 13th starts over.
        epochs = [row["epoch"] for row in running.train(plan, self.path(), 2, 13, data=data).steps]
        self.assertEqual(epochs, [0] * 12 + [1])

    def test_roles_are_checked(self):
        module = Net(True, plain)
        x = torch.randint(0, VOCABULARY, (1, WINDOW))
        for role in ({"role": "labels", "labels": "previous"}, {"role": "class", "labels": "next"}):
            with self.assertRaisesRegex(ExportError, "labels"):
                export_train_step(module, (x, x.clone()), self.path(), roles={"targets": role})
        self.assertFalse(os.path.exists(self.path()))


if __name__ == "__main__":
    unittest.main()
