"""Tests of the exporter. Needs torch, torchvision and transformers; runs on the CPU.

    build/venv/bin/python tests/e2e/export_test.py            # about two minutes
    DCC_SLOW_TESTS=1 build/venv/bin/python tests/e2e/export_test.py
"""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
import zipfile

import torch
from torch import nn
from torch.export.graph_signature import InputKind, OutputKind

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts"))

from dcc_export import ExportError, export_train_step  # noqa: E402
from dcc_export import command, presets  # noqa: E402
from dcc_export.check import check_archive  # noqa: E402
from dcc_export.workload import Options, make  # noqa: E402

CONFIGS = os.path.join(ROOT, "tests", "data", "hf_configs")
SMALL_PRESETS = [n for n in presets.NAMES if n not in presets.REAL]


def run_command(*arguments):
    """Returns (exit code, what it printed)."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        code = command.main(list(arguments))
    return code, printed.getvalue()


def read_entry(path, suffix):
    with zipfile.ZipFile(path) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(suffix)]
        return archive.read(name)


def description(path):
    return json.loads(read_entry(path, "extra/dcc.json"))


def targets(program, kind):
    specs = list(program.graph_signature.input_specs) + list(program.graph_signature.output_specs)
    return [s.target for s in specs if s.kind is kind]


class ExportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        torch.manual_seed(0)

    def path(self, name="model.pt2"):
        return os.path.join(self.folder, name)

    def export(self, module, inputs, **options):
        """Exports with the built-in check and returns the reloaded program."""
        export_train_step(module, inputs, self.path(), **options)
        return torch.export.load(self.path())


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.fc2 = nn.Linear(8, 1)

    def forward(self, x, y):
        return nn.functional.mse_loss(self.fc2(self.fc1(x).relu()), y)


def regression_inputs():
    return torch.randn(6, 4), torch.randn(6, 1)


class PresetTest(ExportTest):
    """Every preset through the command: checked against eager, described completely."""

    def test_every_preset(self):
        for name in SMALL_PRESETS:
            with self.subTest(name):
                code, printed = run_command("--preset", name, "-o", self.path())
                self.assertEqual(code, 0, printed)
                self.assertIn("equal eager exactly", printed)
                self.verify_description(name)
                self.verify_nodes()

    def verify_description(self, name):
        program = torch.export.load(self.path())
        extra = description(self.path())
        self.assertEqual((extra["format"], extra["version"]), ("dcc-train-step", 1))
        users = list(program.graph_signature.user_inputs)
        self.assertEqual(users, [i["name"] for i in extra["inputs"]] + ["loss_scale"])
        state = targets(program, InputKind.PARAMETER)
        state += [s.target for s in program.graph_signature.input_specs
                  if s.kind is InputKind.BUFFER and s.persistent]
        self.assertEqual(sorted(extra["initializers"]), sorted(state))
        self.verify_initial_values(program, extra["initializers"])
        model = make(Options(*presets.default_shape(name)), preset=name).module.model
        self.assertEqual(set(program.state_dict), set(model.state_dict()))

    def verify_initial_values(self, program, rules):
        """The rules describe the weights that the model really started from."""
        for fqn, rule in rules.items():
            value = program.state_dict[fqn].detach().float()
            if rule["kind"] in ("zeros", "ones"):
                self.assertTrue(torch.all(value == (rule["kind"] == "ones")), fqn)
            elif value.numel() >= 1000 and rule["kind"] == "normal":
                self.assertAlmostEqual(float(value.std()) / rule["std"], 1.0, delta=0.1, msg=fqn)
                self.assertLess(abs(float(value.mean()) - rule["mean"]), 0.1 * rule["std"], fqn)
            elif rule["kind"] == "uniform":
                self.assertLessEqual(float(value.max()), rule["high"], fqn)
                self.assertGreaterEqual(float(value.min()), rule["low"], fqn)
                if value.numel() >= 1000:
                    self.assertGreater(float(value.max()), 0.95 * rule["high"], fqn)

    def verify_nodes(self):
        graph = json.loads(read_entry(self.path(), "models/model.json"))["graph_module"]["graph"]
        phases, owners = [], set()
        for node in graph["nodes"]:
            self.assertEqual(list(node["metadata"]), ["custom"], node["name"])
            marks = json.loads(node["metadata"]["custom"])
            self.assertLessEqual(set(marks), {"ph", "m", "acc"})
            phases.append(marks["ph"])
            owners.add(marks["m"])
        self.assertEqual("".join(phases).replace("ff", "f").strip("f").strip("b"), "")
        self.assertGreater(len(owners), 4)
        self.assertFalse([m for m in owners if m.startswith(("step", "model.model"))])

    def test_reduced_precision(self):
        for dtype in ("bfloat16", "autocast-bfloat16"):
            for name in ("tiny-llama", "mlp"):
                with self.subTest((dtype, name)):
                    code, printed = run_command("--preset", name, "--dtype", dtype,
                                                "-o", self.path())
                    self.assertEqual(code, 0, printed)
                    parameter = next(iter(torch.export.load(self.path()).parameters()))
                    expected = torch.bfloat16 if dtype == "bfloat16" else torch.float32
                    self.assertEqual(parameter.dtype, expected)

    def test_dropout(self):
        code, printed = run_command("--preset", "tiny-gpt2", "--dropout", "0.1", "-o", self.path())
        self.assertEqual(code, 0, printed)
        ops = [str(n.target) for n in torch.export.load(self.path()).graph.nodes]
        self.assertEqual(ops.count("aten.native_dropout.default"), 7)

    def test_fused_attention(self):
        run_command("--preset", "tiny-llama", "--no-check", "-o", self.path())
        ops = [str(n.target) for n in torch.export.load(self.path()).graph.nodes]
        flash = "aten._scaled_dot_product_flash_attention_for_cpu"
        self.assertEqual(ops.count(flash + ".default"), 2)
        self.assertEqual(ops.count(flash + "_backward.default"), 2)

    def test_same_bytes_twice(self):
        contents = []
        for sub in ("one", "two"):
            os.mkdir(self.path(sub))
            path = self.path(f"{sub}/model.pt2")
            run_command("--preset", "tiny-gpt2", "--no-check", "-o", path)
            with open(path, "rb") as file:
                contents.append(file.read())
        self.assertEqual(contents[0], contents[1])


class TieTest(ExportTest):
    def test_tied_embedding(self):
        run_command("--preset", "tiny-llama-tied", "-o", self.path())
        program = torch.export.load(self.path())
        self.assertEqual(description(self.path())["aliases"],
                         {"lm_head.weight": "model.embed_tokens.weight"})
        names = targets(program, InputKind.PARAMETER)
        self.assertIn("model.embed_tokens.weight", names)
        self.assertNotIn("lm_head.weight", names)
        self.assertEqual(len(names), len(set(targets(program, OutputKind.GRADIENT_TO_PARAMETER))))
        config = json.loads(read_entry(self.path(), "model_weights_config.json"))["config"]
        self.assertEqual(config["lm_head.weight"]["path_name"],
                         config["model.embed_tokens.weight"]["path_name"])

    def test_loaded_as_a_module(self):
        run_command("--preset", "tiny-llama-tied", "-o", self.path())
        program = torch.export.load(self.path())
        tokens = torch.randint(0, 256, (2, 32))
        outputs = program.module()(tokens, tokens, torch.tensor(1.0))
        workload = make(Options(), preset="tiny-llama-tied")
        self.assertTrue(torch.equal(outputs[0], workload.module(tokens, tokens)))


class UserModuleTest(ExportTest):
    def test_frozen_parameter(self):
        module = Regression()
        module.fc1.weight.requires_grad_(False)
        program = self.export(module, regression_inputs())
        self.assertIn("fc1.weight", targets(program, InputKind.PARAMETER))
        self.assertEqual(targets(program, OutputKind.GRADIENT_TO_PARAMETER),
                         ["fc1.bias", "fc2.weight", "fc2.bias"])

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

        inputs = (torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 3, dtype=torch.int64),
                  torch.rand(2, 3))
        program = self.export(Wrapper(), inputs, root="net",
                              roles={"weight": {"role": "float", "low": 0.5, "high": 2.0}})
        self.assertEqual(targets(program, InputKind.PARAMETER), ["0.weight", "1.weight", "1.bias"])
        extra = description(self.path())
        self.assertEqual(extra["inputs"], [
            {"name": "ids", "role": "tokens", "low": 0, "high": 11},
            {"name": "labels", "role": "labels", "low": 0, "high": 7},
            {"name": "weight", "role": "float", "low": 0.5, "high": 2.0},
        ])
        self.assertEqual(extra["initializers"]["0.weight"],
                         {"kind": "normal", "mean": 0.0, "std": 1.0})
        self.assertEqual(extra["initializers"]["1.weight"],
                         {"kind": "uniform", "low": -0.5, "high": 0.5})

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

    def test_difference_from_eager_is_found(self):
        """A wrong weight, and a Python value baked into the graph, fail the check."""

        class Baked(Regression):
            factor = 1.0

            def forward(self, x, y):
                return super().forward(x, y) * self.factor

        from dcc_export.step import StepModule

        module, inputs = Baked(), regression_inputs()
        self.export(module, inputs)
        step = StepModule(module, 2, [], None)
        inputs_described = description(self.path())["inputs"]

        def check():
            return check_archive(self.path(), step, inputs, inputs_described,
                                 lambda n: n.removeprefix("step."), 0)

        self.assertTrue(check().passed)
        module.factor = 1.001
        self.assertFalse(check().passed)
        module.factor = 1.0
        with torch.no_grad():
            module.fc2.bias += 0.01
        self.assertFalse(check().passed)

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

    def test_bad_configs(self):
        for text in ("{", "[]", "{}", '{"model_type": "nope"}',
                     '{"model_type": "clip", "projection_dim": 8}',
                     '{"model_type": "llama", "hidden_size": "wide"}'):
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
        self.assertEqual(found, 65, printed)
        self.assertIn("sliding window (8)", printed)


class OptimizerTest(ExportTest):
    def described(self, module, optimizer, **options):
        self.export(module, regression_inputs(), optimizer=optimizer, check=False, **options)
        return description(self.path())["optimizer"]

    def test_adamw_with_groups(self):
        module = Regression()
        biases = [module.fc1.bias, module.fc2.bias]
        weights = [module.fc1.weight, module.fc2.weight]
        optimizer = torch.optim.AdamW(
            [{"params": weights}, {"params": biases, "weight_decay": 0.0}],
            lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
        self.assertEqual(self.described(module, optimizer, clip_norm=1.0), {
            "optimizer": {"kind": "adamw", "lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8,
                          "weight_decay": 0.1},
            "groups": [{"match": "fc1.bias", "weight_decay": 0.0},
                       {"match": "fc2.bias", "weight_decay": 0.0}],
            "clip_norm": 1.0,
        })

    def test_sgd(self):
        module = Regression()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        self.assertEqual(self.described(module, optimizer), {
            "optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0}})

    def test_none(self):
        self.export(Regression(), regression_inputs(), check=False)
        self.assertNotIn("optimizer", description(self.path()))

    def test_refused(self):
        module, other = Regression(), Regression()
        cases = [
            ("is trainable but not in", torch.optim.AdamW([module.fc1.weight])),
            ("the module does not have",
             torch.optim.AdamW(list(module.parameters()) + list(other.parameters()))),
            ("not supported", torch.optim.Adam(module.parameters())),
            ("amsgrad", torch.optim.AdamW(module.parameters(), amsgrad=True)),
            ("nesterov", torch.optim.SGD(module.parameters(), lr=1, momentum=0.9, nesterov=True)),
        ]
        for pattern, optimizer in cases:
            with self.subTest(pattern), self.assertRaisesRegex(ExportError, pattern):
                self.described(module, optimizer)


class TransformersTest(ExportTest):
    """The eight architectures by config, and ours against transformers' own attention."""

    def test_configs_export_and_check(self):
        for file in sorted(os.listdir(CONFIGS)):
            with self.subTest(file):
                code, printed = run_command("--hf-config", os.path.join(CONFIGS, file),
                                            "-o", self.path())
                self.assertEqual(code, 0, printed)

    def test_same_numbers_as_stock_models(self):
        sources = [("hf_config", os.path.join(CONFIGS, f)) for f in sorted(os.listdir(CONFIGS))]
        sources += [("preset", n) for n in SMALL_PRESETS if n.startswith("tiny-")]
        for kind, source in sources:
            with self.subTest(os.path.basename(source)):
                workload = make(Options(), **{kind: source})
                self.compare_with_stock(workload)

    def compare_with_stock(self, workload):
        ours = workload.module.model
        inputs = dict(workload.inputs)
        stock = type(ours)(ours.config.__class__.from_dict(ours.config.to_dict()))
        stock.set_attn_implementation("eager")
        if getattr(stock.config, "num_local_experts", None):
            stock.set_experts_implementation("eager")
        stock.load_state_dict(ours.state_dict())
        stock.train()
        loss = workload.module(**workload.inputs)
        loss.backward()
        if "mask" in inputs:
            inputs["attention_mask"] = inputs.pop("mask")
        expected = stock(**inputs).loss
        expected.backward()
        self.assertAlmostEqual(float(loss), float(expected), delta=1e-5)
        gradients = dict(stock.named_parameters())
        norm = sum(float(p.grad.square().sum()) for p in stock.parameters()) ** 0.5
        for name, parameter in ours.named_parameters():
            distance = float((parameter.grad - gradients[name].grad).norm())
            allowed = 1e-4 * float(gradients[name].grad.norm()) + 1e-6 * norm
            self.assertLessEqual(distance, allowed, name)


