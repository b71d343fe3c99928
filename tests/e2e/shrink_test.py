"""Small configs by their names alone: no model is built here.

build/venv/bin/python tests/e2e/shrink_test.py
"""

import os
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
from dcc_export.shrink import RECIPES, Recipe, shrink  # noqa: E402
from dcc_export.shrink_kinds import kind_of  # noqa: E402
from dcc_export.shrink_layers import MOST, choose, reduced  # noqa: E402

LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "rope_theta": 10000.0,
    "attention_dropout": 0.1,
}


class KindsTest(unittest.TestCase):
    def test_names(self):
        kinds = {
            "hidden_size": "width",
            "d_model": "width",
            "ffn_dim": "width",
            "q_lora_rank": "width",
            "n_head": "heads",
            "num_key_value_heads": "heads",
            "head_dim": "head width",
            "d_kv": "head width",
            "qk_rope_head_dim": "head width",
            "num_hidden_layers": "depth",
            "n_layer": "depth",
            "depths": "depth",
            "vocab_size": "vocabulary",
            "num_experts_per_tok": "choices",
            "num_local_experts": "experts",
            "n_shared_experts": "shared",
            "n_group": "expert groups",
            "topk_group": "chosen groups",
            "sliding_window": "window",
            "max_position_embeddings": "positions",
            "image_size": "image",
            "patch_size": "patch",
            "pad_token_id": "own id",
            "image_token_id": "id",
            "initializer_range": "plain",
            "kernel_size": "plain",
            "full_attention_interval": "interval",
            "state_size": "state",
        }
        self.assertEqual({name: kind_of(name) for name in kinds}, kinds)


