"""Archives of transformers configs against the stock model, which transformers builds alone.

    build/venv/bin/python tests/e2e/stock_test.py

Nothing of our exporter takes part in the reference: an untouched config, transformers' default
attention, masks and experts, and the weights of the archive.
"""

import functools
import json
import os
import unittest
from unittest import mock

import torch
import transformers
from torch.export.graph_signature import InputKind, OutputKind

from export_case import ROOT, ExportTest, description, run_command
from rotation import of_today, taking_turns

from dcc_export import experts, losses

_SHAPE = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_LLAMA = {**_SHAPE, "intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "pad_token_id": 0}
_GPT = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "bos_token_id": 0, "eos_token_id": 0}

# Attention that is a class of the model's, outside transformers' attention interface.
OWN_ATTENTION = {
    "bloom": {**_SHAPE, "n_layer": 2, "n_head": 4},
    "codegen": {**_GPT, "rotary_dim": 4, "n_ctx": 64},
    "gptj": {**_GPT, "rotary_dim": 4},
}


CONFIGS = os.path.join(ROOT, "tests", "data", "hf_configs")
_BERT_OFF = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_GPT_OFF = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
DROPOUT_OFF = {"roberta": _BERT_OFF, "t5": {"dropout_rate": 0.0}, "gptj": _GPT_OFF}


class StockTest(ExportTest):
    """Exports a config and compares the file with the stock model."""

    def export_config(self, values, *arguments):
        config = self.path("config.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump(values, file)
        return run_command("--hf-config", config, "-o", self.path(), *arguments)

    def export_and_verify(self, values, arguments=("--seq", "16"), **options):
        code, printed = self.export_config(values, *arguments)
        self.assertEqual(code, 0, printed)
        self.assertIn("the stock transformers model", printed)
        self.verify(values, **options)
        return printed

    def export_and_say(self, values, *arguments):
        code, printed = self.export_config(values, "--seq", "16", *arguments)
        self.assertEqual(code, 0, printed)
        return printed

    def verify(self, values, auto=transformers.AutoModelForCausalLM, inputs=None, bound=1e-5, scale=8.0, **kinds):
        """Loss and gradients of the file and of the stock model, with its weights as they are,
        and with matrices `scale` times as large: attention is then far from uniform."""
        program = torch.export.load(self.path())
        tokens = torch.randint(3, 64, (2, 16))
        inputs = inputs or {"input_ids": tokens, "labels": tokens}
        for factor in (1.0, scale):
            state = {k: v.detach() * (factor if v.dim() > 1 else 1.0) for k, v in program.state_dict.items()}
            loss, expected = self.run_stock(values, state, auto, inputs, kinds)
            found, gradients = self.run_file(program, state, inputs)
            self.assertEqual(set(gradients), set(expected))
            self.assertAlmostEqual(found, loss, delta=bound * loss)
            norm = sum(float(g.square().sum()) for g in expected.values()) ** 0.5
            for name, gradient in expected.items():
                distance = float((gradients[name] - gradient).norm())
                allowed = bound * float(gradient.norm()) + 1e-6 * norm
                self.assertLessEqual(distance, allowed, f"{name}, weights times {factor}")

    @staticmethod
    def run_stock(values, state, auto, inputs, kinds):
        """(loss, {parameter: gradient}) of the stock model with these weights."""
        model = auto.from_config(transformers.AutoConfig.for_model(**values), **kinds)
        model.load_state_dict(state)
        inputs = dict(inputs)
        if "mask" in inputs:
            inputs["attention_mask"] = inputs.pop("mask")
        loss = model.train()(**inputs).loss
        loss.backward()
        return float(loss.detach()), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}

    @staticmethod
    def run_file(program, state, inputs):
        """(loss, {parameter: gradient}) of an archive with these weights."""
        users = {**inputs, "loss_scale": torch.tensor(1.0)}
        signature = program.graph_signature
        arguments = [
            users[spec.arg.name] if spec.kind is InputKind.USER_INPUT else state.get(spec.target, program.constants.get(spec.target))
            for spec in signature.input_specs
        ]
        with torch.no_grad():
            outputs = program.graph_module(*arguments)
        named = list(zip(signature.output_specs, outputs, strict=True))
        loss = next(float(v) for s, v in named if s.kind is OutputKind.LOSS_OUTPUT)
        return loss, {s.target: v for s, v in named if s.kind is OutputKind.GRADIENT_TO_PARAMETER}


