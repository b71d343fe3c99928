"""Tests of the exporter's presets and of transformers models, with and without weights.

build/venv/bin/python tests/e2e/export_models_test.py            # half of the presets, the other half on the next day
DCC_SLOW_TESTS=1 build/venv/bin/python tests/e2e/export_models_test.py
"""

import copy
import itertools
import json
import os
import unittest
import zipfile

import torch
import transformers
from torch.export.graph_signature import InputKind, OutputKind

from export_case import ExportTest, description, export_train_step, read_entry, run_command, targets
from rotation import of_today, taking_turns

from dcc_export import experts, hf, presets, separate_experts, zoo
from dcc_export.errors import ExportError
from dcc_export.workload import Options, make

EXACT = {
    "mlp": "equal eager exactly",
    "resnet18": "equal eager exactly",
    "tiny-mixtral": "against the stock transformers model",
    "small-rnnlm": "check against eager",
}
EXACT.update(dict.fromkeys((name for name in zoo.NAMES if name not in EXACT), "equal eager exactly"))
PADDED = ("tiny-bert",)
SMALL_PRESETS = [n for n in presets.NAMES if n not in presets.REAL]


def zero_row(tensor):
    """The row of an embedding's padding, the one that is zeros; None for a tensor without one, or of zeros."""
    rows = (tensor == 0).all(dim=1).nonzero().flatten().tolist() if tensor.dim() == 2 and bool(tensor.any()) else []
    return rows[0] if rows else None


class PresetTest(ExportTest):
    """Every preset through the command: checked against eager, described completely."""

    def test_every_preset(self):
        for name in of_today(SMALL_PRESETS, 5):
            with self.subTest(name):
                code, printed = run_command("--preset", name, "-o", self.path())
                self.assertEqual(code, 0, printed)
                self.assertIn(EXACT.get(name, "equal the stock transformers model exactly"), printed)
                self.verify_description(name)
                self.verify_nodes()

    def verify_description(self, name):
        program = torch.export.load(self.path())
        extra = description(self.path())
        self.assertEqual((extra["format"], extra["version"]), ("dcc-train-step", 1))
        users = list(program.graph_signature.user_inputs)
        self.assertEqual(users, [i["name"] for i in extra["inputs"]] + ["loss_scale"])
        state = targets(program, InputKind.PARAMETER)
        state += [s.target for s in program.graph_signature.input_specs if s.kind is InputKind.BUFFER and s.persistent]
        self.assertEqual(sorted(extra["initializers"]), sorted(state))
        self.assertEqual("zero_row" in str(extra["initializers"]), name in PADDED)
        self.verify_initial_values(program, extra["initializers"])
        model = make(Options(*presets.default_shape(name)), preset=name).module.model
        self.assertEqual(set(program.state_dict), set(model.state_dict()))

    def verify_initial_values(self, program, rules):
        """The rules describe the weights that the model really started from."""
        for fqn, rule in rules.items():
            value = program.state_dict[fqn].detach().float()
            self.assertEqual(rule.get("zero_row"), zero_row(value), fqn)
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
        self.assertGreater(len(owners), 3)
        self.assertFalse([m for m in owners if m.startswith(("step", "model.model"))])

    def test_reduced_precision(self):
        for dtype, name in of_today(itertools.product(("bfloat16", "autocast-bfloat16"), ("tiny-llama", "mlp")), 4):
            with self.subTest((dtype, name)):
                code, printed = run_command("--preset", name, "--dtype", dtype, "-o", self.path())
                self.assertEqual(code, 0, printed)
                parameter = next(iter(torch.export.load(self.path()).parameters()))
                expected = torch.bfloat16 if dtype == "bfloat16" else torch.float32
                self.assertEqual(parameter.dtype, expected)

    def test_dropout(self):
        code, printed = run_command("--preset", "tiny-gpt2", "--dropout", "0.1", "-o", self.path())
        self.assertEqual(code, 0, printed)
        ops = [str(n.target) for n in torch.export.load(self.path()).graph.nodes]
        self.assertEqual(ops.count("aten.native_dropout.default"), 7)

    def test_dropout_of_a_classifier(self):
        """Every rate is set, also that in front of the classes, which works in place here."""
        with open(self.path("config.json"), "w") as file:
            json.dump({"model_type": "mobilenet_v1", "architectures": ["MobileNetV1ForImageClassification"], "image_size": 32, "depth_multiplier": 0.25}, file)
        for rate, expected in (("0.2", 1), ("0", 0)):
            code, printed = run_command("--hf-config", self.folder, "--dropout", rate, "-o", self.path())
            self.assertEqual(code, 0, printed)
            ops = [str(n.target) for n in torch.export.load(self.path()).graph.nodes]
            self.assertEqual(ops.count("aten.native_dropout.default"), expected)

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


