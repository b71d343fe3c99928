"""Dims whose size is given when a plan is compiled, against plans of archives that were exported at that size.

build/venv/bin/python tests/e2e/dynamic_test.py
"""

import functools
import json
import os
import re
import subprocess
import unittest

import export_case
import rotation
import running
import torch
from dcc_export import export_train_step
from dcc_export.errors import ExportError
from torch import nn
from torch.nn import functional

DCC = os.path.join(running.BIN, "dcc")
VOCABULARY, WIDTH, MOST = 24, 16, 64


class Text(nn.Module):
    """Embeddings, one attention, a mean over groups of four positions, a head. Rows are up to MOST tokens."""

    def __init__(self):
        super().__init__()
        self.embed, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(MOST, WIDTH)
        self.query, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids, labels):
        batch, seq = ids.shape
        h = self.embed(ids) + self.places.weight[:seq]
        h = h + functional.scaled_dot_product_attention(self.query(h), h, h, is_causal=True)
        h = h + h.view(batch, seq // 4, 4, WIDTH).mean(2, keepdim=True).expand(-1, -1, 4, -1).reshape(h.shape)
        scores = self.head(h[:, slice(0, None), :])  # as transformers chooses what logits to keep
        return functional.cross_entropy(scores[:, :-1].reshape(-1, VOCABULARY), labels[:, 1:].reshape(-1))


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x, y):
        return functional.cross_entropy(self.layers(x), y)


def text(batch, seq):
    ids = torch.randint(0, VOCABULARY, (batch, seq))
    return ids, ids.clone()


def rows(batch):
    return torch.rand(batch, 8), torch.randint(0, 4, (batch,))


CASES = {  # module, inputs, dynamic dims, sizes of the example, sizes it is compiled for
    "text": (Text, text, {n: {0: "batch", 1: "seq"} for n in ("ids", "labels")}, (3, 8), {"batch": 4, "seq": 12}),
    "rows": (Rows, rows, {n: {0: "batch"} for n in ("x", "y")}, (6,), {"batch": 4}),
}


@functools.cache
def exported(name, dynamic):
    make, inputs, dims, example, sizes = CASES[name]
    torch.manual_seed(3)
    module, path = make(), running.fresh(".pt2")
    sample = inputs(*(example if dynamic else sizes.values()))
    options = {"dynamic_shapes": dims} if dynamic else {}
    export_train_step(module, sample, path, optimizer=torch.optim.AdamW(module.parameters(), lr=0.01), clip_norm=1.0, **options)
    return path


def dims_of(sizes):
    return [word for name, size in sizes.items() for word in ("--dim", f"{name}={size}")]


def dcc(command, model, *options, cache=None):
    """A finished dcc and the path of what it was to write."""
    output = running.fresh(".out")
    switch = [] if cache or command == "profile" else ["--no-cache"]
    environment = {**os.environ, "DCC_CACHE_DIR": cache or running.scratch()}
    return subprocess.run([DCC, command, model, "-o", output, *switch, *options], capture_output=True, text=True, timeout=120, env=environment), output


def listing(plan):
    """The plan as text, without digests, notes on dims and names of tensors."""
    lines = running.run([DCC, "inspect", plan, "--as=text"]).stdout.splitlines()
    kept = [line for line in lines if not re.match(r'(model|step|digest|optimizer|note "dims:|input) ', line)]
    return [re.sub(r"^(tensor %\d+) \S+", r"\1", line) for line in kept]


