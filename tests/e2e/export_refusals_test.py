"""Tests of what export_train_step refuses: modules that are no step, and what a user tries first and cannot have.

build/venv/bin/python tests/e2e/export_refusals_test.py
"""

import os
import random
import unittest
import unittest.mock

import numpy
import torch
from torch import nn
from torch._export.serde.serialize import SerializeError

from export_case import ExportTest, Regression, description, regression_inputs

from dcc_export import ExportError, export_train_step
from dcc_export.check import check_archive
from dcc_export.step import StepModule


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

    def test_what_nobody_foresaw_is_a_sentence(self):
        """SerializeError is a RuntimeError, but no full disk."""
        serializer = "torch._export.serde.serialize.ExportedProgramSerializer.serialize"
        for error in (KeyError(torch.uint64), SerializeError("no such type")):
            with unittest.mock.patch(serializer, side_effect=error):
                name = type(error).__name__
                self.refused(f"writing the archive failed with {name}: .* at .*; the exporter did not foresee it", Regression(), regression_inputs(), code=70)
                self.refused(f"writing the graph failed with {name}", Regression(), regression_inputs(), code=70, headless=True)

    def test_errors_without_text_are_named_by_their_type(self):
        inputs = regression_inputs()

        class Fails(Regression):
            def __init__(self, fails):
                super().__init__()
                self.fails = fails

            def forward(self, x, y):
                if self.fails(x):
                    raise RuntimeError()
                return super().forward(x, y)

        def is_drawn(x):
            return type(x) is torch.Tensor and not torch.equal(x, inputs[0])  # while it is traced, x is of another class

        self.refused("fails on inputs within their recorded ranges: RuntimeError; correct the ranges", Fails(is_drawn), inputs)
        self.refused("the module itself fails in PyTorch with RuntimeError in export_refusals_test.py", Fails(lambda x: True), inputs)
        with unittest.mock.patch("torch.export.save", side_effect=RuntimeError()):
            self.refused("cannot write .*: RuntimeError; free space", Regression(), inputs, code=73)

    def test_a_loss_that_is_not_a_number_is_said(self):
        class Root(Regression):
            def forward(self, x, y):
                return (super().forward(x, y) - 1e6).sqrt()

        with self.assertRaisesRegex(ExportError, "check failed: loss of eager is not a number"):
            self.export(Root(), regression_inputs())


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

        # Nor may one become another, or a view of it: each would follow the other from then on.
        def becoming(place):
            def act(m, s):
                m.now.mul_(0.5)
                kept = m.kept.clone()
                place(m)
                return s + kept * m.now

            module = Scores(act)
            module.register_buffer("now", torch.rand(3))
            module.register_buffer("kept", torch.rand(3))
            return module

        own = "in the place of buffer kept.*clone"
        self.refused("now itself.*" + own, becoming(lambda m: setattr(m, "kept", m.now)))
        self.refused("now itself.*" + own, becoming(lambda m: setattr(m, "kept", m.now.view(3))))
        self.refused("now itself.*" + own, becoming(lambda m: setattr(m.kept, "data", m.now.data)))
        self.refused("fc.bias itself.*" + own, becoming(lambda m: setattr(m, "kept", m.fc.bias.detach())))
        self.export(becoming(lambda m: setattr(m, "kept", m.now.clone())), score_inputs())

        # Parts of one tensor that share no element follow nothing.
        def parted(m):
            m.now, m.kept = torch.stack([m.now, m.kept], 1).mul(0.5).unbind(1)

        self.export(becoming(parted), score_inputs())
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

    def test_types_that_archives_do_not_have(self):
        for kind in (torch.uint32, torch.uint64, torch.float8_e8m0fnu):
            self.refused(
                f"_to_copy.default in the module makes {kind}.*use another type", Scores(lambda m, s, kind=kind: s * s.detach().abs().to(kind).float())
            )

    def test_modules_that_fail_in_pytorch(self):
        """What PyTorch says of them, whether their trace fails too or only its kernels see it, in the forward or the backward."""
        x, _ = score_inputs()
        for error, line, act in (
            ("expected m1 and m2 to have the same dtype, but got: float != double", "s @ torch.eye", lambda m, s: s @ torch.eye(3).double()),
            ("mixed dtype", "layer_norm", lambda m, s: nn.functional.layer_norm(s, (3,), torch.ones(3).double())),
            ('"softmax_kernel_impl" not implemented for .Int', "s.int", lambda m, s: s + s.int().softmax(0)),
            ("The size of tensor a", "torch.ones.2", lambda m, s: s + torch.ones(2)),
            ("index 7 is out of bounds", "s.7", lambda m, s: s + s[7]),
        ):
            self.refused(f"^the module itself fails in PyTorch with .*{error}.* in export_refusals_test.py:.*{line}", Scores(act))

        def squared(m, s):
            return s + nn.functional.mse_loss(s, torch.ones(6, 3).long())

        self.refused("^the module itself fails in PyTorch with RuntimeError: Found dtype Long but expected Float; correct it there$", Scores(squared))

        class Tokens(Scores):
            def forward(self, ids, labels):
                return super().forward(nn.functional.one_hot(ids, 4).double().sum(1), labels[:, 0])

        self.refused("^the module itself fails in PyTorch.*same dtype", Tokens(), (torch.zeros(6, 2).long(), torch.zeros(6, 2).long()))

    def test_derivatives_that_do_not_exist(self):
        for act in (lambda m, s: torch.nextafter(s, s + 1), lambda m, s: torch.heaviside(s, s)):
            self.refused("tracing failed with .*derivative for .*; PyTorch has none either; use another operator, or detach", Scores(act))

    def test_an_error_without_a_sentence(self):
        def fails(m, s):
            if type(s) is not torch.Tensor:  # while it is traced
                raise AssertionError
            return s

        self.refused("tracing failed with AssertionError in export_refusals_test.py:.*write this line with other operators", Scores(fails))

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
        for ignored in (-100, 1, -1, 3, 255):
            self.export(Scores(ignore_index=ignored), score_inputs())
            labels = description(self.path())["inputs"][1]
            self.assertEqual((labels["low"], labels["high"], labels.get("ignored", -100)), (0, 3, ignored))

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
