"""What dcrun saves is a checkpoint of transformers: from_pretrained() loads it, and it holds the names that save_pretrained() writes, tied ones once.

build/venv/bin/python tests/e2e/hf_load_test.py
"""

import json
import os
import sys
import unittest

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file

import jobs
import reference  # noqa: F401 (finds dcc_export)
import rotation
import running

from dcc_export import presets

CONFIGS = os.path.join(running.ROOT, "tests", "data", "hf_configs")
# (preset or config of tests/data, dtype, class of the loader)
LANGUAGE = transformers.AutoModelForCausalLM
MODELS = [
    ("tiny-llama", "float32", LANGUAGE),
    ("tiny-llama-tied", "bfloat16", LANGUAGE),
    ("tiny-gpt2", "float32", LANGUAGE),
    ("t5", "float32", transformers.AutoModelForSeq2SeqLM),
]


class LoadTest(jobs.JobTest):
    def test_from_pretrained(self):
        for name, dtype, loader in rotation.of_today(MODELS, len(MODELS)):
            with self.subTest(name, dtype=dtype):
                self.verify(name, dtype, loader)

    def verify(self, name, dtype, loader):
        config = os.path.join(CONFIGS, name + ".json")
        archive = self.path(f"{name}-{dtype}.pt2")
        source = ["--hf-config", config] if os.path.exists(config) else ["--preset", name]
        running.run([sys.executable, os.path.join(running.ROOT, "scripts", "export.py"), *source, "--dtype", dtype, "--no-check", "-o", archive])
        if os.path.exists(config):
            with open(config) as file:
                values = json.load(file)
        else:
            values = presets._TRANSFORMERS[name]
        plan = running.compile_plan(archive, 2, 3)
        run = f"{name}-{dtype}-run"
        result = jobs.dcrun("-n", "2", plan, "--weights", archive, "--data", "synthetic:1", "--steps", "2", "--save", self.path(run))
        self.assertEqual(result.code, 0, result.err)
        folder = self.path(run + "/step-00000002")
        ours = load_file(os.path.join(folder, "model.safetensors"))
        model = transformers.AutoConfig.for_model(**values)
        self.write(os.path.join(folder, "config.json"), model.to_json_string())
        loaded, told = loader.from_pretrained(folder, dtype=getattr(torch, dtype), output_loading_info=True)
        self.assertEqual(
            {key: sorted(told[key]) for key in ("missing_keys", "unexpected_keys", "mismatched_keys")},
            {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": []},
        )
        state = loaded.state_dict()
        for key, value in ours.items():
            self.assertTrue(torch.equal(state[key], value), key)
        loaded.save_pretrained(self.path(run + "-again"))
        theirs = load_file(os.path.join(self.path(run + "-again"), "model.safetensors"))
        self.assertEqual(sorted(ours), sorted(theirs))
        self.assertTrue(all(torch.equal(ours[key], value) and ours[key].dtype == value.dtype for key, value in theirs.items()))
        with safe_open(os.path.join(folder, "model.safetensors"), "pt") as file:
            aliases = json.loads(file.metadata().get("aliases", "{}"))
        self.assertEqual(set(state) - set(ours), set(aliases))
        for alias, canonical in aliases.items():
            self.assertEqual(state[alias].data_ptr(), state[canonical].data_ptr(), alias)
        self.assertEqual(bool(aliases), bool(values.get("tie_word_embeddings", model.tie_word_embeddings)))


if __name__ == "__main__":
    unittest.main()
