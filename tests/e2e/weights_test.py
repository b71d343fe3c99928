"""Weights that belong to the plan and weights that do not; checkpoints that transformers wrote."""

import json
import os
import unittest

import jobs
import running
import torch
from torch import nn

LLAMA = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}


def export(path, activation, width=12, seed=0):
    from dcc_export import export_train_step

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.f, self.b = nn.Linear(6, width), activation(), nn.Linear(width, 3)

        def forward(self, x, y):
            return nn.functional.cross_entropy(self.b(self.f(self.a(x))), y)

    torch.manual_seed(seed)
    export_train_step(Loss(), (torch.randn(4, 6), torch.randint(0, 3, (4,))), path, check=False)


class Weights(jobs.JobTest):
    def train(self, plan, weights, *options):
        return jobs.dcrun("-n", "2", plan, "--weights", weights, "--data", "synthetic:3", "--save", self.path("out.saved/model.safetensors"), *options)

    def test_another_models_archive(self):
        for name, arguments in (("m", (nn.GELU,)), ("seed", (nn.GELU, 12, 5)), ("relu", (nn.ReLU,)), ("wide", (nn.GELU, 20))):
            export(self.path(name + ".pt2"), *arguments)
        plan = running.compile_plan(self.path("m.pt2"), 2, 3)
        result = self.train(plan, self.path("relu.pt2"))
        self.refused(result, 76, "graph", "--weights-only-by-name")
        self.refused(self.train(plan, self.path("wide.pt2")), 65, "'a.weight' has shape [20, 6] but the plan's is [12, 6]")
        self.nothing_at("out")
        self.assertEqual(self.train(plan, self.path("relu.pt2"), "--weights-only-by-name").code, 0)
        self.assertEqual(self.train(plan, self.path("seed.pt2"), "--overwrite").code, 0)
        self.refused(self.train(plan, self.path("seed.pt2")), 73, "--overwrite")

    def test_checkpoints_of_transformers(self):
        from transformers import LlamaConfig, LlamaForCausalLM

        config = self.path("config")
        torch.manual_seed(3)
        model = LlamaForCausalLM(LlamaConfig(**LLAMA))
        model.save_pretrained(config, max_shard_size="6KB")
        index = os.path.join(config, "model.safetensors.index.json")
        with open(index) as file:
            stored = json.load(file)["weight_map"]
        self.assertGreater(len(set(stored.values())), 2)
        self.assertNotIn("lm_head.weight", stored)  # tied: the plan's other name
        running.run(
            [
                running.sys.executable,
                os.path.join(running.ROOT, "scripts", "export.py"),
                "--hf-config",
                config,
                "--batch",
                "1",
                "--seq",
                "8",
                "--no-check",
                "-o",
                self.path("m.pt2"),
            ]
        )
        plan = running.compile_plan(self.path("m.pt2"), 2, 3)
        tokens = torch.randint(0, 64, (400,), dtype=torch.int64)
        data = self.write("tokens.bin", tokens.numpy().astype("<u2").tobytes())
        losses = []
        for weights in (config, index):
            losses.append([row["loss"] for row in running.train(plan, weights, 2, 2, data=data).steps])
        self.assertEqual(losses[0], losses[1])
        rows = [tokens[k * 8 : k * 8 + 8][None] for k in range(2)]
        expected = sum(model(input_ids=row, labels=row).loss.item() for row in rows) / 2
        self.assertAlmostEqual(losses[0][0], expected, delta=1e-5 * expected)
        # The checkpoint of a deeper model, and one that lacks a layer.
        deeper = self.path("deeper")
        LlamaForCausalLM(LlamaConfig(**{**LLAMA, "num_hidden_layers": 3})).save_pretrained(deeper, max_shard_size="6KB")
        self.refused(self.train(plan, deeper), 76, "model.layers.2.", "not in the plan")
        shallow = self.path("shallow")
        LlamaForCausalLM(LlamaConfig(**{**LLAMA, "num_hidden_layers": 1})).save_pretrained(shallow)
        self.refused(self.train(plan, shallow), 66, "model.layers.1.")


if __name__ == "__main__":
    unittest.main()