@rotation.taking_turns(2)
class Bound(unittest.TestCase):
    def check_equal(self, name):
        sizes = CASES[name][4]
        runs = []
        for dynamic in (True, False):
            model = exported(name, dynamic)
            plan = running.compile_plan(model, 2, 2, 1, *(dims_of(sizes) if dynamic else []))
            runs.append((listing(plan), running.train(plan, model, 2, 3)))
        (listed, ours), (expected, static) = runs
        self.assertEqual(listed, expected)
        self.assertEqual(len(static.steps), 3)
        self.assertEqual(ours.numbers(), static.numbers())
        self.assertEqual(ours.tensors(), static.tensors())

    def test_text(self):
        self.check_equal("text")

    def test_rows(self):
        self.check_equal("rows")

    def test_a_preset_at_its_default_size(self):
        model = running.archive("tiny-bert", "--dynamic", "batch,seq")
        description = export_case.description(model)
        self.assertEqual(set(description["dims"]), {"batch", "seq"})
        self.assertFalse([g for g in description["guards"] if "Unequality" in g], "the export excludes sizes for no reason")
        bound = running.compile_plan(model, 2, 2, 1, *dims_of({"batch": 4, "seq": 16}))
        self.assertEqual(listing(bound), listing(running.compile_plan(running.archive("tiny-bert", "--batch", "4", "--seq", "16"), 2, 2)))

    def test_without_weights(self):
        """Graph, description and plans are those of the archive with weights; the twin that is compared in its place is dynamic too."""
        full = running.archive("tiny-llama", "--dynamic", "batch,seq", "--dtype", "bfloat16")
        less = running.fresh(".pt2")
        code, said = export_case.run_command("--preset", "tiny-llama", "--dynamic", "batch,seq", "--headless", "-o", less)
        self.assertEqual(code, 0, said)
        self.assertRegex(said, "a small twin was compared: check: loss and every gradient equal .* 2 samples")
        for entry in ("models/model.json", "extra/dcc.json"):
            self.assertEqual(*(json.loads(export_case.read_entry(model, entry)) for model in (less, full)))
        result, _ = dcc("compile", less, "--world", "2")
        self.assertEqual(result.returncode, 78, result.stderr)
        for sizes in ({"batch": 4, "seq": 16}, {"batch": 3, "seq": 9}):
            plans = [listing(running.compile_plan(model, 2, 2, 1, *dims_of(sizes))) for model in (less, full)]
            self.assertEqual(*(re.sub(r" record=\S+", "", "\n".join(plan)) for plan in plans))

    def test_joint_exports_of_pytorch(self):
        from torch.export.experimental import _export_forward_backward

        torch.manual_seed(3)
        module, plans = Rows(), []
        for sample, dynamic in ((rows(6), True), (rows(4), False)):
            size = {0: torch.export.Dim("rows", min=2, max=32)}
            program = torch.export.export(module, sample, dynamic_shapes={"x": size, "y": size} if dynamic else None)
            path = running.fresh(".pt2")
            torch.export.save(_export_forward_backward(program), path)
            if dynamic:
                for option, expected in (((), r"x\.0 \(s\d+, 2 to 32, x\.0, y\.0\).*--dim x\.0=SIZE"), (("--dim", "y.0=33"), "2 to 32")):
                    result, _ = dcc("compile", path, "--world", "2", *option)
                    self.assertEqual(result.returncode, 78, result.stderr)
                    self.assertRegex(result.stderr, expected)
            plans.append(listing(running.compile_plan(path, 2, 2, 1, *(["--dim", "x.0=4"] if dynamic else []))))
        self.assertEqual(*plans)