class CausalityTest(StockTest):
    def test_attention_outside_the_interface(self):
        for model_type, values in of_today(OWN_ATTENTION.items(), 3):
            with self.subTest(model_type):
                self.export_and_verify({"model_type": model_type, **values})

    def test_frequencies_that_the_length_chooses(self):
        """longrope (Phi-3) has others behind the length of its first training, 8 and 32 here; dynamic ones grow behind theirs, which no run may exceed."""
        longrope = {"type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [2.0, 3.0, 4.0, 5.0]}
        phi = {**{k: v for k, v in _LLAMA.items() if k != "head_dim"}, "bos_token_id": 1, "eos_token_id": 2, "rope_scaling": longrope}
        cases = (
            {"model_type": "phi3", **phi, "original_max_position_embeddings": 8},
            {"model_type": "phi3", **phi, "original_max_position_embeddings": 32},
            {"model_type": "llama", **_LLAMA, "max_position_embeddings": 32, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
        )
        for values in of_today(cases, 3):
            with self.subTest(values["model_type"]):
                printed = self.export_and_verify(values, ("--seq", "16", "--eval", "--dynamic", "seq"))
                self.assertIn("the loss equals the module's in eval mode", printed)
                limit = values.get("original_max_position_embeddings", 32)
                guards = " ".join(description(self.path())["guards"])
                self.assertIn(f"Integer({limit})", guards)

    def test_masks_that_are_not_plainly_causal(self):
        """A window shorter than the sequence, and soft-capped scores."""
        window = {**_LLAMA, "sliding_window": 5}
        eager = {"attn_implementation": "eager"}
        for model_type, values, stock in of_today((("mistral", window, {}), ("gemma2", {**window, "attn_logit_softcapping": 0.5}, eager)), 2):
            with self.subTest(model_type):
                printed = self.export_and_verify({"model_type": model_type, **values}, **stock)
                self.assertEqual("with eager attention" in printed, stock == eager)


@taking_turns(4)
class ExpertsTest(StockTest):
    """Mixtures of experts at full capacity are the stock model; its auxiliary loss is in the loss."""

    MIXTRAL = {"model_type": "mixtral", **_LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2}

    def test_router_loss(self):
        values = {**self.MIXTRAL, "output_router_logits": True, "router_aux_loss_coef": 0.5}
        self.export_and_verify(values, scale=2.0)

    def test_a_token_may_choose_an_expert_twice(self):
        """DeepSeek V4 looks experts up by token in a table, whose rows may repeat one: in a new model all are expert 0."""
        torch.manual_seed(0)
        config = transformers.AutoConfig.for_model(**self.MIXTRAL)
        stock = transformers.models.mixtral.modeling_mixtral.MixtralExperts(config)
        config._experts_implementation = "eager"
        torch.nn.init.normal_(stock.gate_up_proj)
        torch.nn.init.normal_(stock.down_proj)
        hidden, weights = torch.randn(10, 32), torch.rand(10, 2)
        chosen = torch.randint(0, 4, (10, 2))
        chosen[:4] = torch.tensor([[0, 0], [3, 3], [0, 0], [1, 1]])
        found = [call(hidden, chosen, weights) for call in (stock, functools.partial(experts.static_capacity_experts, stock))]
        torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)

    def test_biases_and_transposed_weights(self):
        """gpt-oss: such experts, attention sinks, and a window in every other layer."""
        shape = {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5}
        self.export_and_verify({"model_type": "gpt_oss", **_LLAMA, **shape}, scale=2.0)

    def test_loops_over_the_chosen_experts(self):
        """DBRX and LongCat (which has experts that do nothing) run them by loops; most tokens leave most experts out."""
        dbrx = {
            "vocab_size": 64,
            "d_model": 32,
            "n_heads": 4,
            "n_layers": 1,
            "max_seq_len": 64,
            "pad_token_id": 0,
            "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
            "ffn_config": {"ffn_hidden_size": 16, "moe_num_experts": 8, "moe_top_k": 2, "ffn_act_fn": {"name": "silu"}},
        }
        self.export_and_verify({"model_type": "dbrx", **dbrx}, scale=2.0)
        longcat = {
            **_LLAMA,
            "num_layers": 1,
            "num_hidden_layers": 2,
            "ffn_hidden_size": 32,
            "expert_ffn_hidden_size": 16,
            "n_routed_experts": 6,
            "zero_expert_num": 2,
            "moe_topk": 3,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 8,
            "v_head_dim": 8,
            "num_key_value_heads": 4,
        }
        self.export_and_verify({"model_type": "longcat_flash", **longcat}, scale=2.0)

    def test_dropped_tokens_are_said(self):
        printed = self.export_and_say({**self.MIXTRAL, "dcc_capacity_factor": 1.0})
        self.assertIn("note: capacity:", printed)
        (note,) = description(self.path())["notes"]
        self.assertIn("dcc_capacity_factor", note)


@taking_turns(3)
class TracingTest(StockTest):
    """Families that failed while they were traced or read back; the export itself compares."""

    def test_layer_drop(self):
        opt = {**_LLAMA, "ffn_dim": 48, "word_embed_proj_dim": 32, "dropout": 0.0}
        self.export_and_verify({"model_type": "opt", **opt, "layerdrop": 0.0})
        self.export_and_say({"model_type": "opt", **opt, "layerdrop": 0.5})

    def test_weights_are_not_what_tells_labels_of_seq2seq(self):
        """Marian's new weights hardly show the first label: that its model shifts is known."""
        values = {
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32,
            "vocab_size": 64,
            "pad_token_id": 0,
            "decoder_start_token_id": 0,
        }
        self.assertIn("the same tokens", self.export_and_say({"model_type": "marian", **values}))

    def test_a_forward_that_reads_values_is_named_by_its_line(self):
        values = {
            "model_type": "xlm",
            "emb_dim": 32,
            "n_layers": 1,
            "n_heads": 2,
            "n_words": 64,
            "max_position_embeddings": 64,
            "architectures": ["XLMWithLMHeadModel"],
        }
        code, printed = self.export_config(values, "--seq", "16")
        self.assertEqual(code, 65, printed)
        self.assertRegex(printed, r"in modeling_xlm.py:\d+: assert lengths.max\(\).item\(\)")

    def test_default_named_by_a_keyword(self):
        self.export_and_say({**ExpertsTest.MIXTRAL, "model_type": "phimoe"})

    def test_strides_of_softplus(self):
        self.export_and_say({"model_type": "doge", **_LLAMA, "keep_window_size": 8})

    def test_a_model_that_looks_for_padding_to_warn_of_it(self):
        values = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 64}
        self.export_and_say({"model_type": "megatron-bert", **values, "is_decoder": True, "pad_token_id": 0, "architectures": ["MegatronBertForCausalLM"]})


