"""The models of DisCo's paper in their published size, without weights: exported, fused by its chain for its cluster A, verified.

build/venv/bin/python tests/e2e/zoo_test.py                      # two of the six, another two the next day
DCC_SLOW_TESTS=1 build/venv/bin/python tests/e2e/zoo_test.py

Their numbers are compared with PyTorch's at a small size: cases.ZOO of parity.py, and the export's own check (export_models_test.py).
"""

import collections
import json
import math
import os
import sys
import unittest
import zipfile

import running
from rotation import of_today

sys.path.insert(0, os.path.join(running.ROOT, "scripts"))
from dcc_export import presets, zoo

CLUSTER = os.path.join(running.ROOT, "examples", "profiles", "gtx1080ti-x12.json")
RANKS = 12


def attention(layers):
    """Products of scores and of what they mix."""
    return 2 * layers


# Parameters, as published or by the formulas of the layers; how often the forward phase has an operator that the layers are counted by.
MODELS = {
    # torchvision's documentation.
    "vgg19": (143667240, {"convolution.default": 16, "addmm.default": 3}),
    "resnet50": (25557032, {"convolution.default": 53, "addmm.default": 1}),
    # Embeddings of 32000 tokens and 1024 places, 6 + 6 layers, an output layer apart from the embedding.
    "transformer": (77464832, {"bmm.default": attention(6 + 2 * 6), "_softmax.default": 18, "native_layer_norm.default": 6 * 2 + 6 * 3 + 2}),
    # Zaremba et al. say 66 million.
    "rnnlm": (66034000, {"tanh.default": 2 * 2 * 35, "sigmoid.default": 3 * 2 * 35}),
    # 110 million of Devlin et al. less the pooler, with the head for masked tokens.
    "bert-base": (109514298, {"native_layer_norm.default": 2 * 12 + 2}),
    # Its layers hash by a product, sort, and find the way back by sorting again.
    "reformer": (50657536, {"bmm.default": attention(6) + 6, "sort.default": 2 * 6}),
}


class PublishedSize(unittest.TestCase):
    def test_every_model_is_here(self):
        self.assertEqual(set(MODELS), {*zoo.FULL, "bert-base"})
        self.assertLessEqual(set(MODELS), set(presets.REAL))

    def test_export_fuse_verify(self):
        for model in of_today(MODELS, 3):
            with self.subTest(model):
                path = running.archive(model, "--headless", "--dtype", "float32")
                self.assertLess(os.path.getsize(path), 4 << 20, "it has no weights")
                parameters, operators = MODELS[model]
                self.verify_operators(path, operators)
                self.verify_plan(path, parameters)

    def verify_operators(self, path, expected):
        with zipfile.ZipFile(path) as archive:
            name = next(n for n in archive.namelist() if n.endswith("models/model.json"))
            graph = json.loads(archive.read(name))["graph_module"]["graph"]
        counts = collections.Counter()
        for node in graph["nodes"]:
            if json.loads(node["metadata"]["custom"])["ph"] == "f":
                counts[node["target"].removeprefix("torch.ops.aten.")] += 1
        self.assertEqual({op: counts[op] for op in expected}, expected, counts)

    def verify_plan(self, path, parameters):
        plan = running.compile_plan(path, RANKS, "disco", 1, "--profile", CLUSTER, "--providers", "native")
        said = running.run([os.path.join(running.BIN, "dcc"), "verify", plan]).stdout
        self.assertIn("levels 0 (digest), 1 (structure), 2 (memory, shapes, effects) and 3", said)
        written = running.inspect(plan)
        self.assertEqual(sum(math.prod(one["sizes"]) for one in written["parameters"]), parameters)
        instructions = [one for program in written["programs"] for one in program["instructions"]]
        self.assertTrue(any(one.get("provider") == "fused" for one in instructions))
        self.assertTrue(any(len(one.get("buffers", [])) > 1 for one in instructions), "reductions travel together")


if __name__ == "__main__":
    unittest.main()