class Refused(unittest.TestCase):
    def test_sizes(self):
        both = r"batch \(s\d+, at least 2, ids\.0, labels\.0\), seq \(s\d+, \d+ to 64, ids\.1, labels\.1\)"
        for options, code, expected in (
            ([], 78, both + ".*--dim batch=SIZE --dim seq=SIZE"),
            (["batch=4"], 78, r"give each one a size: --dim seq=SIZE\n"),
            (["batch=4", "seq=68"], 78, r"'seq' is 68, but .* to 64"),
            (["batch=1", "seq=8"], 78, "'batch' is 1, but .* at least 2; PyTorch's export keeps dims below 2 out .* export with this size fixed"),
            (["batch=4", "seq=10"], 78, r"seq=10.*condition of the archive does not hold.*Integer\(4\)"),
            (["batch=4", "seq=8", "rows=3"], 78, "no dim 'rows'; it has " + both),
            (["batch=4", "seq=8", "labels.0=5"], 78, "'labels.0' is 5, but it is the same as batch, which is 4"),
            (["batch=0", "seq=8"], 64, "--dim batch=0 is no dim with a size"),
            (["batch", "seq=8"], 64, "--dim batch is no dim with a size"),
        ):
            for command in ("compile", "profile"):
                with self.subTest(options=options, command=command):
                    words = [word for option in options for word in ("--dim", option)]
                    result, output = dcc(command, exported("text", True), *words, *(["--world", "2"] if command == "compile" else []))
                    self.assertEqual(result.returncode, code, result.stderr)
                    self.assertRegex(result.stderr, expected)
                    self.assertFalse(os.path.exists(output))

    def test_a_size_for_an_archive_of_fixed_shapes(self):
        result, _ = dcc("compile", exported("rows", False), "--world", "2", "--dim", "batch=4")
        self.assertEqual(result.returncode, 78, result.stderr)
        self.assertIn("all shapes of the archive are fixed", result.stderr)

    def test_dims_that_the_model_fixes_are_not_exported(self):
        path = running.fresh(".pt2")
        with self.assertRaisesRegex(ExportError, "'width' cannot be dynamic: the model needs it to be 8"):
            export_train_step(Rows(), rows(6), path, dynamic_shapes={"x": {1: "width"}})
        self.assertFalse(os.path.exists(path))

    def test_what_fixed_a_dim_is_said(self):
        class Counted(Rows):
            def forward(self, x, labels):
                return super().forward(x.view(len(x), -1), labels)

        class Numbered(Rows):
            def forward(self, x, labels):
                return super().forward(x + torch.zeros(6, 8), labels)

        dims = {"x": {0: "batch"}, "labels": {0: "batch"}}
        for kind, place in ((Counted, " in dynamic_test.py:.*x.view\\(len\\(x\\), -1\\)"), (Numbered, "")):
            with self.assertRaisesRegex(
                ExportError, f"'batch' cannot be dynamic: the model needs it to be 6{place}.*; len\\(\\), int\\(\\), .*\\.shape does not"
            ):
                export_train_step(kind(), rows(6), running.fresh(".pt2"), dynamic_shapes=dims)


class Told(unittest.TestCase):
    def test_profile_is_of_the_bound_model(self):
        model, sizes = exported("text", True), CASES["text"][4]
        result, profile = dcc("profile", model, *dims_of(sizes), "-n", "2")
        self.assertEqual(result.returncode, 0, result.stderr)
        for bound, is_foreign in ((sizes, False), ({"batch": 2, "seq": 8}, True)):
            result, plan = dcc("compile", model, "--world", "2", "--zero", "2", "--profile", profile, *dims_of(bound))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual("foreign-profile" in result.stderr, is_foreign, result.stderr)

    def test_two_bindings_never_share_a_cache_entry(self):
        model, cache, plans = exported("rows", True), running.fresh(), []
        for dim, word in (("batch=4", "miss"), ("batch=6", "miss"), ("batch=4", "hit"), ("x.0=6", "hit")):
            result, plan = dcc("compile", model, "--world", "2", "--zero", "2", "--json", "--dim", dim, cache=cache)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(json.loads(result.stdout)["cache"], word, dim)
            with open(plan, "rb") as file:
                plans.append(file.read())
            shown = running.inspect(plan)
            self.assertEqual([n for n in shown["notes"] if n.startswith("dims:")], [f"dims: batch={dim[-1]}"])
            self.assertEqual({i["name"]: shown["tensors"][i["tensor"]]["sizes"][0] for i in shown["inputs"][:2]}, {"x": int(dim[-1]), "y": int(dim[-1])})
        self.assertEqual(plans[:2], plans[2:])
        self.assertNotEqual(plans[0], plans[1])


if __name__ == "__main__":
    unittest.main()
