"""Bad files: each is refused with its exit code and a sentence that says what to do; no output stays.

build/venv/bin/python tests/e2e/bad_input_test.py
DCC_SLOW_TESTS=1 build/venv/bin/python tests/e2e/bad_input_test.py     # many more damaged bytes
"""

import json
import math
import os
import random
import struct
import unittest
import zipfile

import torch
from safetensors.torch import load_file, save_file

import jobs
import running

FLIPS = 1000 if running.SLOW else 60


class BadInputTest(jobs.JobTest):
    @classmethod
    def setUpClass(cls):
        cls.model = running.archive("mlp")
        cls.plans = {world: running.compile_plan(cls.model, world, 3) for world in (1, 2, 3)}
        cls.language_model = running.archive("tiny-llama")
        cls.language_plan = running.compile_plan(cls.language_model, 2, 3)

    def compile(self, model, *options):
        return jobs.dcc("compile", model, "--world", "2", "--no-cache", *options, "-o", self.path("out.dcp"))

    def train(self, plan, *options, ranks=2, weights=None, data="synthetic"):
        start = ["-n", str(ranks)] if ranks > 1 else []
        outputs = ["--save", self.path("out.saved/model.safetensors"), "--metrics", self.path("out.jsonl"), "--trace", self.path("out.trace")]
        return jobs.dcrun(*start, plan, "--weights", weights or self.model, "--data", data, *outputs, *options)

    def damaged(self, source, count):
        """Copies with one bit flipped at random places."""
        with open(source, "rb") as file:
            good = file.read()
        random.seed(len(good))
        for at in random.sample(range(len(good)), count):
            bad = bytearray(good)
            bad[at] ^= 1 << random.randrange(8)
            yield at, self.write("bad" + os.path.splitext(source)[1], bad)

    def cut(self, source, fraction):
        with open(source, "rb") as file:
            data = file.read()
        return self.write("cut" + os.path.splitext(source)[1], data[: int(len(data) * fraction)])

    def test_missing_files(self):
        self.refused(self.compile("/nowhere/model.pt2"), 66, "/nowhere/model.pt2")
        self.refused(self.compile(self.model, "--profile", "/nowhere/prof.json"), 66, "prof.json")
        self.refused(self.compile(self.model, "--config", "/nowhere/train.json"), 66, "train.json")
        self.refused(jobs.dcc("verify", "/nowhere/plan.dcp"), 66, "plan.dcp")
        self.refused(self.train("/nowhere/plan.dcp"), 66, "plan.dcp")
        self.refused(self.train(self.plans[2], weights="/nowhere/w.pt2"), 66, "w.pt2")
        self.refused(self.train(self.plans[2], data="/nowhere/tokens.bin"), 66, "tokens.bin")
        self.nothing_at("out")

    def test_truncated_and_empty_archives(self):
        for fraction in (0, 0.001, 0.3, 0.7, 0.999):
            bad = self.cut(self.model, fraction)
            self.refused(self.compile(bad), 65, "not a valid archive")
            self.refused(self.train(self.plans[2], weights=bad), 65, "not a valid archive")
        self.nothing_at("out")

    def test_flipped_bits_of_an_archive(self):
        """What a program reads it checks: a flip is refused, or lies where it has nothing to read."""
        self.assertEqual(self.compile(self.model).code, 0)
        with open(self.path("out.dcp"), "rb") as file:
            good = file.read()
        os.unlink(self.path("out.dcp"))
        refused = 0
        for at, bad in self.damaged(self.model, FLIPS):
            result = self.compile(bad)
            if result.code == 0:
                with open(self.path("out.dcp"), "rb") as file:
                    self.assertEqual(file.read(), good, f"byte {at}")
                os.unlink(self.path("out.dcp"))
                continue
            self.refused(result, 65)
            self.nothing_at("out")
            refused += 1
        self.assertGreater(refused, FLIPS // 4)

    def test_flipped_bits_of_weights(self):
        """Half of these bytes are the only copy of a number: none of them may be trained on."""
        with zipfile.ZipFile(self.model) as archive:
            entries = [e for e in archive.infolist() if "/data/weights/weight_" in e.filename]
        with open(self.model, "rb") as file:
            good = file.read()
        for entry in entries:
            name_length, extra_length = struct.unpack_from("<HH", good, entry.header_offset + 26)
            start = entry.header_offset + 30 + name_length + extra_length
            for at in {start, start + entry.file_size // 2, start + entry.file_size - 1}:
                bad = bytearray(good)
                bad[at] ^= 1
                path = self.write("bad.pt2", bad)
                self.refused(self.train(self.plans[1], ranks=1, weights=path), 65, "checksum", entry.filename)
        self.refused(self.train(self.plans[2], weights=path), 65)
        self.nothing_at("out")

    def test_damaged_profiles(self):
        profile = self.path("prof.json")
        self.assertEqual(jobs.dcc("profile", self.model, "-o", profile).code, 0)
        for fraction in (0, 0.01, 0.5, 0.99):
            self.refused(self.compile(self.model, "--profile", self.cut(profile, fraction)), 65, "cut.json", "dcc profile")
        self.nothing_at("out")
        codes = set()
        for at, bad in self.damaged(profile, FLIPS):
            result = self.compile(self.model, "--profile", bad)
            codes.add(result.code)
            if result.code == 0:  # another number or name, as if a person had changed it
                self.assertEqual(jobs.dcc("verify", self.path("out.dcp")).code, 0, f"byte {at}")
                os.unlink(self.path("out.dcp"))
                continue
            self.assertIn(result.code, (65, 76), f"byte {at}: {result.err}")
            self.refused(result, result.code, "dcc profile")
            self.nothing_at("out")
        self.assertLessEqual(codes, {0, 65, 76})
        self.assertIn(65, codes)

    def test_impossible_numbers_in_a_profile(self):
        profile = self.path("prof.json")
        self.assertEqual(jobs.dcc("profile", self.model, "-o", profile).code, 0)
        with open(profile) as file:
            good = json.load(file)
        for key in ("median_ns", "scratch_bytes"):
            for number in (-1, 2**62, 2**63, 1.5, "x", None):
                bad = {**good, "kernels": [{**row, key: number} for row in good["kernels"]]}
                self.refused(self.compile(self.model, "--profile", self.write("bad.json", json.dumps(bad))), 65, "bad.json")
        self.nothing_at("out")

    def test_a_plan_for_another_world(self):
        self.refused(self.train(self.plans[3]), 76, "for 3 ranks but 2 were started", "dcrun -n 3")
        self.refused(self.train(self.plans[2], ranks=1), 76, "for 2 ranks but 1 was started")
        self.nothing_at("out")

    def test_missing_and_unfit_weights(self):
        weights = load_file(self.saved_weights())
        save_file({name: weights[name] for name in weights if not name.startswith("2.")}, self.path("few.safetensors"))
        self.refused(self.train(self.plans[2], weights=self.path("few.safetensors")), 66, "lacks 2 of", "2.weight, 2.bias")
        weights["0.weight"] = weights["0.weight"].reshape(-1)
        save_file(weights, self.path("flat.safetensors"))
        self.refused(self.train(self.plans[2], weights=self.path("flat.safetensors")), 65, "'0.weight'", "shape")
        self.refused(
            self.train(self.plans[2], weights=self.language_model), 66, "lacks 6 of the plan's tensors: 0.weight", "not in the plan: model.embed_tokens.weight"
        )
        bad = self.cut(self.path("few.safetensors"), 0.6)
        self.refused(self.train(self.plans[2], weights=bad), 65)
        self.nothing_at("out")

    def saved_weights(self):
        return running.train(self.plans[2], self.model, 2, 1).saved

    def test_tokens(self):
        def tokens(data):
            return self.train(self.language_plan, weights=self.language_model, data=data)

        short = self.write("short.bin", struct.pack("<100H", *range(100)))
        self.refused(tokens(short), 65, "100 tokens are 3 samples of 32", "longer file")
        outside = [*range(127), 256, *([5] * 1000)]
        self.refused(tokens(self.write("outside.bin", struct.pack("<1128H", *outside))), 65, "token 256 at byte 254", "vocabulary of 256")
        negative = self.write("negative.bin", struct.pack("<1128q", *([1] * 100 + [-7] + [1] * 1027)))
        self.refused(tokens(negative + ":int64"), 65, "token -7 at byte 800")
        self.refused(tokens(self.write("odd.bin", b"123")), 65, "no whole number of uint16 tokens")
        self.refused(tokens(self.write("empty.bin")), 65, "0 tokens")
        self.refused(self.train(self.plans[2], data=short), 65, "safetensors")
        self.assertEqual(os.path.exists(self.path("out.saved/model.safetensors")), False)

    def test_a_loss_that_is_not_finite_harms_no_parameter(self):
        message = self.refused(self.train(self.plans[2], "--steps", "50", "--lr", "1e30"), 84, "the loss is not finite in step")
        step = int(message.split("in step ")[1].split(";")[0])
        self.assertGreater(step, 1)
        good = running.train(self.plans[2], self.model, 2, step - 1, "--lr", "1e30", data="synthetic")
        self.assertEqual(running.read_safetensors(self.path("out.saved/model.safetensors")), good.tensors())
        weights, older = load_file(good.saved), running.read_safetensors(self.path("out.saved/model.safetensors"))
        for value in (math.inf, math.nan):
            weights["2.weight"] = torch.full_like(weights["2.weight"], value)
            save_file(weights, self.path("hot.safetensors"))
            result = self.train(self.plans[2], "--steps", "5", "--overwrite", weights=self.path("hot.safetensors"))
            self.refused(result, 84, "in step 1;", "nothing was updated", "the state is not finite", "nothing was written")
            self.assertEqual(running.read_safetensors(self.path("out.saved/model.safetensors")), older)


if __name__ == "__main__":
    unittest.main()