class ShrinkTest(unittest.TestCase):
    def test_products_of_widths_survive(self):
        small = shrink(LLAMA)
        self.assertEqual(small["hidden_size"], 64)
        self.assertEqual(small["num_attention_heads"] * small["head_dim"], small["hidden_size"])
        self.assertEqual(LLAMA["num_attention_heads"] // LLAMA["num_key_value_heads"], small["num_attention_heads"] // small["num_key_value_heads"])
        self.assertAlmostEqual(small["intermediate_size"] / 64, 11008 / 4096, places=1)

    def test_limits(self):
        small = shrink(LLAMA)
        self.assertEqual((small["vocab_size"], small["num_hidden_layers"], small["max_position_embeddings"]), (256, 2, 64))

    def test_what_is_no_size_stays(self):
        small = shrink(LLAMA)
        for key in ("rms_norm_eps", "tie_word_embeddings", "hidden_act", "rope_theta"):
            self.assertEqual(small[key], LLAMA[key], key)

    def test_random_rates_are_zero(self):
        self.assertEqual(shrink(LLAMA)["attention_dropout"], 0.0)
        self.assertEqual(shrink({"router_jitter_noise": 0.01, "layer_norm_eps": 0.01}), {"router_jitter_noise": 0.0, "layer_norm_eps": 0.01})

    def test_the_given_config_is_left_alone(self):
        values = {**LLAMA, "layer_types": ["a", "b"] * 16, "text_config": {"hidden_size": 512}}
        before = repr(values)
        shrink(values)
        self.assertEqual(repr(values), before)

    def test_a_small_config_does_not_grow(self):
        values = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 99, "intermediate_size": 48}
        for recipe in RECIPES:
            small = shrink(values, recipe)
            self.assertTrue(all(small[k] <= values[k] for k in values), f"{recipe.name}: {small}")

    def test_no_recipe_makes_a_size_zero(self):
        values = {**LLAMA, "experts": 1, "q_lora_rank": 16, "topk_group": 1, "vision": {"hidden_size": 1152, "depths": [2, 2, 18, 2]}}
        for recipe in RECIPES:
            small = shrink(values, recipe)
            for key in (k for k, v in values.items() if type(v) is int):
                self.assertGreaterEqual(small[key], 1, f"{recipe.name}: {key}")

    def test_parts_have_their_own_factor_or_one_together(self):
        values = {"text_config": {"hidden_size": 1024, "num_attention_heads": 16}, "vision_config": {"hidden_size": 256, "num_attention_heads": 4}}
        apart, together = shrink(values), shrink(values, next(r for r in RECIPES if r.together))
        self.assertEqual([apart[p]["hidden_size"] for p in values], [64, 64])
        self.assertEqual([together[p]["hidden_size"] for p in values], [64, 16])

    def test_special_tokens_outside_the_vocabulary_move_into_it(self):
        small = shrink({"vocab_size": 32000, "pad_token_id": 31999, "bos_token_id": 1, "eos_token_id": 31998})
        self.assertEqual(small["bos_token_id"], 1)
        self.assertEqual(len({small["pad_token_id"], small["eos_token_id"]}), 2)
        self.assertTrue(all(0 <= small[k] < 256 for k in small if k.endswith("_id")))

    def test_other_tokens_move_by_their_recipe(self):
        values = {"vocab_size": 32000, "image_token_id": 31000}
        self.assertEqual(shrink(values)["image_token_id"], 31000)
        self.assertLess(shrink(values, Recipe("ids", ids=True))["image_token_id"], 256)

    def test_open_counts_are_filled_by_their_recipe(self):
        values = {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": None, "head_dim": None, "n_routed_experts": None}
        self.assertEqual([shrink(values)[k] for k in list(values)[2:]], [None] * 3)
        filled = shrink(values, Recipe("filled", fill=True))
        self.assertEqual([filled[k] for k in list(values)[2:]], [4, 16, 8])

    def test_heads_by_stage_divide_the_widths(self):
        """Swin: the width doubles with each stage, and so do the heads."""
        small = shrink({"embed_dim": 96, "hidden_size": 768, "num_layers": 4, "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24]})
        self.assertEqual((small["embed_dim"], small["num_heads"], small["depths"]), (8, [1, 2, 4, 8], [2, 2, 2, 2]))

    def test_windows_are_shorter_than_a_sequence(self):
        self.assertEqual(shrink({"sliding_window": 4096})["sliding_window"], 8)

    def test_what_names_files_and_classes_is_dropped(self):
        self.assertEqual(shrink({"_name_or_path": "x", "id2label": {0: "a"}, "transformers_version": "5"}), {})


class LayersTest(unittest.TestCase):
    def test_one_layer_of_each_kind_and_the_last(self):
        values = {"num_hidden_layers": 8, "layer_types": ["slide", "slide", "slide", "full"] * 2}
        chosen = choose(values)
        self.assertEqual(chosen.indices, [0, 3, 7])
        small = shrink(values)
        self.assertEqual((small["num_hidden_layers"], small["layer_types"]), (3, ["slide", "full", "full"]))

    def test_first_dense_layers_stay_in_proportion(self):
        small = shrink({"num_hidden_layers": 61, "first_k_dense_replace": 3})
        self.assertEqual((small["num_hidden_layers"], small["first_k_dense_replace"]), (3, 1))

    def test_lists_of_layer_numbers_are_renumbered(self):
        values = {"num_hidden_layers": 8, "attention_layers_idx": [3, 7]}
        small = shrink(values)
        self.assertEqual((small["num_hidden_layers"], list(small["attention_layers_idx"])), (3, [1, 2]))

    def test_dicts_by_layer_number_are_renumbered(self):
        chosen = choose({"num_hidden_layers": 6, "rope": {"0": "a", "5": "b"}})
        self.assertEqual(reduced("rope", {"0": "a", "5": "b"}, chosen), {"0": "a", str(len(chosen.indices) - 1): "b"})

    def test_never_fewer_than_two_nor_too_many(self):
        self.assertEqual(shrink({"num_hidden_layers": 1})["num_hidden_layers"], 1)
        many = {"num_hidden_layers": 20, "layer_types": [f"kind {i}" for i in range(20)]}
        chosen = choose(many)
        self.assertEqual((len(chosen.indices), chosen.indices[-1]), (MOST, 19))

    def test_two_of_each_kind(self):
        self.assertEqual(choose({"num_hidden_layers": 6, "layer_types": ["a", "a", "a", "b", "b", "b"]}, each=2).indices, [0, 1, 3, 4, 5])

    def test_a_config_without_layers(self):
        self.assertIsNone(choose({"hidden_size": 64}))


if __name__ == "__main__":
    unittest.main()