@taking_turns(3)
class OptionsTest(StockTest):
    """What neither the config nor the model says is asked for, and refused where it would be ignored."""

    RESNET = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 4}

    def test_size_of_pictures(self):
        code, printed = self.export_config(self.RESNET)
        self.assertEqual(code, 64, printed)
        self.assertIn("--image-size", printed)
        code, printed = self.export_config(self.RESNET, "--image-size", "24")
        self.assertEqual(code, 0, printed)
        pictures = torch.export.load(self.path()).graph_signature.user_inputs[0]
        shapes = {n.name: n.meta["val"].shape for n in torch.export.load(self.path()).graph.nodes if n.op == "placeholder"}
        self.assertEqual(list(shapes[pictures]), [2, 3, 24, 24])

    def test_labels_that_a_person_knows(self):
        """They are written as given, also where the model's behaviour says something else."""
        llama = {"model_type": "llama", **_LLAMA}
        self.assertIn("labels are the next tokens", self.export_and_say(llama, "--labels", "next"))
        self.assertEqual(description(self.path())["inputs"][1]["labels"], "next")

    def test_what_would_be_ignored(self):
        llama = {"model_type": "llama", **_LLAMA}
        for values, option in ((llama, ("--image-size", "8")), (self.RESNET, ("--labels", "next")), ({**self.RESNET, "image_size": 8}, ("--image-size", "8"))):
            with self.subTest(values["model_type"], option=option):
                code, printed = self.export_config(values, *option)
                self.assertEqual(code, 64, printed)
                self.assertIn("leave", printed)
        code, printed = run_command("--preset", "mlp", "-o", self.path(), "--labels", "next")
        self.assertEqual(code, 64, printed)


class DifferenceTest(StockTest):
    """A model of ours that is not the stock model is not written, with and without weights."""

    def test_planted_difference(self):
        values = {"model_type": "llama", **_LLAMA}
        for arguments in of_today(([], ["--headless"], ["--dtype", "bfloat16"]), 3):
            with self.subTest(arguments), mock.patch.object(losses.CausalLmLoss, "forward", _wrong):
                code, printed = self.export_config(values, "--seq", "16", *arguments)
                self.assertEqual(code, 1, printed)
                self.assertIn("differs from the stock transformers model", printed)
                self.assertFalse(os.path.exists(self.path()))


def _wrong(self, input_ids, labels):
    """Attention to positions that follow: the last token comes first."""
    return self.loss(input_ids=input_ids.roll(1, dims=1), labels=labels, use_cache=False)


class ConfigsTest(StockTest):
    """The architectures of tests/data/hf_configs."""

    def test_configs(self):
        tokens = torch.randint(3, 256, (2, 32))
        lm = {"input_ids": tokens, "labels": tokens}
        mask = torch.ones(2, 32, dtype=torch.int64)
        mask[1, 20:] = 0
        other = {
            "roberta": (transformers.AutoModelForMaskedLM, {**lm, "mask": mask}),
            "t5": (transformers.AutoModelForSeq2SeqLM, lm),
            "vit": (transformers.AutoModelForImageClassification, {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([3, 7])}),
        }
        for file in of_today(sorted(os.listdir(CONFIGS)), 4):
            with open(os.path.join(CONFIGS, file), encoding="utf-8") as opened:
                values = json.load(opened)
            kind = values["model_type"]
            auto, inputs = other.get(kind, (transformers.AutoModelForCausalLM, lm))
            values.update(DROPOUT_OFF.get(kind, {}))
            with self.subTest(kind):
                self.export_and_verify(values, (), auto=auto, inputs=inputs, scale=3.0)


if __name__ == "__main__":
    unittest.main()
