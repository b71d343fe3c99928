"""Tests of `scripts/export.py` as a command: exit codes, configs of transformers, what it leaves in a folder.

build/venv/bin/python tests/e2e/export_command_test.py
"""

import fcntl
import json
import os
import subprocess
import sys
import unittest
import unittest.mock

from export_case import ROOT, ExportTest, run_command

CONFIGS = os.path.join(ROOT, "tests", "data", "hf_configs")


class CommandTest(ExportTest):
    def test_exit_codes(self):
        cases = [
            (64, ["--preset", "nope", "-o", self.path()]),
            (64, ["--preset", "mlp"]),
            (64, ["--preset", "mlp", "-o", self.path("model.zip")]),
            (64, ["--preset", "mlp", "--batch", "0", "-o", self.path()]),
            (64, ["--preset", "mlp", "--dropout", "0.5", "-o", self.path()]),
            (64, ["--preset", "resnet18", "--seq", "8", "-o", self.path()]),
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

    def test_numbers_that_are_none(self):
        for option, text, expected in (
            ("--batch", "abc", "whole number of at least 1"),
            ("--seq", "1.5", "whole number"),
            ("--dropout", "half", "number from 0"),
        ):
            code, printed = run_command("--preset", "mlp", option, text, "-o", self.path())
            self.assertEqual(code, 64, printed)
            self.assertRegex(printed, f"^export.py: argument {option}: '{text}' is no {expected}")

    def test_what_the_system_refuses_is_a_sentence(self):
        for code, error, pattern in (
            (66, FileNotFoundError(2, "No such file or directory", "gone"), "cannot read gone: No such file or directory; give a file"),
            (73, OSError(28, "No space left on device", "/tmp/x"), "cannot write /tmp/x: No space left on device; free space"),
            (73, FileNotFoundError(2, "No usable temporary directory found in ['/tmp']"), "cannot write: No usable .*TMPDIR"),
        ):
            with self.subTest(pattern), unittest.mock.patch("dcc_export.attempts.export_workload", side_effect=error):
                found, printed = run_command("--preset", "mlp", "-o", self.path())
                self.assertEqual(found, code, printed)
                self.assertRegex(printed, f"^export.py: {pattern}")

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

    def exported(self, *arguments, **values):
        with open(self.path("config.json"), "w") as file:
            json.dump(values, file)
        return run_command("--hf-config", self.folder, "--seq", "8", "--no-check", "-o", self.path(), *arguments)

    def test_dropout_of_the_config_is_left_out_with_a_note(self):
        """Unless --dropout says how much the step has, or the config has none."""
        gpt2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 32, "n_positions": 16}
        none = {"resid_pdrop": 0.0, "embd_pdrop": 0, "attn_pdrop": 0.0, "summary_first_dropout": 0.0}
        note = "note: the config's dropout (resid_pdrop 0.2) is left out of the step"
        for values, arguments, expected in (
            ({**none, "resid_pdrop": 0.2}, (), True),
            ({**none, "resid_pdrop": 0.2}, ("--dropout", "0"), False),
            (none, (), False),
        ):
            with self.subTest(values, arguments=arguments):
                code, said = self.exported(*arguments, **gpt2, **values)
                self.assertEqual(code, 0, said)
                self.assertEqual(note in said, expected, said)
                self.assertEqual("dropout" in said, expected, said)

    def test_scripted_functions(self):
        """DeBERTa's buckets are computed by functions that transformers scripts, as the command in a new process exports them, and one that has them scripted does not."""
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 16}
        buckets = {"relative_attention": True, "position_buckets": 4, "pos_att_type": ["c2p", "p2c"]}
        values = {"model_type": "deberta-v2", "architectures": ["DebertaV2ForMaskedLM"], "vocab_size": 32, "type_vocab_size": 0, **sizes, **buckets}
        code, said = self.exported(**values)
        self.assertEqual(code, 65, said)
        self.assertRegex(said, "TorchScript cannot be traced; start Python with PYTORCH_JIT=0 in its environment")
        command = [sys.executable, os.path.join(ROOT, "scripts", "export.py"), "--hf-config", self.folder, "--seq", "8", "-o", self.path()]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("check: loss and every gradient equal the stock transformers model", done.stderr)

    def test_pictures_have_no_tokens(self):
        code, said = self.exported(model_type="vit", image_size=16, patch_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
        self.assertEqual(code, 64, said)
        self.assertRegex(said, "^export.py: the 'vit' config is of a model of pictures, which reads no tokens; leave --seq out\n$")

    def test_heads_that_are_not_exported(self):
        """A config is exported as what it names, or not at all."""
        bert = {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 32}
        gpt2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 32, "n_positions": 16}
        own = {"AutoModelForCausalLM": "modeling_mine.MyGPT2LMHeadModel"}
        for values, head, offered in (
            ({**bert, "architectures": ["BertForSequenceClassification"]}, "BertForSequenceClassification", "BertForMaskedLM or BertLMHeadModel"),
            ({**bert, "architectures": ["BertForPreTraining"]}, "BertForPreTraining", "BertForMaskedLM or BertLMHeadModel"),
            ({**gpt2, "architectures": ["MyGPT2LMHeadModel"], "auto_map": own}, "MyGPT2LMHeadModel", "GPT2LMHeadModel"),
            ({**gpt2, "architectures": ["GPT2Model", "GPT2ForTokenClassification"]}, "GPT2ForTokenClassification", "GPT2LMHeadModel"),
        ):
            with self.subTest(head):
                code, said = self.exported(**values)
                self.assertEqual(code, 65, said)
                self.assertRegex(said, f"architectures name {head}, and .* exported as {offered}: for {head} wrap the model")
                self.assertFalse(os.path.exists(self.path()))
        for values, note in (
            ({**bert, "architectures": ["BertModel"]}, "name BertModel, which has no head; the step is that of BertForMaskedLM"),
            ({**gpt2, "architectures": ["GPT2LMHeadModel"], "auto_map": own}, "auto_map names code of its own, which is not run"),
        ):
            code, said = self.exported(**values)
            self.assertEqual(code, 0, said)
            self.assertIn(note, said)

    def test_a_head_that_is_one_of_several(self):
        """transformers' tables name some classes for two tasks, and several classes for one task."""
        import transformers

        from dcc_export import tasks

        for kind, names, mapping in (
            ("bart", ["BartForConditionalGeneration"], "AutoModelForSeq2SeqLM"),
            ("deit", ["DeiTForImageClassification"], "AutoModelForImageClassification"),
            ("bert", ["BertLMHeadModel"], "AutoModelForCausalLM"),
            ("bert", None, "AutoModelForMaskedLM"),
        ):
            task, notes = tasks.find_task(transformers.AutoConfig.for_model(kind, architectures=names))
            self.assertEqual((task.mapping, notes), (mapping, []))

    def test_sliding_window_shorter_than_the_sequence(self):
        with open(os.path.join(CONFIGS, "mistral.json")) as file:
            values = {**json.load(file), "sliding_window": 8}
        with open(self.path("config.json"), "w") as file:
            json.dump(values, file)
        found, printed = run_command("--hf-config", self.folder, "-o", self.path())
        self.assertEqual(found, 0, printed)
        self.assertIn("equal the stock transformers model", printed)


if __name__ == "__main__":
    unittest.main()