@taking_turns(2)
class TieTest(ExportTest):
    def test_tied_embedding(self):
        run_command("--preset", "tiny-llama-tied", "-o", self.path())
        program = torch.export.load(self.path())
        self.assertEqual(description(self.path())["aliases"], {"lm_head.weight": "model.embed_tokens.weight"})
        names = targets(program, InputKind.PARAMETER)
        self.assertIn("model.embed_tokens.weight", names)
        self.assertNotIn("lm_head.weight", names)
        self.assertEqual(len(names), len(set(targets(program, OutputKind.GRADIENT_TO_PARAMETER))))
        config = json.loads(read_entry(self.path(), "model_weights_config.json"))["config"]
        self.assertEqual(config["lm_head.weight"]["path_name"], config["model.embed_tokens.weight"]["path_name"])

    def test_loaded_as_a_module(self):
        run_command("--preset", "tiny-llama-tied", "-o", self.path())
        program = torch.export.load(self.path())
        tokens = torch.randint(0, 256, (2, 32))
        outputs = program.module()(tokens, tokens, torch.tensor(1.0))
        workload = make(Options(), preset="tiny-llama-tied")
        self.assertTrue(torch.equal(outputs[0], workload.module(tokens, tokens)))


class HeadlessTest(ExportTest):
    def test_same_graph_as_with_weights(self):
        for name in of_today(("tiny-llama", "tiny-gpt2", "tiny-mixtral", "tiny-bert", "resnet18"), 4):
            with self.subTest(name):
                common = ["--preset", name, "--dtype", "bfloat16", "--no-check"]
                run_command(*common, "-o", self.path("full.pt2"))
                code, printed = run_command(*common, "--headless", "-o", self.path("less.pt2"))
                self.assertEqual(code, 0, printed)
                for entry in ("models/model.json", "extra/dcc.json"):
                    full, less = (json.loads(read_entry(self.path(p), entry)) for p in ("full.pt2", "less.pt2"))
                    self.assertEqual(full, less)
                self.verify_records()

    def verify_records(self):
        full, less = (json.loads(read_entry(self.path(p), "model_weights_config.json"))["config"] for p in ("full.pt2", "less.pt2"))
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
        for extra in of_today(([], ["--headless"]), 2):
            code, printed = run_command("--preset", "tiny-llama", "--dtype", "bfloat16", "--attention", "cuda-flash", "-o", self.path(), *extra)
            self.assertEqual(code, 0, printed)
            text = read_entry(self.path(), "models/model.json").decode()
            self.assertNotIn('"cpu"', text)
            self.assertEqual(text.count("_scaled_dot_product_flash_attention.default"), 2)
            self.assertEqual(text.count("_scaled_dot_product_flash_attention_backward.default"), 2)

    def test_separate_experts(self):
        """24 tensors a layer for 8 experts compute what the stock model does, and get its gradients."""
        config = hf.make_config({**presets._MIXTRAL, "num_local_experts": 8, separate_experts.SEPARATE: True})
        torch.manual_seed(0)
        stock = transformers.AutoModelForCausalLM.from_config(config)
        experts.register()
        ours = copy.deepcopy(stock)
        ours.set_experts_implementation(experts.NAME)
        with self.assertRaisesRegex(ExportError, "needs --headless"):
            separate_experts.separate(ours, headless=False)
        separate_experts.separate(ours, headless=True)
        layer = ours.model.layers[0].mlp.experts
        self.assertEqual(len(list(layer.parameters())), 24)
        tokens = torch.randint(0, 256, (2, 32))
        losses = [model(input_ids=tokens, labels=tokens).loss for model in (stock, ours)]
        torch.testing.assert_close(*losses)
        for loss in losses:
            loss.backward()
        stacked, inner = stock.model.layers[0].mlp.experts, presets._MIXTRAL["intermediate_size"]
        for number, expert in enumerate(layer.experts):
            gate_up = stacked.gate_up_proj.grad[number]
            for mine, theirs in ((expert.w1, gate_up[:inner]), (expert.w3, gate_up[inner:]), (expert.w2, stacked.down_proj.grad[number])):
                torch.testing.assert_close(mine.grad, theirs, rtol=1e-4, atol=1e-6)

    @unittest.skipUnless(os.environ.get("DCC_SLOW_TESTS"), "set DCC_SLOW_TESTS=1")
    def test_real_shapes(self):
        expected = {
            "llama-3-8b": (8030261248, 32),
            "llama-3-70b": (70553706496, 80),
            "mixtral-8x7b": (46702792704, 32),
            "mixtral-8x7b-experts": (46702792704, 32),
        }
        for name, (parameters, layers) in expected.items():
            with self.subTest(name):
                unchecked = ("--no-check",) if name.endswith("-experts") else ()
                code, printed = run_command("--preset", name, "--headless", *unchecked, "-o", self.path())
                self.assertEqual(code, 0, printed)
                self.assertIn(f"{parameters} parameters", printed)
                text = read_entry(self.path(), "models/model.json").decode()
                op = "_scaled_dot_product_flash_attention_for_cpu.default"
                self.assertEqual(text.count(op), layers)
                self.assertLess(os.path.getsize(self.path()), 1 << 20)