class HeadlessTest(ExportTest):
    def test_same_graph_as_with_weights(self):
        for name in ("tiny-llama", "tiny-gpt2", "tiny-mixtral", "tiny-bert", "resnet18"):
            with self.subTest(name):
                common = ["--preset", name, "--dtype", "bfloat16", "--no-check"]
                run_command(*common, "-o", self.path("full.pt2"))
                code, printed = run_command(*common, "--headless", "-o", self.path("less.pt2"))
                self.assertEqual(code, 0, printed)
                for entry in ("models/model.json", "extra/dcc.json"):
                    full, less = (json.loads(read_entry(self.path(p), entry))
                                  for p in ("full.pt2", "less.pt2"))
                    self.assertEqual(full, less)
                self.verify_records()

    def verify_records(self):
        full, less = (json.loads(read_entry(self.path(p), "model_weights_config.json"))["config"]
                      for p in ("full.pt2", "less.pt2"))
        self.assertEqual(sorted(full), sorted(less))
        ties = len(description(self.path("less.pt2"))["aliases"])
        self.assertEqual(len({e["path_name"] for e in less.values()}), len(less) - ties)
        with zipfile.ZipFile(self.path("less.pt2")) as archive:
            self.assertFalse([n for n in archive.namelist() if "weight_" in n])
        constants = json.loads(read_entry(self.path("less.pt2"), "constants_config.json"))["config"]
        program = torch.export.load(self.path("full.pt2"))
        for fqn, entry in constants.items():
            raw = read_entry(self.path("less.pt2"), "constants/" + entry["path_name"])
            expected = program.constants[fqn].contiguous().view(torch.uint8).numpy().tobytes()
            self.assertEqual(raw, expected, fqn)

    def test_cuda_flavour(self):
        for extra in ([], ["--headless"]):
            code, printed = run_command(
                "--preset", "tiny-llama", "--dtype", "bfloat16", "--attention", "cuda-flash",
                "-o", self.path(), *extra)
            self.assertEqual(code, 0, printed)
            text = read_entry(self.path(), "models/model.json").decode()
            self.assertNotIn('"cpu"', text)
            self.assertEqual(text.count("_scaled_dot_product_flash_attention.default"), 2)
            self.assertEqual(text.count("_scaled_dot_product_flash_attention_backward.default"), 2)

    @unittest.skipUnless(os.environ.get("DCC_SLOW_TESTS"), "set DCC_SLOW_TESTS=1")
    def test_real_shapes(self):
        expected = {"llama-3-8b": (8030261248, 32), "llama-3-70b": (70553706496, 80),
                    "mixtral-8x7b": (46702792704, 32)}
        for name, (parameters, layers) in expected.items():
            with self.subTest(name):
                code, printed = run_command("--preset", name, "--headless", "-o", self.path())
                self.assertEqual(code, 0, printed)
                self.assertIn(f"{parameters} parameters", printed)
                text = read_entry(self.path(), "models/model.json").decode()
                op = "_scaled_dot_product_flash_attention_for_cpu.default"
                self.assertEqual(text.count(op), layers)
                self.assertLess(os.path.getsize(self.path()), 1 << 20)


if __name__ == "__main__":
    unittest.main()
