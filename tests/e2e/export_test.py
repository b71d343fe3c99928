"""Tests of export_train_step on small modules and of refusals.

build/venv/bin/python tests/e2e/export_test.py
"""

import fcntl
import json
import os
import random
import unittest

import numpy
import torch
from torch import nn
from torch.export.graph_signature import InputKind, OutputKind

from export_case import ROOT, ExportTest, description, run_command, targets

from dcc_export import ExportError, export_train_step
from dcc_export.check import check_archive
from dcc_export.step import StepModule

CONFIGS = os.path.join(ROOT, "tests", "data", "hf_configs")


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.fc2 = nn.Linear(8, 1)

    def forward(self, x, y):
        return nn.functional.mse_loss(self.fc2(self.fc1(x).relu()), y)


def regression_inputs():
    return torch.randn(6, 4), torch.randn(6, 1)


class UserModuleTest(ExportTest):
    def test_frozen_parameter(self):
        module = Regression()
        module.fc1.weight.requires_grad_(False)
        program = self.export(module, regression_inputs())
        self.assertIn("fc1.weight", targets(program, InputKind.PARAMETER))
        self.assertEqual(targets(program, OutputKind.GRADIENT_TO_PARAMETER), ["fc1.bias", "fc2.weight", "fc2.bias"])

    def test_unused_parameter(self):
        module = Regression()
        module.unused = nn.Parameter(torch.zeros(3))
        program = self.export(module, regression_inputs())
        self.assertIn("unused", targets(program, InputKind.PARAMETER))
        self.assertNotIn("unused", targets(program, OutputKind.GRADIENT_TO_PARAMETER))

    def test_parameters_with_one_gradient_node(self):
        class Sum(nn.Module):
            def __init__(self):
                super().__init__()
                self.p = nn.Parameter(torch.randn(5))
                self.q = nn.Parameter(torch.randn(5))

            def forward(self, x):
                return ((self.p + self.q) * x).sum()

        program = self.export(Sum(), torch.randn(5))
        outputs = [s.arg.name for s in program.graph_signature.output_specs]
        self.assertEqual(len(outputs), 3)
        self.assertEqual(len(set(outputs)), 3)

    def test_gradient_that_is_the_scale_itself(self):
        class Direct(nn.Module):
            def __init__(self):
                super().__init__()
                self.loss = nn.Parameter(torch.tensor(3.0))

            def forward(self, x):
                return self.loss + x.sum()

        program = self.export(Direct(), torch.randn(2))
        _, gradient = program.module()(torch.randn(2), torch.tensor(4.0))
        self.assertEqual(float(gradient), 4.0)

    def test_buffers_written_with_one_value(self):
        class Twice(Regression):
            def __init__(self):
                super().__init__()
                self.register_buffer("first", torch.zeros(4))
                self.register_buffer("second", torch.zeros(4))

            def forward(self, x, y):
                mean = x.mean(0)
                self.first.copy_(mean)
                self.second.copy_(mean)
                return super().forward(x, y)

        program = self.export(Twice(), regression_inputs())
        self.assertEqual(targets(program, OutputKind.BUFFER_MUTATION), ["first", "second"])
        nodes = [n for n in program.graph.nodes if n.op == "call_function"]
        phases = "".join(n.meta["custom"]["ph"] for n in nodes if "custom" in n.meta)
        self.assertRegex(phases, "^f+b+$")

    def test_ranges_of_integers(self):
        """Read from the graph, given, or guessed from the example, and then not binding."""

        class Rows(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.fc = nn.Embedding(9, 4), nn.Linear(4, 5)

            def forward(self, ids, labels, counts, pairs, shift):
                scores = self.fc(self.embed(ids) * self.embed(pairs[:, 0])) * counts[:, None] + pairs[:, 1:] + shift[:, None]
                return nn.functional.binary_cross_entropy_with_logits(scores, nn.functional.one_hot(labels, 5).float())

        three = torch.tensor([0, 2, 1])
        self.export(Rows(), (three, three, three, torch.tensor([[0, 1]] * 3), three), roles={"counts": {"role": "class", "low": 1, "high": 6}})
        found = [(d["role"], d["low"], d["high"], d.get("guessed", False)) for d in description(self.path())["inputs"][:5]]
        expected = ("tokens", 0, 9, False), ("class", 0, 5, False), ("class", 1, 6, False), ("tokens", 0, 9, True), ("class", 0, 3, True)
        self.assertEqual(found, list(expected))

    def test_roles_are_not_guessed_from_names_alone(self):
        """`start_positions` are labels and `masked_ids` tokens; positions count up, and masks are of zeros and ones."""

        class Spans(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.places, self.score = nn.Embedding(11, 4), nn.Embedding(9, 4), nn.Linear(4, 1)

            def forward(self, masked_ids, position_ids, attention_mask, mask_kinds, start_positions):
                h = self.words(masked_ids) + self.places(position_ids) * (1 + mask_kinds[..., None])
                scores = self.score(h).squeeze(-1).masked_fill(attention_mask == 0, -1e9)
                return nn.functional.cross_entropy(scores, start_positions.clamp(0, 5))

        inputs = (torch.randint(11, (3, 6)), torch.arange(6).expand(3, 6), torch.ones(3, 6, dtype=torch.int64), torch.arange(18).view(3, 6) % 3)
        self.export(Spans(), (*inputs, torch.tensor([0, 1, 5])))
        self.assertEqual([d["role"] for d in description(self.path())["inputs"]], ["tokens", "positions", "mask", "class", "class"])

    def test_memory_order(self):
        """Parameters, buffers and inputs in another order are written in that of their dims, and stay as they are in the module."""

        class Turned(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(3, 4).t())
                self.register_buffer("scale", torch.rand(3, 6).t())

            def forward(self, x):
                return ((x @ self.weight) * self.scale).square().mean()

        module, x = Turned(), torch.randn(4, 6).t()
        program = self.export(module, (x,), optimizer=torch.optim.AdamW(module.parameters()))
        self.assertEqual((module.weight.stride(), module.scale.stride()), ((1, 4), (1, 6)))
        for name in ("weight", "scale"):
            self.assertTrue(program.state_dict[name].is_contiguous())
            self.assertTrue(torch.equal(program.state_dict[name], getattr(module, name)))
        values = [n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"]
        self.assertTrue(all(value.is_contiguous() for value in values))

    def test_keyword_inputs_and_none(self):
        class Keywords(Regression):
            def forward(self, x, y=None, weight=None):
                loss = super().forward(x, y)
                return loss if weight is None else loss * weight.mean()

        x, y = regression_inputs()
        self.export(Keywords(), ((x,), {"y": y, "weight": None}))
        names = [i["name"] for i in description(self.path())["inputs"]]
        self.assertEqual(names, ["x", "y"])
        self.export(Keywords(), {"weight": torch.rand(3), "x": x, "y": y})
        names = [i["name"] for i in description(self.path())["inputs"]]
        self.assertEqual(names, ["weight", "x", "y"])

    def test_input_names_of_builtins_and_operators(self):
        class Named(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 1)

            def forward(self, input, t, p_fc_weight):
                return (self.fc(input) * t + p_fc_weight).sum()

        inputs = (torch.randn(2, 4), torch.randn(2, 1), torch.randn(2, 1))
        program = self.export(Named(), inputs)
        users = list(program.graph_signature.user_inputs)
        self.assertEqual(users[:2] + users[3:], ["input", "t", "loss_scale"])
        self.assertEqual([i["name"] for i in description(self.path())["inputs"]], users[:3])

    def test_one_tensor_passed_twice(self):
        x = torch.randn(6, 1)
        module = Regression()
        module.fc1 = nn.Linear(1, 8)
        program = self.export(module, (x, x))
        outputs = program.module()(x, x + 1, torch.tensor(1.0))
        self.assertTrue(torch.equal(outputs[0], module(x, x + 1)))

    def test_literal_tensor_and_buffers(self):
        class Literal(Regression):
            def __init__(self):
                super().__init__()
                self.register_buffer("scale", torch.tensor([2.0]), persistent=False)
                self.register_buffer("seen", torch.zeros(()))

            def forward(self, x, y):
                self.seen += 1
                return super().forward(x * self.scale + torch.tensor([1.0, 2.0, 3.0, 4.0]), y)

        module = Literal()
        program = self.export(module, regression_inputs())
        self.assertEqual(float(module.seen), 0.0)
        self.assertEqual(targets(program, OutputKind.BUFFER_MUTATION), ["seen"])
        self.assertEqual(len(targets(program, InputKind.CONSTANT_TENSOR)), 1)
        self.assertIn("scale", program.constants)
        self.assertNotIn("scale", program.state_dict)

    def test_loss_scale_multiplies_gradients_only(self):
        program = self.export(Regression(), regression_inputs())
        inputs = regression_inputs()
        once = program.module()(*inputs, torch.tensor(1.0))
        twice = program.module()(*inputs, torch.tensor(2.0))
        self.assertTrue(torch.equal(once[0], twice[0]))
        for a, b in zip(once[1:], twice[1:], strict=True):
            self.assertTrue(torch.equal(2 * a, b))

    def test_root_and_roles(self):
        class Wrapper(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Sequential(nn.Embedding(11, 4), nn.Linear(4, 7))

            def forward(self, ids, labels, weight):
                scores = self.net(ids).transpose(1, 2)
                losses = nn.functional.cross_entropy(scores, labels, reduction="none")
                return (losses * weight).mean()

        inputs = (torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 3, dtype=torch.int64), torch.rand(2, 3))
        program = self.export(Wrapper(), inputs, root="net", roles={"weight": {"role": "float", "low": 0.5, "high": 2.0}})
        self.assertEqual(targets(program, InputKind.PARAMETER), ["0.weight", "1.weight", "1.bias"])
        extra = description(self.path())
        self.assertEqual(
            extra["inputs"],
            [
                {"name": "ids", "role": "tokens", "low": 0, "high": 11},
                {"name": "labels", "role": "labels", "labels": "next", "low": 0, "high": 7},
                {"name": "weight", "role": "float", "low": 0.5, "high": 2.0},
            ],
        )
        self.assertEqual(extra["initializers"]["0.weight"], {"kind": "normal", "mean": 0.0, "std": 1.0})
        self.assertEqual(extra["initializers"]["1.weight"], {"kind": "uniform", "low": -0.5, "high": 0.5})

    def test_module_is_left_as_found(self):
        module = Regression()
        before = {k: v.clone() for k, v in module.state_dict().items()}
        torch.manual_seed(5)
        state = torch.get_rng_state()
        self.export(module, regression_inputs())
        torch.set_rng_state(state)
        self.assertNotIn("forward", vars(module.fc1))
        self.assertTrue(all(torch.equal(before[k], v) for k, v in module.state_dict().items()))
        self.assertTrue(all(p.grad is None for p in module.parameters()))

    def test_initializers_given(self):
        rule = {"kind": "constant", "value": 0.5}
        self.export(Regression(), regression_inputs(), initializers={"fc1.bias": rule})
        found = description(self.path())["initializers"]
        self.assertEqual(found["fc1.bias"], rule)
        self.assertEqual(found["fc2.bias"]["kind"], "uniform")
        with self.assertRaisesRegex(ExportError, "which the module lacks"):
            self.export(Regression(), regression_inputs(), initializers={"fc9.bias": rule})

    def test_views_of_copies_have_the_strides_of_the_copies(self):
        """softplus_backward of transposed operands orders its result otherwise than PyTorch records; the exporter inserts a contiguous copy."""

        class Turned(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.scores = nn.Linear(6, 4), nn.Parameter(torch.randn(4, 5))

            def forward(self, x):
                return (nn.functional.softplus(self.first(x).t()) * self.scores).sum()

        program = self.export(Turned(), {"x": torch.randn(5, 6)})
        copied = {n for n in program.graph.nodes if n.target is torch.ops.aten.clone.default}
        views = [n for n in program.graph.nodes if getattr(n.target, "is_view", False)]
        self.assertTrue(any(n.args[0] in copied for n in views))
        for node in views:
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
            with node.meta["val"].fake_mode:
                self.assertEqual(node.target(*args, **kwargs).stride(), node.meta["val"].stride(), node)

    def test_bfloat16_loss(self):
        inputs = [t.to(torch.bfloat16) for t in regression_inputs()]
        program = self.export(Regression().to(torch.bfloat16), inputs)
        loss, *gradients = program.module()(*inputs, torch.tensor(1.0))
        self.assertEqual({t.dtype for t in (loss, *gradients)}, {torch.bfloat16})


class RefusalTest(ExportTest):
    def refused(self, pattern, module, inputs, code=65, **options):
        with self.assertRaisesRegex(ExportError, pattern) as caught:
            export_train_step(module, inputs, self.path(), **options)
        self.assertEqual(caught.exception.exit_code, code)
        self.assertEqual(os.listdir(self.folder), [])

    def test_outputs_that_are_not_a_loss(self):
        self.refused("returns a tensor of shape", nn.Linear(2, 2), torch.randn(2, 2))
        frozen = Regression().requires_grad_(False)
        self.refused("does not depend on any trainable", frozen, regression_inputs())

    def test_inputs(self):
        self.refused("not a tensor", Regression(), (torch.randn(6, 4), 3))
        self.refused("unknown inputs", Regression(), regression_inputs(), roles={"z": "float"})
        self.refused("must be one of", Regression(), regression_inputs(), roles={"x": "pixels"})

    def test_control_flow_on_values(self):
        class Branch(Regression):
            def forward(self, x, y):
                return super().forward(x, y) * (2 if x.sum() > 0 else 1)

        self.refused("tracing failed", Branch(), regression_inputs())

    def test_written_input(self):
        class Writes(Regression):
            def forward(self, x, y):
                x.add_(1)
                return super().forward(x, y)

        self.refused("writes in place", Writes(), regression_inputs())

    def test_buffer_written_by_a_backward(self):
        class Recorded(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, total):
                ctx.total = total
                return x * 1.0

            @staticmethod
            def backward(ctx, gradient):
                ctx.total.add_(gradient.abs().sum())
                return gradient, None

        class Writes(Regression):
            def forward(self, x, y):
                return super().forward(Recorded.apply(self.fc1(x)[:, :4], self.total), y)

        module = Writes()
        module.register_buffer("total", torch.zeros(()))
        self.refused("a backward writes in place", module, regression_inputs())

    def test_difference_from_eager_is_found(self):
        """A wrong weight, and a Python value baked into the graph, fail the check."""

        class Baked(Regression):
            factor = 1.0

            def forward(self, x, y):
                return super().forward(x, y) * self.factor

        module, inputs = Baked(), regression_inputs()
        self.export(module, inputs)
        step = StepModule(module, 2, [], None)
        inputs_described = description(self.path())["inputs"]

        def check():
            return check_archive(self.path(), step, inputs, inputs_described, lambda n: n.removeprefix("step."), 0)

        self.assertTrue(check().passed)
        module.factor = 1.001
        self.assertFalse(check().passed)
        module.factor = 1.0
        with torch.no_grad():
            module.fc2.bias += 0.01
        self.assertFalse(check().passed)

    def test_a_loss_that_is_not_a_number_is_said(self):
        class Root(Regression):
            def forward(self, x, y):
                return (super().forward(x, y) - 1e6).sqrt()

        with self.assertRaisesRegex(ExportError, "check failed: loss of eager is not a number"):
            self.export(Root(), regression_inputs())

    def test_exit_codes(self):
        cases = [
            (64, ["--preset", "nope", "-o", self.path()]),
            (64, ["--preset", "mlp"]),
            (64, ["--preset", "mlp", "-o", self.path("model.zip")]),
            (64, ["--preset", "mlp", "--batch", "0", "-o", self.path()]),
            (64, ["--preset", "mlp", "--dropout", "0.5", "-o", self.path()]),
            (64, ["--preset", "tiny-llama", "--attention", "cuda-flash", "-o", self.path()]),
            (65, ["--preset", "tiny-gpt2", "--seq", "100", "-o", self.path()]),
            (66, ["--hf-config", self.path("none.json"), "-o", self.path()]),
            (73, ["--preset", "mlp", "-o", self.path("no/such/folder.pt2")]),
        ]
        for code, arguments in cases:
            with self.subTest(arguments):
                found, printed = run_command(*arguments)
                self.assertEqual(found, code, printed)
                self.assertEqual(len(printed.strip().splitlines()), 1, printed)
        self.assertEqual(os.listdir(self.folder), [])

    def test_what_killed_exports_left_goes(self):
        dead, live = (self.path(f".dcc_export_{name}") for name in ("dead", "live"))
        for folder in (dead, live):
            os.mkdir(folder)
            with open(os.path.join(folder, "model.pt2"), "w") as file:
                file.write("half")
        lock = os.open(live, os.O_RDONLY)  # as of an export that goes on
        self.addCleanup(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, printed = run_command("--preset", "mlp", "--no-check", "-o", self.path())
        self.assertEqual(code, 0, printed)
        self.assertEqual(sorted(os.listdir(self.folder)), [".dcc_export_live", "model.pt2"])
        self.assertEqual(os.listdir(live), ["model.pt2"])

    def test_a_pipe_is_not_replaced(self):
        os.mkfifo(self.path())
        code, printed = run_command("--preset", "mlp", "--no-check", "-o", self.path())
        self.assertEqual(code, 73, printed)
        self.assertEqual(os.listdir(self.folder), ["model.pt2"])

    def test_misspelt_config_keys_are_named(self):
        import transformers

        from dcc_export import unknown_keys

        values = {"num_hiden_layers": 1, "hidden_size": 64, "my_own_key": 3, "torch_dtype": "float32"}
        (note,) = unknown_keys.notes(transformers.AutoConfig.for_model("llama", **values), values)
        self.assertIn("'num_hiden_layers'", note)
        self.assertIn("did you mean 'num_hidden_layers'?", note)

    def test_bad_configs(self):
        for text in (
            "{",
            "[]",
            "{}",
            '{"model_type": "nope"}',
            '{"model_type": "clip", "projection_dim": 8}',
            '{"model_type": "llama", "hidden_size": "wide"}',
        ):
            with self.subTest(text):
                with open(self.path("config.json"), "w") as file:
                    file.write(text)
                found, printed = run_command("--hf-config", self.folder, "-o", self.path())
                self.assertEqual(found, 65, printed)
                self.assertEqual(len(printed.strip().splitlines()), 1, printed)

    def test_sliding_window_shorter_than_the_sequence(self):
        with open(os.path.join(CONFIGS, "mistral.json")) as file:
            values = {**json.load(file), "sliding_window": 8}
        with open(self.path("config.json"), "w") as file:
            json.dump(values, file)
        found, printed = run_command("--hf-config", self.folder, "-o", self.path())
        self.assertEqual(found, 0, printed)
        self.assertIn("equal the stock transformers model", printed)


class Scores(nn.Module):
    """Cross-entropy of `act(self, scores)`; keyword arguments become attributes."""

    def __init__(self, act=None, ignore_index=-100, **attributes):
        super().__init__()
        self.fc, self.act, self.ignore_index = nn.Linear(4, 3), act, ignore_index
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x, labels):
        scores = self.fc(x) if self.act is None else self.act(self, self.fc(x))
        return nn.functional.cross_entropy(scores, labels, ignore_index=self.ignore_index)


def score_inputs():
    return torch.randn(6, 4), torch.tensor([0, 1, 2, 2, 1, 0])


class WhatToDoTest(ExportTest):
    """What a user tries first and cannot have: the sentence says what to do instead."""

    def refused(self, pattern, module, inputs=None):
        with self.assertRaisesRegex(ExportError, pattern):
            export_train_step(module, score_inputs() if inputs is None else inputs, self.path())
        self.assertEqual(os.listdir(self.folder), [])

    def test_types_of_parameters(self):
        x, labels = score_inputs()
        self.refused("fc.weight is float64.*\\.float\\(\\)", Scores().double(), (x.double(), labels))
        self.refused("fc.weight is float16", Scores().half(), (x.half(), labels))
        rounded = Scores()
        rounded.fc.weight.grad_dtype = torch.bfloat16
        self.refused("fc.weight has grad_dtype torch.bfloat16", rounded)
        self.refused("phase is complex64", Scores(lambda m, s: (s * m.phase).real, phase=nn.Parameter(torch.rand(3) + 0j)))
        self.refused("none has no elements", Scores(none=nn.Parameter(torch.zeros(0, 4))))
        frozen = Scores(lambda m, s: s * m.scale.float(), scale=nn.Parameter(torch.rand(3).double(), requires_grad=False))
        self.export(frozen, score_inputs())

    def test_tensors_that_are_not_registered(self):
        weight = torch.rand(3)
        self.refused("scale is one.*register_buffer", Scores(lambda m, s: s * m.scale, scale=weight))
        self.refused("scales is one.*ParameterList", Scores(lambda m, s: s * m.scales[0], scales=[nn.Parameter(weight)]))
        self.refused("nor made in forward", Scores(lambda m, s: s * weight))

    def test_tensors_in_one_memory(self):
        def with_part_of_weight(part):
            module = Scores(lambda m, s: s * m.part.sum())
            values = part(module.fc.weight.detach())
            module.register_parameter("part", values) if isinstance(values, nn.Parameter) else module.register_buffer("part", values)
            return module

        own = "part lies in the memory of parameter fc.weight.*clone"
        self.refused("buffer " + own, with_part_of_weight(lambda w: w))
        self.refused("buffer " + own, with_part_of_weight(lambda w: w[1:, ::2]))
        self.refused("parameter " + own, with_part_of_weight(lambda w: nn.Parameter(w[0], requires_grad=False)))
        self.refused("parameters part and fc.weight lie.*module.fc.weight = module.part", with_part_of_weight(nn.Parameter))
        # Of two buffers in one memory the forward may write none.
        sums = torch.zeros(6)
        module = Scores(lambda m, s: s + m.sums.mul_(0.5)[:3] * m.first)
        module.register_buffer("sums", sums)
        module.register_buffer("first", sums[:3])
        self.refused("share memory", module)
        self.export(with_part_of_weight(lambda w: w.clone()), score_inputs())
        # Parts of one storage that share no element, and tensors that nothing updates.
        values, columns = torch.rand(6), torch.rand(3, 2)
        for first, second in ((values[:3], values[3:]), (columns[:, 0], columns[:, 1])):
            self.export(Scores(lambda m, s: s * m.a * m.b, a=nn.Parameter(first), b=nn.Parameter(second)), score_inputs())
        frozen = {name: nn.Parameter(values[:3], requires_grad=False) for name in "ab"}
        self.export(Scores(lambda m, s: s * m.a * m.b, **frozen), score_inputs())

    def test_what_changes_in_python(self):
        """A trace holds what a counter or a number drawn in Python was; buffers and torch's own numbers are in the step."""

        def counted(m, s):
            m.calls += 1
            return s / m.calls

        def listed(m, s):
            m.seen.append(1.0)
            return s * sum(m.seen)

        module = Scores(counted, calls=0)
        self.refused("keeps something in Python.*buffer", module)
        self.assertEqual(module.calls, 0)
        self.refused("keeps something in Python.*buffer", Scores(listed, seen=[]))
        random.seed(0)
        self.refused("draws numbers with Python's random.*torch", Scores(lambda m, s: s if random.random() < 0.5 else s * 2))
        self.refused("draws numbers with Python's random.*torch", Scores(lambda m, s: s * float(numpy.random.rand())))
        # Draws of which nothing depends.
        self.export(Scores(lambda m, s: s * 2 if random.random() < 0 else s), score_inputs())

    def test_complex_tensors(self):
        module = Scores(lambda m, s: s * m.turn.real[:, None])
        turn = torch.polar(torch.ones(6), torch.rand(6))
        module.register_buffer("turn", turn)
        self.refused("buffer turn is complex.*persistent=False", module)
        self.refused("turn is a complex tensor.*view_as_real", Scores(lambda m, s: s * m.turn.abs()[:3], turn=nn.Parameter(turn, requires_grad=False)))

    def test_what_tracing_cannot_follow(self):
        def changed(m, s):
            t = s.relu_()
            s += 1
            return t

        def kept(m, s):
            last, m.last = m.last, s.detach()
            return s if last is None else s + last

        self.refused("inplace operation.*PyTorch cannot run this backward either", Scores(changed))
        self.refused("left in an attribute.*register a buffer", Scores(kept, last=None))

    def test_gradient_hooks(self):
        module = Scores()
        module.fc.weight.register_hook(lambda g: g * 2)
        self.refused("fc.weight has a gradient hook", module)
        module = Scores()
        module.fc.register_full_backward_hook(lambda *_: None)
        self.refused("fc has a backward hook", module)

        def scaled(module, scores):  # a hook on what forward makes is part of the graph
            scores.register_hook(lambda g: g * 3)
            return scores

        self.export(Scores(scaled), score_inputs())

    def test_ignored_labels(self):
        for ignored, low, high in ((-100, 0, 3), (1, 0, 3), (-1, -1, 3), (3, 0, 4)):
            self.export(Scores(ignore_index=ignored), score_inputs())
            labels = description(self.path())["inputs"][1]
            self.assertEqual((labels["low"], labels["high"]), (low, high), ignored)
        os.remove(self.path())
        self.refused("ignores label 255.*-100, or -1", Scores(ignore_index=255))

    def test_class_weights_as_input(self):
        class Weighted(Scores):
            def forward(self, x, labels, weight):
                return nn.functional.cross_entropy(self.fc(x), labels, weight=weight)

        self.export(Weighted(), (*score_inputs(), torch.rand(3) + 0.5))

    def test_loss_that_is_a_parameter(self):
        class Itself(nn.Module):
            def __init__(self):
                super().__init__()
                self.values = nn.Parameter(torch.tensor([2.0, 3.0]))
                self.value = nn.Parameter(torch.tensor(2.0))

            def forward(self, x):
                return self.values[1] if x.shape[0] > 1 else self.value

        for rows in (1, 2):
            program = self.export(Itself(), torch.randn(rows))
            loss, gradient = program.module()(torch.randn(rows), torch.tensor(4.0))
            self.assertEqual((float(loss), float(gradient.sum())), (1.0 + rows, 4.0))

    def test_wrappers(self):
        x = score_inputs()[0]
        self.refused("torch.jit", torch.jit.trace(nn.Linear(4, 3), x), x)
        self.refused("torch.compile", torch.compile(Scores()))
        self.refused("\\.module", nn.DataParallel(Scores()))
        self.refused("no values.*headless", Scores().to("meta"))
        self.refused("no shape yet", nn.LazyLinear(3), x)
        self.refused("sparse=True off", Scores(lambda m, s: s + m.emb(torch.tensor(1)), emb=nn.Embedding(3, 3, sparse=True)))
        self.refused("momentum=None", Scores(lambda m, s: m.norm(s), norm=nn.BatchNorm1d(3, momentum=None)))
        synchronized = Scores(lambda m, s: m.norm(s), norm=nn.SyncBatchNorm(3))
        self.refused("norm is a SyncBatchNorm.*convert_sync_batchnorm", synchronized)
        sharded = type("Linear", (nn.Linear,), {"__module__": "torch.distributed.fsdp"})
        sharded.__name__ = "FSDPModule"
        self.refused("fc2 is sharded by FSDP", Scores(lambda m, s: m.fc2(s), fc2=sharded(3, 3)))
        synchronized.norm.eval()
        self.export(synchronized, score_inputs())

    def test_tensors_with_operators_of_their_own(self):
        class Doubled(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                result = super().__torch_function__(function, types, args, kwargs or {})
                return result.as_subclass(torch.Tensor) * 2 if function is torch.Tensor.mul else result

        class Marked(nn.Parameter):
            pass

        scaled = lambda m, s: s * m.scale
        x, labels = score_inputs()
        self.refused("parameter scale is a Doubled", Scores(scaled, scale=nn.Parameter(torch.rand(3).as_subclass(Doubled))))
        self.refused("input 0 is a Doubled.*as_subclass", Scores(), (x.as_subclass(Doubled), labels))
        self.refused("input 0 is torch.sparse_coo.*to_dense", Scores(), (x.to_sparse(), labels))
        self.refused("input 0 is a nested tensor.*padded", Scores(), (torch.nested.nested_tensor(list(x)), labels))
        quantized = Scores(lambda m, s: s * m.scale.dequantize())
        quantized.register_buffer("scale", torch.quantize_per_tensor(torch.rand(3), 0.1, 0, torch.quint8))
        self.refused("buffer scale is quantized", quantized)
        self.export(Scores(scaled, scale=Marked(torch.rand(3))), (x, labels))


if __name__ == "__main__":
    unittest.main()