class Own(torch.nn.Module):
    """As the messages of the exporter advise: a module around a transformers model, with inputs of its own, which returns the loss."""

    def __init__(self, auto, kind, **values):
        super().__init__()
        self.model = getattr(transformers, auto).from_config(transformers.AutoConfig.for_model(kind, **SMALL, **values)).train()
        self.noise = torch.nn.Parameter(torch.zeros(()))

    def forward(self, **inputs):
        noise = self.noise * torch.rand(())  # drawn by the wrapper, as models draw that skip layers
        return self.model(**inputs).loss + noise


SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "pad_token_id": 0}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


class OwnWrapperTest(ExportTest):
    def own(self, module, inputs, exact=True, **options):
        before = module.model.config.to_dict()
        report = export_train_step(module, inputs, self.path(), **options)
        self.assertIn("equal eager exactly" if exact else "check against eager", report.check)
        self.assertEqual(module.model.config.to_dict(), before)
        self.assertNotIn("forward", vars(module.model))
        return [n for n in torch.export.load(self.path()).graph.nodes if "scaled_dot_product" in str(n.target) and "backward" not in str(n.target)]

    def test_padding_masks(self):
        ids, mask = torch.randint(1, 64, (3, 8)), torch.ones(3, 8, dtype=torch.int64)
        mask[1, 5:] = 0
        inputs = {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([0, 1, 0])}
        self.own(Own("AutoModelForSequenceClassification", "bert", **NO_DROPOUT), inputs)
        self.own(Own("AutoModelForSequenceClassification", "llama"), inputs)
        self.own(Own("AutoModelForTokenClassification", "roberta", num_labels=64, **NO_DROPOUT), {**inputs, "labels": ids})

    def test_causal_masks(self):
        """Without positions the mask stays a flag of fused attention; given ones may pack several sequences into a row, which becomes a mask."""
        ids = torch.randint(1, 64, (2, 8))
        (attention,) = self.own(Own("AutoModelForCausalLM", "llama", use_cache=False), {"input_ids": ids, "labels": ids})
        self.assertEqual((attention.args[4], attention.kwargs.get("attn_mask")), (True, None))
        packed = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3]).expand(2, 8)
        given = {"labels": {"role": "labels", "labels": "same"}}  # a drawn row of positions may pack any tokens
        (attention,) = self.own(Own("AutoModelForCausalLM", "llama", use_cache=False), {"input_ids": ids, "position_ids": packed, "labels": ids}, roles=given)
        self.assertIsNotNone(attention.kwargs.get("attn_mask"))

    def test_experts(self):
        ids = torch.randint(1, 64, (2, 8))
        self.own(Own("AutoModelForCausalLM", "mixtral", num_key_value_heads=2, num_local_experts=4), {"input_ids": ids, "labels": ids}, exact=False)


if __name__ == "__main__":
    unittest.main()
