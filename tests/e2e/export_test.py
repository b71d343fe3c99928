"""Tests of export_train_step on small modules.

build/venv/bin/python tests/e2e/export_test.py
"""

import unittest

import torch
from torch import nn
from torch.export.graph_signature import InputKind, OutputKind

import running
from export_case import ExportTest, Regression, description, regression_inputs, targets

from dcc_export import ExportError, export_train_step


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

    def test_masks_that_leave_out(self):
        """A token file fills masks with ones, and nothing is left where True leaves out: what may be such a mask is none, and a token file is refused."""

        class Padded(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.attend, self.out = nn.Embedding(9, 4), nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 9)

            def forward(self, ids, labels, key_padding_mask, padding_mask, weights_of_loss, mask, encoder_attention_mask):
                h = self.embed(ids)
                h = self.attend(h, h, h, key_padding_mask=key_padding_mask, need_weights=False)[0].masked_fill(padding_mask[..., None] == 1, 0.0)
                loss = nn.functional.cross_entropy(self.out(h).transpose(1, 2), labels, reduction="none") * weights_of_loss
                return (loss * mask * encoder_attention_mask).mean()

        ids, none, ones = torch.randint(9, (2, 6)), torch.zeros(2, 6), torch.ones(2, 6)
        module = Padded()
        self.export(module, (ids, ids, none.bool(), none.long(), ones.bool(), ones.long(), ones.bool()), optimizer=torch.optim.SGD(module.parameters(), lr=0.1))
        found = [(d["role"], d["low"], d["high"], d.get("guessed", False)) for d in description(self.path())["inputs"][2:]]
        flags = ("class", 0, 2)
        self.assertEqual(found, [(*flags, False), (*flags, True), (*flags, False), ("mask", 0, 2, False), ("mask", 0, 2, False)])
        plan = running.compile_plan(self.path(), 1, 0)
        data = self.path("tokens.bin")
        torch.randint(9, (100,), dtype=torch.int16).numpy().tofile(data)
        with self.assertRaisesRegex(running.CommandFailed, "DC6212.*key_padding_mask"):
            running.train(plan, self.path(), 1, 1, data=data)
        self.assertEqual(len(running.train(plan, self.path(), 1, 2, data="synthetic:1").steps), 2)

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

    def test_autocast_inside_the_forward(self):
        """Parameters and example are float32, and the check knows that what is computed is not."""

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm = torch.nn.LSTM(8, 8, batch_first=True)

            def forward(self, x):
                with torch.autocast("cpu", torch.bfloat16):
                    return self.lstm(x)[0].float().square().mean()

        report = export_train_step(Net(), (torch.randn(4, 5, 8),), self.path(), eval=True)
        self.assertIn("within 0.02 relative", report.check)

    def test_bfloat16_loss(self):
        inputs = [t.to(torch.bfloat16) for t in regression_inputs()]
        program = self.export(Regression().to(torch.bfloat16), inputs)
        loss, *gradients = program.module()(*inputs, torch.tensor(1.0))
        self.assertEqual({t.dtype for t in (loss, *gradients)}, {torch.bfloat16})


if __name__ == "__main__":
    unittest.main()
